package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// The sets and maps of the table.
const (
	setOwn          = "own"           // address . protocol . port : where to, of this host's own connections
	setOutside      = "outside"       // likewise of others'
	setOwnPorts     = "own-ports"     // protocol . port : where to, at nodes' addresses
	setOutsidePorts = "outside-ports" // likewise
	setClosed       = "closed"        // protocol . port: refused there
	setAddrs        = "addrs"         // addresses that are all services': what is not led anywhere is refused
	setBeyond       = "beyond"        // address . protocol . port of backends that get this host's address
	setElsewhere    = "elsewhere"     // address . protocol . port of backends on other hosts
	setMachines     = "machines"      // addresses of other machines of the cluster
	setNodes        = "nodes"         // nodes' addresses
)

// toDrop stands for a chain's name where packets are dropped.
const toDrop = "drop"

// element is one element of a set or map: its key, by its set's name.
type element struct{ in, key string }

// held is what is wanted of an element: where it leads (a chain, toDrop, or empty in
// sets), and by how many fronts.
type held struct {
	to string
	by int
}

// choosing is what a chain does: it drops other clients than sources', and leads to one
// of the targets.
type choosing struct {
	v6       bool
	sources  []netip.Prefix
	targets  []Target
	affinity time.Duration
	stay     string // the map of which client is where; empty = none
	by       int    // wanted elements that lead here
}

// frontTable is the table of one family: what is wanted of it, and what it is.
type frontTable struct {
	table  *nftables.Table
	at     string     // Place.Device
	source netip.Addr // of Place.Sources
	wanted map[element]held
	chains map[string]*choosing // wanted
	dirty  map[element]bool     // that may not be as wanted
	have   map[element]string
	leads  map[string]int  // how many elements that are there lead to a chain
	is     map[string]bool // chains that are there
	stays  map[string]bool // maps of clients that are there
	users  map[string]int  // of such maps: wanted chains
	idle   map[string]bool // such maps that may have no user
	made   bool            // the table is there, with all that never changes
	setID  uint32          // the last one, of sets that belong to rules; the library numbers others from 1 on
}

func newFrontTable(family nftables.TableFamily) *frontTable {
	t := &frontTable{
		table:  &nftables.Table{Family: family, Name: FrontsTable},
		wanted: map[element]held{}, chains: map[string]*choosing{}, dirty: map[element]bool{},
		users: map[string]int{}, idle: map[string]bool{}, setID: 1 << 24,
	}
	t.empty()
	return t
}

// empty notes that the kernel has nothing of the table.
func (t *frontTable) empty() {
	t.have, t.leads, t.is, t.stays, t.made = map[element]string{}, map[string]int{}, map[string]bool{}, map[string]bool{}, false
}

func (t *frontTable) v6() bool { return t.table.Family == nftables.TableFamilyIPv6 }

// want adds to how often an element is wanted.
func (t *frontTable) want(e element, to string, by int) {
	h := t.wanted[e]
	h.by += by
	if by > 0 {
		h.to = to
	}
	if t.dirty[e] = true; h.by == 0 {
		delete(t.wanted, e)
	} else {
		t.wanted[e] = h
	}
}

// contribute adds, or takes away, what a front wants.
func (t *frontTable) contribute(at FrontAt, f *Front, by int) {
	key := string(slices.Concat([]byte{byte(at.Proto), 0, 0, 0}, port(at.Port), []byte{0, 0})) // parts fill whole registers
	sides := [2]string{setOwnPorts, setOutsidePorts}
	if !at.Addr.IsUnspecified() {
		sides = [2]string{setOwn, setOutside}
		t.want(element{setAddrs, string(at.Addr.AsSlice())}, "", by)
		key = string(at.Addr.AsSlice()) + key
	}
	refused := false
	for i, c := range []Choice{f.Own, f.Outside} {
		switch {
		case len(c.Targets) > 0:
			name, what := chainOf(at, f, c)
			t.choose(name, what, by)
			t.want(element{sides[i], key}, name, by)
		case c.Silent:
			t.want(element{sides[i], key}, toDrop, by)
		default:
			refused = true
		}
		for _, to := range c.Targets {
			if in := [...]string{Elsewhere: setElsewhere, Beyond: setBeyond}[to.Where]; in != "" {
				t.want(element{in, string(slices.Concat(to.Addr().AsSlice(), []byte{byte(at.Proto), 0, 0, 0}, port(to.Port()), []byte{0, 0}))}, "", by)
			}
		}
	}
	if refused && at.Addr.IsUnspecified() {
		t.want(element{setClosed, key}, "", by)
	}
}

