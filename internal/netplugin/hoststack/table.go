package hoststack

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TableName is our table in nftables: of families ip and ip6 for egress, of
// family inet for the control plane that containers are kept from.
const TableName = "contiv"

// markPrefix begins the name of an empty chain; the rest is a hash of the wish that
// the table was made from, so that a table that is right is not made again.
const markPrefix = "made-from-"

// chain is one base chain and the rules in it.
type chain struct {
	name     string
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority nftables.ChainPriority
	rules    [][]expr.Any
}

// set is one set that rules refer to by its name.
type set struct {
	name     string
	key      nftables.SetDatatype
	elements []nftables.SetElement
	forget   time.Duration // packets add elements, which go so long after their last packet; 0 = packets add none
}

// egressFamily is one address family's egress.
type egressFamily struct {
	family           nftables.TableFamily
	here             netip.Addr // the host's private address
	subnet, loopback netip.Prefix
	nameServer       uint16     // port at here; 0 = none
	endpoints        []Endpoint // with published ports of this family alone
	source           netip.Addr // towards services and native networks; zero = there are none, or the private one stays
	routed           []netip.Prefix
	exposed          []netip.Addr // services' virtual addresses in these
}

// egressFamilies are egress of IPv4 and of IPv6; a way that is not wanted has no address.
func egressFamilies(want Config) []egressFamily {
	four, six := egressFamily{family: nftables.TableFamilyIPv4, loopback: loopback4}, egressFamily{family: nftables.TableFamilyIPv6, loopback: loopback6}
	if p := want.Private; p != nil {
		four.here, four.subnet, four.nameServer = p.Addr, p.Subnet, want.NameServer
		six.here, six.subnet, six.nameServer = p.Addr6, p.Subnet6, want.NameServer6
		four.source, six.source = want.Source, want.source6
		four.routed, six.routed = byFamily(want.Routed)
		for _, x := range want.Services {
			if !slices.ContainsFunc(want.Routed, func(n netip.Prefix) bool { return n.Contains(x.Addr) }) {
				continue
			}
			if x.Addr.Is4() {
				four.exposed = append(four.exposed, x.Addr)
			} else {
				six.exposed = append(six.exposed, x.Addr)
			}
		}
		for _, w := range []*egressFamily{&four, &six} {
			slices.SortFunc(w.exposed, netip.Addr.Compare)
		}
	}
	for _, e := range want.Endpoints {
		w := &four
		if e.Addr.Is6() {
			w = &six
		}
		ports := e.Ports
		e.Ports = nil
		for _, b := range ports {
			if !b.HostIP.IsValid() || b.HostIP.Is4() == e.Addr.Is4() {
				e.Ports = append(e.Ports, b)
			}
		}
		w.endpoints = append(w.endpoints, e)
	}
	return []egressFamily{four, six}
}

// ensureTable makes the tables of egress be as wanted. Established connections
// stay translated: the connection tracking holds their translation.
func (s *Stack) ensureTable(want Config) (err error) {
	for _, w := range egressFamilies(want) {
		if !w.here.IsValid() {
			err = errors.Join(err, removeTable(w.family))
			continue
		}
		p := want.Private
		from := []any{"layout 17", p.Interface, w.here, w.subnet, p.TunnelPort, w.nameServer, w.endpoints, w.source, w.routed, w.exposed}
		err = errors.Join(err, ensureTable(w.family, setsOf(w), chainsOf(p, w), from, func() {
			s.repaired.Rules(familyName(w.family) + " " + TableName)
		}))
	}
	return err
}

// removeTable takes our tables of a family away.
func removeTable(family nftables.TableFamily) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	have, err := c.ListChainsOfTableFamily(family)
	if err != nil { // a kernel without nftables has no table of ours
		return nil //nolint:nilerr // see above
	}
	found := false
	for _, name := range []string{TableName, GuardTable} {
		if slices.ContainsFunc(have, func(ch *nftables.Chain) bool { return ch.Table.Name == name }) {
			c.DelTable(&nftables.Table{Family: family, Name: name})
			found = true
		}
	}
	if !found {
		return nil
	}
	return c.Flush()
}

