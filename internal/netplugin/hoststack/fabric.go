package hoststack

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
)

// FabricTable is our table of nftables, of families ip and ip6, in which containers
// have their own addresses towards the physical network.
const FabricTable = "contiv-bgp"

const (
	// fabricProtocol marks our routes (rtm_protocol of linux/rtnetlink.h, of which
	// others' numbers are below 193).
	fabricProtocol = 198
	// fabricMetric is of our routes: others of the same prefix come first only below it.
	fabricMetric = 20
)

// FabricConfig is what the host's stack has to be towards the physical network.
type FabricConfig struct {
	Device  string                    // by which the network's routers are reached; empty = nothing is wanted
	Private string                    // the interface of egress
	Own     map[netip.Addr]netip.Addr // containers' own addresses by private ones, of both families
	Routes  map[netip.Prefix][]netip.Addr
	// Keep says that what is there and not in Routes stays: not all is known yet.
	Keep bool
}

// Fabric is this host's stack as the physical network's routers see it: routes to
// their prefixes, and containers behind egress that have their own addresses
// there. It is used by one goroutine at a time.
type Fabric struct {
	routes map[netip.Prefix]string // as in the kernel, by what they lead to; nil = not known
	tables [2]fabricTable
	// Changes are those of the routes; nil = none are noted.
	Changes *hostchanges.History
	Repairs Repairs // hear of tables that are put back
}

type fabricTable struct {
	made    bool
	device  string
	private string
	own     map[netip.Addr]netip.Addr
	ranges  []addrRange
}

// addrRange is addresses from first to before end; end zero = to the last of all.
type addrRange struct{ first, end netip.Addr }

// Exists reports whether the host's stack has what an earlier Fabric made.
func (*Fabric) Exists() bool {
	c, err := nftables.New()
	if err != nil {
		return false
	}
	tables, err := c.ListTables()
	return err == nil && slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == FabricTable })
}

// Apply makes the stack as wanted; with look it reads first what is there. A *RouteError
// says that only routes are missing.
func (f *Fabric) Apply(ctx context.Context, want FabricConfig, look bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if look {
		f.routes = nil
	}
	if want.Device == "" {
		want.Routes, want.Own, want.Keep = nil, nil, false
	}
	// Containers' addresses come first: what a route leads away has to have its own.
	for i, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		if err := f.tables[i].ensure(family, want, f.prefixes(want), look, f.Repairs); err != nil {
			return fmt.Errorf("table %s of nftables: %w", FabricTable, err)
		}
	}
	return f.ensureRoutes(ctx, want)
}

// prefixes are the destinations that get routes: the wanted ones and the ones that stay.
func (f *Fabric) prefixes(want FabricConfig) []netip.Prefix {
	all := maps.Clone(want.Routes)
	if want.Keep {
		if f.routes == nil {
			_ = f.read() // ensureRoutes says what is wrong
		}
		for p := range f.routes {
			if _, there := all[p]; !there {
				if all == nil {
					all = map[netip.Prefix][]netip.Addr{}
				}
				all[p] = nil
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), netip.Prefix.Compare)
}

// rangesOf are the addresses of sorted prefixes of one family, each once.
func rangesOf(prefixes []netip.Prefix, six bool) (out []addrRange) {
	for _, p := range prefixes {
		if p.Addr().Is6() != six {
			continue
		}
		r := addrRange{first: p.Addr(), end: lastOf(p).Next()}
		if n := len(out); n > 0 {
			last := &out[n-1]
			if !last.end.IsValid() || !last.end.Less(r.first) { // within, or right behind
				if last.end.IsValid() && (!r.end.IsValid() || last.end.Less(r.end)) {
					last.end = r.end
				}
				continue
			}
		}
		out = append(out, r)
	}
	return out
}

// Names of the table's sets.
const (
	setLearned = "learned"
	mapOwn     = "own"     // own address by private one
	mapPrivate = "private" // the reverse
)

func (t *fabricTable) ensure(family nftables.TableFamily, want FabricConfig, prefixes []netip.Prefix, look bool, repairs Repairs) error {
	six := family == nftables.TableFamilyIPv6
	own := map[netip.Addr]netip.Addr{}
	for p, a := range want.Own {
		if a.Is6() == six {
			own[p] = a
		}
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Family: family, Name: FabricTable}
	if want.Device == "" || want.Private == "" {
		*t = fabricTable{}
		tables, err := c.ListTablesOfFamily(family)
		if err != nil || !slices.ContainsFunc(tables, func(x *nftables.Table) bool { return x.Name == FabricTable }) {
			return nil //nolint:nilerr // a kernel without nftables has no table of ours
		}
		c.DelTable(table)
		return c.Flush()
	}
	ranges := rangesOf(prefixes, six)
	if t.made && (t.device != want.Device || t.private != want.Private) {
		t.made = false
	}
	if t.made && look && !t.intact(c, table) {
		repairs.Rules(familyName(family) + " " + FabricTable)
		t.made = false
	}
	if t.made && maps.Equal(t.own, own) && slices.Equal(t.ranges, ranges) {
		return nil
	}
	key := nftables.TypeIPAddr
	if six {
		key = nftables.TypeIP6Addr
	}
	learned := &nftables.Set{Table: table, Name: setLearned, KeyType: key, Interval: true}
	toOwn := &nftables.Set{Table: table, Name: mapOwn, KeyType: key, IsMap: true, DataType: key}
	toPrivate := &nftables.Set{Table: table, Name: mapPrivate, KeyType: key, IsMap: true, DataType: key}
	was := *t
	if !t.made {
		was = fabricTable{}
		c.AddTable(table) // deleting what is not there is an error
		c.DelTable(table)
		c.AddTable(table)
		for _, s := range []*nftables.Set{learned, toOwn, toPrivate} {
			if err := c.AddSet(s, nil); err != nil {
				return err
			}
		}
		for _, ch := range fabricChains(want, six) {
			at := c.AddChain(&nftables.Chain{Name: ch.name, Table: table, Type: ch.kind, Hooknum: ch.hook, Priority: &ch.priority})
			for _, r := range ch.rules {
				c.AddRule(&nftables.Rule{Table: table, Chain: at, Exprs: r})
			}
		}
	}
	if err := changeElements(c, toOwn, pairsOf(was.own, own, false), pairsOf(own, was.own, false)); err != nil {
		return err
	}
	if err := changeElements(c, toPrivate, pairsOf(was.own, own, true), pairsOf(own, was.own, true)); err != nil {
		return err
	}
	if err := changeElements(c, learned, rangesBeside(was.ranges, ranges), rangesBeside(ranges, was.ranges)); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		t.made = false
		return err
	}
	*t = fabricTable{made: true, device: want.Device, private: want.Private, own: own, ranges: ranges}
	return nil
}