// choose adds to how often a chain is wanted.
func (t *frontTable) choose(name string, what *choosing, by int) {
	if t.chains[name] == nil {
		t.chains[name] = what
		t.users[what.stay]++
	}
	if t.chains[name].by += by; t.chains[name].by > 0 {
		return
	}
	delete(t.chains, name)
	if t.users[what.stay]--; t.users[what.stay] == 0 {
		delete(t.users, what.stay)
		t.idle[what.stay] = true
	}
}

// setOf is a set as the library knows it.
func (t *frontTable) setOf(name string) *nftables.Set {
	addr := nftables.TypeIPAddr
	if t.v6() {
		addr = nftables.TypeIP6Addr
	}
	s := &nftables.Set{Table: t.table, Name: name, KeyType: addr}
	switch name {
	case setOwn, setOutside, setBeyond, setElsewhere:
		s.KeyType = nftables.MustConcatSetType(addr, nftables.TypeInetProto, nftables.TypeInetService)
	case setOwnPorts, setOutsidePorts, setClosed:
		s.KeyType = nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)
	}
	s.Concatenation = strings.Contains(s.KeyType.Name, " . ")
	switch name {
	case setOwn, setOutside, setOwnPorts, setOutsidePorts:
		s.IsMap, s.DataType = true, nftables.TypeVerdict
	}
	return s
}

var frontSets = []string{setOwn, setOutside, setOwnPorts, setOutsidePorts, setClosed, setAddrs, setBeyond, setElsewhere, setMachines, setNodes}

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
	for _, ch := range t.bases() {
		at := c.AddChain(&nftables.Chain{Name: ch.name, Table: t.table, Type: ch.kind, Hooknum: ch.hook, Priority: &ch.priority})
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: t.table, Chain: at, Exprs: r})
		}
	}
	return nil
}

func (t *frontTable) mark() string {
	return markPrefix + digest(fmt.Sprint("layout 1 ", t.at, " ", t.source))
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
	dst, behind := dst4, uint32(reg32After4)
	if t.v6() {
		dst, behind = dst6, reg32After16
	}
	at := func(set string, verdict bool) []expr.Any { // address . protocol . port
		return []expr.Any{dst.load(), &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: behind}, dportTo(behind + 1), lookupTo(set, verdict)}
	}
	here := []expr.Any{dst.load(), lookup(setNodes)}
	ports := func(set string, verdict bool) []expr.Any { // protocol . port
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, dportTo(reg32After4), lookupTo(set, verdict)}
	}
	pre.add(iif(device), at(setOwn, true))
	pre.add(notIif(device), at(setOutside, true))
	pre.add(here, dstLocal(), iif(device), ports(setOwnPorts, true))
	pre.add(here, dstLocal(), notIif(device), ports(setOutsidePorts, true))
	out.add(at(setOwn, true))
	out.add(here, dstLocal(), ports(setOwnPorts, true))
	post.add(wasDNAT(true), notOif(device), notOif("lo"), at(setBeyond, false), masquerade())
	if t.source.IsValid() {
		post.add(wasDNAT(true), oif(device), []expr.Any{srcOf(t.source).load(), lookup(setMachines)}, at(setElsewhere, false), snat(t.source))
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
	}{{"forward", nftables.ChainHookForward}, {"own", nftables.ChainHookOutput}} {
		ch := of(x.name, nftables.ChainTypeFilter, x.hook, nftables.ChainPriorityFilter)
		led := []expr.Any{dst.load(), lookup(setAddrs)}
		refuse(&ch, led)
		ch.add(led, drop())
		chains = append(chains, ch)
	}
	in := of("input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter)
	refuse(&in, here, ctState(expr.CtStateBitNEW, true), ports(setClosed, false))
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

const (
	atOnce        = 256     // elements that one transaction has at most
	targetsAtOnce = 4096    // and targets of chains, unless one chain has more
	buffers       = 4 << 20 // bytes: a transaction is sent as a whole, and each part of it is answered at its end
)

// write brings the table to what is wanted, some elements in each transaction.
func (t *frontTable) write(ctx context.Context) error {
	for !t.made || len(t.dirty) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		var some []element
		targets := 0
		for e := range t.dirty {
			if x := t.chains[t.wanted[e].to]; x != nil {
				targets += len(x.targets)
			}
			if some = append(some, e); len(some) == atOnce || targets > targetsAtOnce {
				break
			}
		}
		if err := t.writeSome(some); err != nil {
			return fmt.Errorf("write table %s of nftables: %w", FrontsTable, err)
		}
		for _, e := range some {
			delete(t.dirty, e)
		}
	}
	return t.forgetIdle()
}