// ensureTable replaces our table of a family as a whole, in one transaction, unless
// it is there and was made from the same wish. before is called before it is replaced.
func ensureTable(family nftables.TableFamily, sets []set, chains []chain, madeFrom any, before func()) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Family: family, Name: TableName}
	have, err := c.ListChainsOfTableFamily(family)
	if err != nil {
		return fmt.Errorf("read nftables: %w", err)
	}
	mark, err := markOf(madeFrom)
	if err != nil {
		return err
	}
	if intact(c, table, have, sets, chains, mark) {
		return nil
	}
	before()
	c.AddTable(table) // deleting what is not there is an error
	c.DelTable(table)
	c.AddTable(table)
	c.AddChain(&nftables.Chain{Name: mark, Table: table})
	for _, st := range sets {
		if err := c.AddSet(&nftables.Set{
			Table: table, Name: st.name, KeyType: st.key, Concatenation: strings.Contains(st.key.Name, " . "),
			Dynamic: st.forget > 0, HasTimeout: st.forget > 0, Timeout: st.forget,
		}, st.elements); err != nil {
			return fmt.Errorf("write set %s of nftables: %w", st.name, err)
		}
	}
	for _, ch := range chains {
		at := c.AddChain(&nftables.Chain{Name: ch.name, Table: table, Type: ch.kind, Hooknum: ch.hook, Priority: &ch.priority})
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: at, Exprs: r})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write table %s of nftables: %w", TableName, err)
	}
	return nil
}

// familyName is a family as nft names it.
func familyName(f nftables.TableFamily) string {
	return map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet"}[f]
}

func markOf(madeFrom any) (string, error) {
	data, err := json.Marshal(madeFrom)
	sum := sha256.Sum256(data)
	return markPrefix + hex.EncodeToString(sum[:8]), err
}

// intact reports whether the table was made from the same wish and, as far as the
// numbers of its rules and set elements tell, has not been changed since.
func intact(c *nftables.Conn, table *nftables.Table, have []*nftables.Chain, sets []set, want []chain, mark string) bool {
	there := map[string]bool{}
	for _, ch := range have {
		if ch.Table.Name == TableName {
			there[ch.Name] = true
		}
	}
	if len(there) != len(want)+1 || !there[mark] {
		return false
	}
	for _, ch := range want {
		rules, err := c.GetRules(table, &nftables.Chain{Name: ch.name, Table: table})
		if err != nil || len(rules) != len(ch.rules) {
			return false
		}
	}
	for _, st := range sets {
		if st.forget > 0 { // packets fill it
			continue
		}
		elements, err := c.GetSetElements(&nftables.Set{Table: table, Name: st.name, KeyType: st.key})
		if err != nil || len(elements) != len(st.elements) {
			return false
		}
	}
	return true
}

// Questions are answered one after the other, from one socket, so what one
// container asks beyond this is dropped before it stands in the others' way. It
// is more than a busy resolver asks, and a small part of what is answered.
const (
	setServiceClients        = "asking"
	serviceRequestsPerSecond = 2000
	serviceRequestBurst      = 200
	serviceRequestTimeout    = 10 * time.Second
)

// setExposed has the virtual addresses of services that lie in native networks.
const setExposed = "exposed"

func setsOf(w egressFamily) (all []set) {
	key := nftables.TypeIPAddr
	if w.here.Is6() {
		key = nftables.TypeIP6Addr
	}
	if w.nameServer != 0 {
		all = append(all, set{name: setServiceClients, key: key, forget: serviceRequestTimeout})
	}
	if len(w.routed) > 0 {
		st := set{name: setExposed, key: key}
		for _, a := range w.exposed {
			st.elements = append(st.elements, nftables.SetElement{Key: a.AsSlice()})
		}
		all = append(all, st)
	}
	return all
}

