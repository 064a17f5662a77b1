package hostnet

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/desired"
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
	suffixApart  = "-apart"    // of sides: key : where to, if not simply to a target
	setFrom      = "from"      // key . client: who is taken, where not all are
	setAddrs     = "addrs"     // addresses that are all services': what is not led anywhere is refused
	setNodePorts = "ports"     // protocol . port of nodes' addresses that are services'
	setClosed    = "closed"    // likewise, that somebody is refused at
	setBeyond    = "beyond"    // address . protocol . port of backends that get this host's address
	setElsewhere = "elsewhere" // address . protocol . port of backends on other hosts
	setMachines  = "machines"  // addresses of other machines of the cluster
	setNodes     = "nodes"     // nodes' addresses
)

// The chains to which elements lead that are always there.
const (
	chainFrom     = "from"      // drops other clients than those of setFrom
	chainElse     = "else"      // chooses among targets of others
	chainFromElse = "from-else" // both
)

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

func kindOf(at FrontAt) string {
	if at.Addr.IsUnspecified() {
		return ofPorts
	}
	return ""
}

// keyOf is a place's key; parts fill whole registers.
func keyOf(at FrontAt) string {
	key := slices.Concat([]byte{byte(at.Proto), 0, 0, 0}, port(at.Port), []byte{0, 0})
	if at.Addr.IsUnspecified() {
		return string(key)
	}
	return string(at.Addr.AsSlice()) + string(key)
}

func targetKey(t Target) string {
	return string(slices.Concat(t.Addr().AsSlice(), port(t.Port()), []byte{0, 0}))
}

var frontSets = func() (all []string) {
	for _, side := range []string{sideOwn, sideOutside} {
		for _, kind := range []string{"", ofPorts} {
			all = append(all, side+kind+suffixApart)
			for _, n := range sizes {
				all = append(all, mapOf(side+kind, n))
			}
		}
	}
	return append(all, setFrom, setFrom+ofPorts, setAddrs, setNodePorts, setClosed, setBeyond, setElsewhere, setMachines, setNodes)
}()

// setOf is a set that is always there as the library knows it.
func (t *frontTable) setOf(name string) *nftables.Set {
	addr := t.addrType()
	s := &nftables.Set{Table: t.table, Name: name, KeyType: addr}
	if isApart := strings.HasSuffix(name, suffixApart); isApart || name[len(name)-1] <= '9' {
		s.IsMap, s.DataType = true, t.targetType()
		if isApart {
			s.DataType = nftables.TypeVerdict
		}
	}
	var key []nftables.SetDatatype
	switch {
	case name == setNodePorts || name == setClosed || strings.Contains(name, ofPorts):
		key = []nftables.SetDatatype{nftables.TypeInetProto, nftables.TypeInetService}
	case s.IsMap || name == setFrom || name == setBeyond || name == setElsewhere:
		key = []nftables.SetDatatype{addr, nftables.TypeInetProto, nftables.TypeInetService}
	default:
		return s
	}
	switch {
	case strings.HasPrefix(name, setFrom):
		key, s.Interval = append(key, addr), true
	case s.IsMap && s.DataType.Name != nftables.TypeVerdict.Name:
		key = append(key, indexType())
	}
	s.KeyType, s.Concatenation = nftables.MustConcatSetType(key...), true
	return s
}

func (t *frontTable) addrType() nftables.SetDatatype {
	if t.v6() {
		return nftables.TypeIP6Addr
	}
	return nftables.TypeIPAddr
}

// targetType is that of address . port.
func (t *frontTable) targetType() nftables.SetDatatype {
	return nftables.MustConcatSetType(t.addrType(), nftables.TypeInetService)
}

// indexType is a number of four bytes, as nft can show it.
func indexType() nftables.SetDatatype {
	d := nftables.SetDatatype{Name: nftables.TypeMark.Name, Bytes: 4}
	d.SetNFTMagic(nftables.TypeMark.GetNFTMagic())
	return d
}

// make adds the table and all that never changes to a transaction.
func (t *frontTable) make(c *nftables.Conn) error {
	c.AddTable(t.table) // deleting what is not there is an error
	c.DelTable(t.table)
	c.AddTable(t.table)
	c.AddChain(&nftables.Chain{Name: t.mark(), Table: t.table})
	for _, name := range frontSets {
		if err := c.AddSet(t.setOf(name), nil); err != nil {
			return err
		}
	}
	all := append(t.choosers(), t.bases()...)
	for _, ch := range all {
		at := &nftables.Chain{Name: ch.name, Table: t.table}
		if ch.hook != nil {
			at.Type, at.Hooknum, at.Priority = ch.kind, ch.hook, &ch.priority
		}
		c.AddChain(at)
	}
	for _, ch := range all {
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: t.table, Chain: &nftables.Chain{Name: ch.name, Table: t.table}, Exprs: r})
		}
	}
	return nil
}

func (t *frontTable) mark() string {
	return markPrefix + digest(fmt.Sprint("layout 2 ", t.at, " ", t.source))
}

