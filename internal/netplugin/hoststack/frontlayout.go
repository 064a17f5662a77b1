package hoststack

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Where a connection comes from: this host and its containers, or others.
const (
	sideOwn     = "own"
	sideOutside = "outside"
)

// ofPorts ends names of what has protocol and port alone as key: ports of nodes'
// addresses. Other keys begin with the address.
const ofPorts = "-ports"

// The sets and maps that are always there.
const (
	suffixDrop     = "-drop"     // of sides: keys at which everybody is dropped
	suffixAffinity = "-affine"   // of sides: keys at which clients stay with their backend (frontstay.go)
	setBypass      = "apart"     // keys at which others are not led as this host's own
	setLimited     = "limited"   // keys at which not all clients are taken
	setFrom        = "from"      // key . client: who is taken there
	setAddrs       = "addrs"     // addresses that are all services': what is not led anywhere is refused
	setNodePorts   = "ports"     // protocol . port of nodes' addresses that are services'
	setClosed      = "closed"    // likewise, that somebody is refused at
	setExternal    = "beyond"    // address . protocol . port of backends that get this host's address
	setOtherHosts  = "elsewhere" // address . protocol . port of backends on other hosts
	setMachines    = "machines"  // addresses of other machines of the cluster
	setNodes       = "nodes"     // nodes' addresses
)

// sidesAndKinds are all combinations of them.
var sidesAndKinds = []string{sideOwn, sideOwn + ofPorts, sideOutside, sideOutside + ofPorts}

// sizes are the numbers of places that a map of targets has for a front. Each target has
// as many of them; places that are left over are empty, and another is chosen.
var sizes = []int{1, 4, 16, 64, 256, 1024, desired.MaxBackends}

// tries is how often a place is chosen before one is that surely has somebody: the first
// quarter of them. At worst half of the places are empty.
const tries = 6

// placesFor is the smallest of sizes that has room for so many targets.
func placesFor(targets int) int {
	i, _ := slices.BinarySearch(sizes, targets)
	return sizes[min(i, len(sizes)-1)]
}

// mapOf is the map of the targets of a side, key . place : address . port.
func mapOf(side string, places int) string { return side + "-" + strconv.Itoa(places) }

// index is a place as part of a key.
func index(i int) string { return string(binary.NativeEndian.AppendUint32(nil, uint32(i))) } //nolint:gosec // below the last of sizes

func kindOf(at FrontendAddr) string {
	if at.Addr.IsUnspecified() {
		return ofPorts
	}
	return ""
}

// keyOf is a place's key; parts fill whole registers.
func keyOf(at FrontendAddr) string {
	key := slices.Concat([]byte{byte(at.Proto), 0, 0, 0}, port(at.Port), []byte{0, 0})
	if at.Addr.IsUnspecified() {
		return string(key)
	}
	return string(at.Addr.AsSlice()) + string(key)
}

func targetKey(t Target) string {
	return string(slices.Concat(t.Addr().AsSlice(), port(t.Port()), []byte{0, 0}))
}

// frontendSets are the sets with the desired state; beside them are maps of clients.
var frontendSets = func() (all []string) {
	for _, at := range sidesAndKinds {
		all = append(all, at+suffixDrop, at+suffixAffinity)
		for _, n := range sizes {
			all = append(all, mapOf(at, n))
		}
	}
	for _, name := range []string{setBypass, setLimited, setFrom} {
		all = append(all, name, name+ofPorts)
	}
	return append(all, setAddrs, setNodePorts, setClosed, setExternal, setOtherHosts, setMachines, setNodes)
}()

// setOf is a set as the library knows it.
func (t *frontendTable) setOf(name string) *nftables.Set {
	addr := t.addrType()
	s := &nftables.Set{Table: t.table, Name: name, KeyType: addr}
	if name == setAddrs || name == setMachines || name == setNodes {
		return s
	}
	key := []nftables.SetDatatype{nftables.TypeInetProto, nftables.TypeInetService}
	if name != setNodePorts && name != setClosed && !strings.Contains(name, ofPorts) {
		key = slices.Insert(key, 0, addr)
	}
	switch {
	case strings.HasPrefix(name, setFrom):
		key, s.Interval = append(key, addr), true
	case strings.Contains(name, ofClients):
		key = append(key, addr)
		s.IsMap, s.DataType, s.Dynamic, s.HasTimeout, s.Size = true, t.targetType(), true, true, desired.MaxAffine
	case name[len(name)-1] <= '9':
		key = append(key, indexType())
		s.IsMap, s.DataType = true, t.targetType()
	}
	s.KeyType, s.Concatenation = nftables.MustConcatSetType(key...), true
	return s
}