// chainsOf makes the rules. Priorities are one before the standard ones, so that
// the order beside Docker's chains is fixed.
func chainsOf(p *desired.HostNAT, w egressFamily) []chain {
	nat := func(name string, hook *nftables.ChainHook, pr nftables.ChainPriority) chain {
		return chain{name: name, kind: nftables.ChainTypeNAT, hook: hook, priority: pr - 1}
	}
	pre := nat("prerouting", nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest)
	out := nat("output", nftables.ChainHookOutput, *nftables.ChainPriorityNATDest)
	post := nat("postrouting", nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource)
	filter := func(name string, hook *nftables.ChainHook) chain {
		return chain{name: name, kind: nftables.ChainTypeFilter, hook: hook, priority: *nftables.ChainPriorityFilter - 1}
	}
	in, fwd := filter("input", nftables.ChainHookInput), filter("forward", nftables.ChainHookForward)

	if w.nameServer != 0 {
		for _, proto := range []model.Protocol{model.ProtoUDP, model.ProtoTCP} {
			asks := iif(p.Interface)
			if relay := p.Relay(w.here.Is6()); relay.IsValid() { // for clients outside
				asks = append(asks, notSaddr(relay)...)
			}
			pre.add(asks, l4(proto), dport(53), dnat(w.here, w.nameServer))
		}
		in.add(iif(p.Interface), l4(model.ProtoUDP), dport(w.nameServer), sendsOver(srcOf(w.here), serviceRequestsPerSecond, serviceRequestBurst, setServiceClients), drop())
	}
	for _, e := range w.endpoints {
		for _, b := range e.Ports {
			to := dstLocal()
			if b.HostIP.IsValid() && !b.HostIP.IsUnspecified() {
				to = daddr(b.HostIP)
			} else if w.here.Is6() {
				to = append(to, notDaddr(netip.IPv6Loopback())...) // see relay
			}
			if b.HostIP == netip.IPv6Loopback() {
				continue // likewise
			}
			for _, ch := range []*chain{&pre, &out} {
				ch.add(to, l4(b.Proto), dport(b.HostPort), dnat(e.Addr, b.ContainerPort))
			}
		}
		if e.Masquerade {
			post.add(oif(p.Interface), daddr(e.Addr), wasDNAT(true), masquerade())
		}
	}
	// The router's address leads to this host. The host's stack does not have the
	// address itself: it would answer for it on every interface. (Its link-local
	// address leads nowhere.)
	if w.here.Is4() {
		pre.add(iif(p.Interface), daddr(desired.RouterAddr), dnat(w.here, 0))
	}
	// A service's backend on another host could not answer a private address.
	if w.source.IsValid() {
		for _, from := range []netip.Prefix{w.subnet, w.loopback} {
			post.add(oif(p.Interface), srcIn(from), dstNotIn(w.subnet), snat(w.source))
		}
	}
	// The data plane takes answers of containers to the host's private address only,
	// so a container that asks another's published port gets the host's address as
	// source.
	post.add(oif(p.Interface), srcIn(w.subnet), notSaddr(w.here), masquerade())
	post.add(oif(p.Interface), srcIn(w.loopback), masquerade())
	post.add(notOif(p.Interface), srcIn(w.subnet), masquerade())
	w.addRouted(p, &post, &in, &fwd)
	fwd.add(iif(p.Interface), srcIn(w.subnet), invalid(), drop())
	// Who sends from a private address from beyond would be translated to this host's
	// own, and taken for it. Another network of the host may lie in the subnet.
	fwd.add(notIif(p.Interface), oif(p.Interface), srcIn(w.subnet), asymmetricSource(), drop())
	// From beyond the host connections begin to services, and to published ports of
	// containers.
	fwd.add(oif(p.Interface), dstIn(w.subnet), ctState(expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED, false), wasDNAT(false), drop())
	if p.TunnelPort != 0 {
		// Containers must not reach a tunnel port: hosts trust each other's tunnel
		// packets.
		tunnel := slices.Concat(iif(p.Interface), l4(model.ProtoUDP), dport(p.TunnelPort), drop())
		in.add(tunnel)
		fwd.add(notOif(p.Interface), tunnel)
	}
	w.refuseUnmanaged(p, &fwd)
	return []chain{w.martians(), pre, out, post, in, fwd, untranslated(), w.marks(p)}
}