// forgetIdle takes away the maps of clients that no chain uses any more.
func (t *frontTable) forgetIdle() error {
	if len(t.idle) == 0 {
		return nil
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	for name := range t.idle {
		if t.stays[name] && t.users[name] == 0 {
			c.DelSet(&nftables.Set{Table: t.table, Name: name})
			delete(t.stays, name)
		}
	}
	clear(t.idle)
	return c.Flush()
}

// writeSome writes some elements, with the chains that they need, in one transaction.
func (t *frontTable) writeSome(some []element) error {
	c, err := nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetReadBuffer(buffers), c.SetWriteBuffer(buffers))
	}))
	if err != nil {
		return err
	}
	if !t.made {
		if err := t.make(c); err != nil {
			return err
		}
	}
	add, del := map[string][]nftables.SetElement{}, map[string][]nftables.SetElement{}
	touched := map[string]bool{} // chains that get or lose elements
	for _, e := range some {
		was, had := t.have[e]
		now, has := t.wanted[e]
		if had == has && was == now.to {
			continue
		}
		if had {
			del[e.in] = append(del[e.in], nftables.SetElement{Key: []byte(e.key)})
			delete(t.have, e)
			t.lead(touched, was, -1)
		}
		if has {
			add[e.in] = append(add[e.in], nftables.SetElement{Key: []byte(e.key), VerdictData: verdictOf(now.to)})
			t.have[e] = now.to
			t.lead(touched, now.to, 1)
		}
	}
	var gone []string
	for name := range touched {
		switch n := t.leads[name]; {
		case n > 0 && !t.is[name]:
			if err := t.addChain(c, name); err != nil {
				return err
			}
		case n == 0 && t.is[name]:
			gone = append(gone, name)
		}
	}
	for _, list := range []struct {
		all map[string][]nftables.SetElement
		put func(*nftables.Set, []nftables.SetElement) error
	}{{del, c.SetDeleteElements}, {add, c.SetAddElements}} {
		for name, elements := range list.all {
			if err := list.put(t.setOf(name), elements); err != nil {
				return err
			}
		}
	}
	for _, name := range gone {
		c.DelChain(&nftables.Chain{Name: name, Table: t.table})
		delete(t.is, name)
		delete(t.leads, name)
	}
	if err := c.Flush(); err != nil {
		return err
	}
	t.made = true
	return nil
}

// lead counts an element that leads to a chain.
func (t *frontTable) lead(touched map[string]bool, to string, by int) {
	if to != "" && to != toDrop {
		t.leads[to] += by
		touched[to] = true
	}
}

// verdictOf leads to a chain; nil in sets.
func verdictOf(to string) *expr.Verdict {
	switch to {
	case "":
		return nil
	case toDrop:
		return &expr.Verdict{Kind: expr.VerdictDrop}
	}
	return &expr.Verdict{Kind: expr.VerdictGoto, Chain: to}
}