// Registers: a key is in the first ones, at most ten; a target that was found in the
// last ones.
const reg32Target = unix.NFT_REG32_11

// behind is the register behind an address in another one.
func (t *frontTable) behind(register uint32) uint32 {
	if t.v6() {
		return register + 4
	}
	return register + 1
}

// key loads a packet's key, and tells in which register more of it would be.
func (t *frontTable) key(kind string) (key []expr.Any, next uint32) {
	at := uint32(unix.NFT_REG32_00)
	if kind == "" {
		dst := dst4
		if t.v6() {
			dst = dst6
		}
		key, at = append(key, dst.load()), t.behind(at)
	}
	return append(key, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: at}, dportTo(at+1)), at + 2
}

func (t *frontTable) src() field {
	if t.v6() {
		return src6
	}
	return src4
}

// translate leads to the target that stands in its register.
func (t *frontTable) translate() []expr.Any {
	family := uint32(unix.NFPROTO_IPV4)
	if t.v6() {
		family = unix.NFPROTO_IPV6
	}
	return []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: reg32Target, RegProtoMin: t.behind(reg32Target), Specified: true}}
}

// choosers are the chains that choose, of each side; they return where nobody is.
func (t *frontTable) choosers() (all []chain) {
	for _, kind := range []string{"", ofPorts} {
		key, next := t.key(kind)
		apart := func(side string) []expr.Any {
			return append(slices.Clone(key), lookupTo(side+kind+suffixApart, true))
		}
		// who is dropped unless he is a source
		stranger := slices.Concat(key, []expr.Any{
			payloadTo(t.src(), next), &expr.Lookup{SourceRegister: 1, SetName: setFrom + kind, Invert: true},
		}, drop())
		own, outside := chain{name: sideOwn + kind}, chain{name: sideOutside + kind}
		from, otherwise, both := chain{name: chainFrom + kind}, chain{name: chainElse + kind}, chain{name: chainFromElse + kind}
		for _, ch := range []struct {
			*chain
			side string
		}{{&own, sideOwn}, {&outside, sideOutside}} {
			ch.add(apart(ch.side))
			ch.add(toChain(expr.VerdictGoto, sideOwn+kind+"-choose"))
		}
		from.add(stranger)
		otherwise.add(toChain(expr.VerdictGoto, sideOutside+kind+"-choose"))
		both.add(stranger)
		both.add(toChain(expr.VerdictGoto, sideOutside+kind+"-choose"))
		for _, side := range []string{sideOwn, sideOutside} {
			place := func(places, among int) []expr.Any {
				return slices.Concat(key, []expr.Any{
					&expr.Numgen{Register: next, Modulus: uint32(among), Type: unix.NFT_NG_RANDOM}, //nolint:gosec // of sizes
					&expr.Lookup{SourceRegister: 1, SetName: mapOf(side+kind, places), IsDestRegSet: true, DestRegister: reg32Target},
				}, t.translate())
			}
			choose, try := chain{name: side + kind + "-choose"}, chain{name: side + kind + "-try"}
			choose.add(place(1, 1))
			for range tries {
				choose.add(toChain(expr.VerdictJump, try.name))
			}
			for _, n := range sizes {
				if n > 1 {
					try.add(place(n, n))
				}
				choose.add(place(n, max(n/4, 1))) // also where a change came between
			}
			all = append(all, choose, try)
		}
		all = append(all, own, outside, from, otherwise, both)
	}
	return all
}

func toChain(kind expr.VerdictKind, name string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: name}}
}

func payloadTo(f field, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: f.offset, Len: f.bytes}
}

// bases are the chains by which packets come. They stand before those of the way out,
// which hand questions to the name server.
func (t *frontTable) bases() []chain {
	device := t.at
	of := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, pr *nftables.ChainPriority) chain {
		return chain{name: name, kind: kind, hook: hook, priority: *pr - 2}
	}
	pre := of("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	out := of("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	post := of("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	dst := dst4
	if t.v6() {
		dst = dst6
	}
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
	post.add(wasDNAT(true), notOif(device), notOif("lo"), at(setBeyond), masquerade())
	if t.source.IsValid() {
		post.add(wasDNAT(true), oif(device), []expr.Any{srcOf(t.source).load(), lookup(setMachines)}, at(setElsewhere), snat(t.source))
	}

	chains := []chain{pre, out, post}
	refuse := func(ch *chain, match ...[]expr.Any) {
		unreachable := &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreachable4}
		if t.v6() {
			unreachable.Code = portUnreachable6
		}
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
		refuse(&ch, led)
		ch.add(led, drop())
		chains = append(chains, ch)
	}
	in := of("input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter)
	refuse(&in, ctState(expr.CtStateBitNEW, true), here(setClosed))
	return append(chains, in)
}

// Codes of destination unreachable: RFC 792, RFC 4443 section 3.1.
const portUnreachable4, portUnreachable6 = 3, 4

func dportTo(register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

func lookupTo(set string, verdict bool) expr.Any {
	return &expr.Lookup{SourceRegister: 1, SetName: set, IsDestRegSet: verdict, DestRegister: unix.NFT_REG_VERDICT}
}