// pairsOf are elements of the pairs in one map that are not so in another.
func pairsOf(in, not map[netip.Addr]netip.Addr, reverse bool) (out []nftables.SetElement) {
	for p, a := range in {
		if not[p] == a {
			continue
		}
		if reverse {
			p, a = a, p
		}
		out = append(out, nftables.SetElement{Key: p.AsSlice(), Val: a.AsSlice()})
	}
	return out
}

// rangesBeside are elements of the ranges in one list that are not in another.
func rangesBeside(in, not []addrRange) (out []nftables.SetElement) {
	there := make(map[addrRange]bool, len(not))
	for _, r := range not {
		there[r] = true
	}
	for _, r := range in {
		if there[r] {
			continue
		}
		out = append(out, nftables.SetElement{Key: r.first.AsSlice()})
		if r.end.IsValid() {
			out = append(out, nftables.SetElement{Key: r.end.AsSlice(), IntervalEnd: true})
		}
	}
	return out
}

func changeElements(c *nftables.Conn, s *nftables.Set, del, add []nftables.SetElement) error {
	for part := range slices.Chunk(del, inMessage) {
		if err := c.SetDeleteElements(s, part); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(add, inMessage) {
		if err := c.SetAddElements(s, part); err != nil {
			return err
		}
	}
	return nil
}

// intact reports whether the table is unchanged, as far as counts can show.
func (t *fabricTable) intact(c *nftables.Conn, table *nftables.Table) bool {
	for _, ch := range fabricChains(FabricConfig{Device: t.device, Private: t.private}, table.Family == nftables.TableFamilyIPv6) {
		rules, err := c.GetRules(table, &nftables.Chain{Name: ch.name, Table: table})
		if err != nil || len(rules) != len(ch.rules) {
			return false
		}
	}
	for _, name := range []string{mapOwn, mapPrivate} {
		elements, err := c.GetSetElements(&nftables.Set{Table: table, Name: name})
		if err != nil || len(elements) != len(t.own) {
			return false
		}
	}
	return true
}

// fabricChains are the rules, right before those of egress: who comes by the
// routers' interface to a container's own address reaches it by its private one, and
// what a container begins towards a learned prefix has its own address.
func fabricChains(want FabricConfig, six bool) []chain {
	pre := chain{name: "prerouting", kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPrerouting, priority: *nftables.ChainPriorityNATDest - 2}
	post := chain{name: "postrouting", kind: nftables.ChainTypeNAT, hook: nftables.ChainHookPostrouting, priority: *nftables.ChainPriorityNATSource - 2}
	src, dst, family := src4, dst4, uint32(unix.NFPROTO_IPV4)
	if six {
		src, dst, family = src6, dst6, unix.NFPROTO_IPV6
	}
	find := func(f field, in string) []expr.Any {
		return []expr.Any{f.load(), &expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true, SetName: in}}
	}
	pre.add(iif(want.Device), find(dst, mapPrivate), []expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: 1}})
	post.add(notOif(want.Private), []expr.Any{dst.load(), lookup(setLearned)}, find(src, mapOwn),
		[]expr.Any{&expr.NAT{Type: expr.NATTypeSourceNAT, Family: family, RegAddrMin: 1}})
	fwd := chain{name: "forward", kind: nftables.ChainTypeFilter, hook: nftables.ChainHookForward, priority: *nftables.ChainPriorityFilter - 2}
	fwd.add(iif(want.Device), invalid(), find(dst, mapPrivate), drop())
	return []chain{pre, post, fwd}
}