func (t *frontendTable) addrType() nftables.SetDatatype {
	if t.v6() {
		return nftables.TypeIP6Addr
	}
	return nftables.TypeIPAddr
}

// targetType is the type of address . port.
func (t *frontendTable) targetType() nftables.SetDatatype {
	return nftables.MustConcatSetType(t.addrType(), nftables.TypeInetService)
}

// indexType is a number of four bytes, as nft can show it.
func indexType() nftables.SetDatatype {
	d := nftables.SetDatatype{Name: nftables.TypeMark.Name, Bytes: 4}
	d.SetNFTMagic(nftables.TypeMark.GetNFTMagic())
	return d
}

// make adds the table and all that never changes to a transaction, but for the chains that
// it returns: their rules are for writeRules.
func (t *frontendTable) make(c *nftables.Conn) (later []chain, err error) {
	c.AddTable(t.table) // deleting what is not there is an error
	c.DelTable(t.table)
	c.AddTable(t.table)
	c.AddChain(&nftables.Chain{Name: t.mark(), Table: t.table})
	for _, name := range slices.Concat(frontendSets, clientMaps) {
		if err := c.AddSet(t.setOf(name), nil); err != nil {
			return nil, err
		}
	}
	all := t.always()
	for _, ch := range all {
		at := &nftables.Chain{Name: ch.name, Table: t.table}
		if ch.hook != nil {
			at.Type, at.Hooknum, at.Priority = ch.kind, ch.hook, &ch.priority
		}
		c.AddChain(at)
	}
	for _, ch := range all {
		if hasSentKey(ch) {
			later = append(later, ch)
			continue
		}
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: t.table, Chain: &nftables.Chain{Name: ch.name, Table: t.table}, Exprs: r})
		}
	}
	return later, nil
}

// always are the chains that are always there.
func (t *frontendTable) always() []chain {
	return slices.Concat(t.choosers(), t.affinityChains(), t.bases())
}

func (t *frontendTable) mark() string {
	return markPrefix + digest(fmt.Sprint("layout 4 ", t.at, " ", t.source))
}

// Registers: a key is in the first ones, at most ten; a target that was found in the
// last ones.
const reg32Target = unix.NFT_REG32_11

// behind is the register behind an address in another one.
func (t *frontendTable) behind(register uint32) uint32 {
	if t.v6() {
		return register + 4
	}
	return register + 1
}

// key loads a packet's key, and tells in which register more of it would be.
func (t *frontendTable) key(kind string) (key []expr.Any, next uint32) {
	at := uint32(unix.NFT_REG32_00)
	if kind == "" {
		key, at = append(key, t.dst().load()), t.behind(at)
	}
	return append(key, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: at}, dportTo(at+1)), at + 2
}

func (t *frontendTable) src() field {
	if t.v6() {
		return src6
	}
	return src4
}

func (t *frontendTable) dst() field {
	if t.v6() {
		return dst6
	}
	return dst4
}

// translate leads to the target that stands in its register.
func (t *frontendTable) translate() []expr.Any {
	family := uint32(unix.NFPROTO_IPV4)
	if t.v6() {
		family = unix.NFPROTO_IPV6
	}
	return []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: reg32Target, RegProtoMin: t.behind(reg32Target), Specified: true}}
}

// choosers are the chains of each side that choose a backend. They return where there is no
// backend. All differences between services are in sets without verdicts, so that the
// kernel does not check where chains lead at each change.
func (t *frontendTable) choosers() (all []chain) {
	for _, kind := range []string{"", ofPorts} {
		key, next := t.key(kind)
		is := func(set string, then ...[]expr.Any) []expr.Any {
			return slices.Concat(key, []expr.Any{lookup(set)}, slices.Concat(then...))
		}
		for _, side := range []string{sideOwn, sideOutside} {
			at := side + kind
			come, lead := chain{name: at}, chain{name: at + "-lead"}
			come.add(is(at+suffixDrop, drop()))
			come.add(is(setLimited+kind, key, []expr.Any{
				payloadTo(t.src(), next), &expr.Lookup{SourceRegister: 1, SetName: setFrom + kind, Invert: true},
			}, drop()))
			come.add(is(at+suffixAffinity, toChain(expr.VerdictJump, at+suffixAffine)))
			if side == sideOutside {
				come.add(is(setBypass+kind, toChain(expr.VerdictGoto, lead.name)))
			}
			come.add(toChain(expr.VerdictGoto, sideOwn+kind+"-lead"))
			choose, try := chain{name: at + "-choose"}, chain{name: at + "-try"}
			lead.add(is(at+suffixAffinity, toChain(expr.VerdictGoto, at+suffixHash)))
			lead.add(toChain(expr.VerdictGoto, choose.name))
			choose.add(t.place(at, 1, random(1, next)))
			for range tries {
				choose.add(toChain(expr.VerdictJump, try.name))
			}
			for _, n := range sizes {
				if n > 1 {
					try.add(t.place(at, n, random(n, next)))
				}
				choose.add(t.place(at, n, random(max(n/4, 1), next))) // also where a change came between
			}
			all = append(all, come, lead, choose, try)
		}
	}
	return all
}