// martians drops what comes from a link to a loopback address, before a rule of anybody
// leads it from a port published there to a container; of what no rule leads the kernel
// does so itself.
func (w egressFamily) martians() chain {
	ch := chain{name: "martians", kind: nftables.ChainTypeFilter, hook: nftables.ChainHookPrerouting, priority: *nftables.ChainPriorityRaw - 1}
	ch.add(notIif("lo"), dstIn(w.loopback), drop())
	return ch
}

// untranslated drops what belongs to a translated connection and was not translated,
// as conntrack calls it invalid: it got here by the host's address, and the host would
// reset the connection. It stands behind load balancers of the kernel (IPVS).
func untranslated() chain {
	ch := chain{name: "untranslated", kind: nftables.ChainTypeFilter, hook: nftables.ChainHookInput, priority: *nftables.ChainPriorityNATSource + 1}
	for _, p := range []model.Protocol{model.ProtoTCP, model.ProtoSCTP} {
		ch.add(notIif("lo"), invalid(), l4(p), drop())
	}
	return ch
}

// addRouted adds what native networks need: containers there are known beyond the host
// by the host's address, and so is one that asks a port of the host which leads to
// another one, or the answer would not come back here. Containers of other networks reach
// them by services and published ports alone, as the host does not join networks.
func (w egressFamily) addRouted(p *desired.HostNAT, post, in, fwd *chain) {
	for _, n := range w.routed {
		source := masquerade()
		if w.source.IsValid() {
			source = snat(w.source)
		}
		post.add(oif(p.Interface), srcIn(n), source)
		post.add(notOif(p.Interface), srcIn(n), masquerade())
		fwd.add(notIif(p.Interface), oif(p.Interface), srcIn(n), drop()) // no address of the network is a source beyond the interface
		fwd.add(iif(p.Interface), srcIn(n), invalid(), drop())
		fwd.add(iif(p.Interface), oif(p.Interface), srcIn(w.subnet), dstIn(n), wasDNAT(false),
			[]expr.Any{dstOf(n.Addr()).load(), &expr.Lookup{SourceRegister: 1, SetName: setExposed, Invert: true}}, drop())
		in.add(notIif(p.Interface), srcIn(n), asymmetricSource(), drop()) // this host's answer would be a container's, with the mark
	}
}

// marks gives the host's mark to what sockets of this host send to containers and nothing
// translates or relays, after all translations.
func (w egressFamily) marks(p *desired.HostNAT) chain {
	own := chain{name: "own", kind: nftables.ChainTypeFilter, hook: nftables.ChainHookOutput, priority: *nftables.ChainPrioritySecurity + 1}
	own.add(hasMark(relayMark), toChain(expr.VerdictReturn, ""))
	for _, to := range append([]netip.Prefix{w.subnet}, w.routed...) {
		own.add(oif(p.Interface), dstIn(to), wasDNAT(false), setMark(desired.OwnMark))
	}
	return own
}

// refuseUnmanaged refuses what containers of a native network send to one another by a
// translation on this host, such as kube-proxy's of an address that is no service's here:
// it would be judged as this host's. It is last, since published ports return.
func (w egressFamily) refuseUnmanaged(p *desired.HostNAT, fwd *chain) {
	for _, n := range w.routed {
		led := slices.Concat(iif(p.Interface), oif(p.Interface), srcIn(n), dstIn(n), wasDNAT(true), original())
		for _, e := range w.endpoints {
			for _, b := range e.Ports {
				if n.Contains(e.Addr) {
					fwd.add(led, daddr(e.Addr), l4(b.Proto), dport(b.ContainerPort), toChain(expr.VerdictReturn, ""))
				}
			}
		}
		fwd.add(led, tcp(), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})
		fwd.add(led, []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreachable(n.Addr().Is6())}})
	}
}

func (c *chain) add(parts ...[]expr.Any) {
	var r []expr.Any
	for _, p := range parts {
		r = append(r, p...)
	}
	c.rules = append(c.rules, r)
}

// isMissing reports whether an error says that the kernel has no such object.
func isMissing(err error) bool { return errors.Is(err, unix.ENOENT) }