// kindIn is the kind of one of sidesAndKinds.
func kindIn(at string) string {
	if strings.HasSuffix(at, ofPorts) {
		return ofPorts
	}
	return ""
}

// place leads to the target of a place, whose number draw puts behind the key.
func (t *frontendTable) place(at string, places int, draw []expr.Any) []expr.Any {
	key, _ := t.key(kindIn(at))
	return slices.Concat(key, draw, t.lead(mapOf(at, places)))
}

// lead leads to the target that a map has for a key.
func (t *frontendTable) lead(to string) []expr.Any {
	return append([]expr.Any{&expr.Lookup{SourceRegister: 1, SetName: to, IsDestRegSet: true, DestRegister: reg32Target}}, t.translate()...)
}

// random draws a number.
func random(among int, to uint32) []expr.Any {
	return []expr.Any{&expr.Numgen{Register: to, Modulus: uint32(among), Type: unix.NFT_NG_RANDOM}} //nolint:gosec // of sizes
}

func toChain(kind expr.VerdictKind, name string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: name}}
}

func payloadTo(f field, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: f.offset, Len: f.bytes}
}

// bases are the chains by which packets come. They stand before those of egress,
// which hand questions to the name server.
func (t *frontendTable) bases() []chain {
	device := t.at
	of := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, pr *nftables.ChainPriority) chain {
		return chain{name: name, kind: kind, hook: hook, priority: *pr - 2}
	}
	pre := of("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	out := of("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	post := of("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	dst := t.dst()
	at := func(set string) []expr.Any { // address . protocol . port
		key, _ := t.key("")
		return append(key, lookup(set))
	}
	led := []expr.Any{dst.load(), lookup(setAddrs)}
	here := func(set string) []expr.Any { // an address and port of nodes
		key, _ := t.key(ofPorts)
		return slices.Concat([]expr.Any{dst.load(), lookup(setNodes)}, key, []expr.Any{lookup(set)})
	}
	own, others := toChain(expr.VerdictJump, sideOwn), toChain(expr.VerdictJump, sideOutside)
	ownPorts, othersPorts := toChain(expr.VerdictJump, sideOwn+ofPorts), toChain(expr.VerdictJump, sideOutside+ofPorts)
	pre.add(led, iif(device), own)
	pre.add(led, notIif(device), others)
	pre.add(here(setNodePorts), dstLocal(), iif(device), ownPorts)
	pre.add(here(setNodePorts), dstLocal(), notIif(device), othersPorts)
	out.add(led, own)
	out.add(here(setNodePorts), dstLocal(), ownPorts)
	came := of("input-nat", nftables.ChainTypeNAT, nftables.ChainHookInput, nftables.ChainPriorityNATSource)
	for _, ch := range []*chain{&came, &post} {
		ch.add(wasDNAT(true), toChain(expr.VerdictJump, chainAffinity))
	}
	post.add(wasDNAT(true), notOif(device), notOif("lo"), at(setExternal), masquerade())
	if t.source.IsValid() {
		post.add(wasDNAT(true), oif(device), []expr.Any{srcOf(t.source).load(), lookup(setMachines)}, at(setOtherHosts), snat(t.source))
	}

	chains := []chain{pre, out, came, post}
	refuse := func(ch *chain, match ...[]expr.Any) {
		unreachable := &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreachable(t.v6())}
		all := slices.Concat(match...)
		ch.add(all, tcp(), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})
		for _, p := range []model.Protocol{model.ProtoUDP, model.ProtoSCTP} {
			ch.add(all, l4(p), []expr.Any{unreachable})
		}
	}
	for _, x := range []struct {
		name string
		hook *nftables.ChainHook
	}{{"forward", nftables.ChainHookForward}, {"sent", nftables.ChainHookOutput}} {
		ch := of(x.name, nftables.ChainTypeFilter, x.hook, nftables.ChainPriorityFilter)
		ch.add(led, invalid(), drop())
		refuse(&ch, led)
		ch.add(led, drop())
		chains = append(chains, ch)
	}
	in := of("input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter)
	refuse(&in, ctState(expr.CtStateBitNEW, true), here(setClosed))
	return append(chains, in)
}

// portUnreachable is the code of destination unreachable: RFC 792, RFC 4443 section 3.1.
func portUnreachable(v6 bool) uint8 {
	if v6 {
		return 4
	}
	return 3
}

func dportTo(register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}
