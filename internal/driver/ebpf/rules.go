package ebpf

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// compiledSet is a policy set as map entries, still without a version.
type compiledSet struct {
	set   policySet
	rules map[ruleKey]rule
	cidrs map[cidrKey]uint32
}

// limits of one policy set's work and size, far above what the maps hold.
const maxSetWork = 8 << 20

// compileSet flattens a policy set: for every peer key (anybody, an identity, a
// class of addresses) the elementary port prefixes with the rule that wins
// there, so that one longest-prefix match finds it.
func compileSet(s *desired.PolicySet) (*compiledSet, error) {
	c := &compiledSet{rules: map[ruleKey]rule{}, cidrs: map[cidrKey]uint32{}}
	c.set.Hash = hashSet(s)
	for dir, tiers := range [][]desired.Tier{dirIn: s.In, dirOut: s.Out} {
		if len(tiers) > maxTiers {
			return nil, model.Errorf(model.ErrExhausted, "policy set %d has %d tiers; this data plane holds %d", s.ID, len(tiers), maxTiers)
		}
		c.set.Tiers[dir] = uint8(len(tiers))
		for i := range tiers {
			c.set.Defaults[dir][i] = uint8(toAction(tiers[i].Default))
			t := tierCompiler{c: c, rules: tiers[i].Ordered(), dir: uint8(dir), index: uint8(i)}
			if err := t.compile(); err != nil {
				return nil, fmt.Errorf("policy set %d: %w", s.ID, err)
			}
		}
	}
	return c, nil
}

// ruleNumber stands for a rule's id in counters.
func ruleNumber(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id)) // never fails
	if n := h.Sum64(); n != 0 {
		return n
	}
	return 1
}

// hashSet is a digest of a set's contents, the same in every process.
func hashSet(s *desired.PolicySet) [2]uint64 {
	h := fnv.New128a()
	fmt.Fprintf(h, "2 %q", s.Name)
	for _, tiers := range [][]desired.Tier{s.In, s.Out} {
		fmt.Fprint(h, ";")
		for _, t := range tiers {
			fmt.Fprintf(h, "%v %v", t.Tier, t.Default)
			for _, r := range t.Ordered() {
				fmt.Fprintf(h, "%q %v %v %v %v %v %v %v", r.ID, r.Priority, r.Action, r.Log, r.AnyPeer, slices.Collect(r.Identities.All()), r.CIDRs, r.Ports)
			}
		}
	}
	b := h.Sum(nil)
	return [2]uint64{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

type tierCompiler struct {
	c          *compiledSet
	rules      []*desired.Rule // in deciding order
	dir, index uint8
	work       int
	ports      []int // of each rule: a number for its list of ports
	seen       []int // by that number: the last call of prune that met it
	calls      int
}

// numberPorts numbers equal lists of ports alike.
func (t *tierCompiler) numberPorts() {
	numbers := map[string]int{}
	for i := range t.rules {
		key := fmt.Sprint(t.rules[i].Ports)
		n, ok := numbers[key]
		if !ok {
			n = len(numbers)
			numbers[key] = n
		}
		t.ports = append(t.ports, n)
	}
	t.seen = make([]int, len(numbers))
}

func (t *tierCompiler) compile() error {
	t.numberPorts()
	var anybody []int
	identities := map[model.Identity][]int{}
	scopes := map[model.NetworkID]*classifier{}
	for i := range t.rules {
		r := t.rules[i]
		if r.AnyPeer {
			anybody = append(anybody, i)
			continue
		}
		for id := range r.Identities.All() {
			identities[id] = append(identities[id], i)
		}
		for _, x := range r.CIDRs {
			if scopes[x.Network] == nil {
				scopes[x.Network] = &classifier{nodes: map[netip.Prefix]*node{}}
			}
			scopes[x.Network].add(i, x)
		}
	}
	if err := t.flatten(peerAny, 0, anybody); err != nil {
		return err
	}
	for id, list := range identities {
		if err := t.flatten(peerIdentity, uint32(id), list); err != nil {
			return err
		}
	}
	classes := map[string]uint32{"": 0}
	for _, scope := range slices.Sorted(maps.Keys(scopes)) {
		if err := t.classify(scope, scopes[scope], classes); err != nil {
			return err
		}
	}
	return nil
}

// classify writes the address prefixes of one scope with their classes.
func (t *tierCompiler) classify(scope model.NetworkID, cl *classifier, classes map[string]uint32) error {
	prefixes := slices.SortedFunc(maps.Keys(cl.nodes), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for _, p := range prefixes {
		list := t.prune(cl.covering(p))
		if t.work += len(list) + 1; t.work > maxSetWork {
			return model.Errorf(model.ErrExhausted, "its address prefixes overlap too much for this data plane")
		}
		var sig []byte
		for _, i := range list {
			sig = binary.AppendUvarint(sig, uint64(i))
		}
		class, ok := classes[string(sig)]
		if !ok {
			class = uint32(len(classes))
			classes[string(sig)] = class
			if err := t.flatten(peerClass, class, list); err != nil {
				return err
			}
		}
		k := cidrKey{Bits: uint32(cidrBitsFixed + p.Bits()), Dir: t.dir, Tier: t.index, Family: 6, Scope: uint32(scope), IP: p.Addr().As16()}
		if p.Addr().Is4() {
			k.Family, k.Bits = 4, k.Bits+96
		}
		t.c.cidrs[k] = class
	}
	return nil
}

// prune leaves out rules that an earlier one covers: for every protocol, or
// for the same ports.
func (t *tierCompiler) prune(list []int) []int {
	slices.Sort(list)
	t.calls++
	kept := list[:0]
	for _, i := range list {
		if t.seen[t.ports[i]] == t.calls {
			continue
		}
		t.seen[t.ports[i]] = t.calls
		kept = append(kept, i)
		if anyProtocol(t.rules[i]) {
			break
		}
	}
	return kept
}

func anyProtocol(r *desired.Rule) bool {
	return len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(m model.PortMatch) bool { return m.Protocol == model.AnyProtocol })
}

type span struct {
	lo, hi uint32
	rule   int
}

// flatten writes the port prefixes of one peer key; list is in deciding order.
func (t *tierCompiler) flatten(kind uint8, peer uint32, list []int) error {
	list = t.prune(list)
	if len(list) == 0 {
		return nil
	}
	fallback := -1
	if last := list[len(list)-1]; anyProtocol(t.rules[last]) {
		fallback = last
	}
	key := ruleKey{Bits: ruleBitsAny, Dir: t.dir, Tier: t.index, Kind: kind, Peer: peer}
	if fallback >= 0 {
		t.put(key, fallback)
	}
	spans := map[uint8][]span{}
	for _, i := range list {
		if i == fallback {
			continue
		}
		for _, m := range t.rules[i].Ports {
			for _, proto := range protocols(m.Protocol) {
				s := span{0, 65535, i}
				if m.Protocol.HasPorts() {
					s.lo, s.hi = uint32(m.Lo), uint32(m.Hi)
				}
				if s.lo <= s.hi {
					spans[proto] = append(spans[proto], s)
				}
			}
		}
	}
	for proto, list := range spans {
		k := key
		k.Proto = proto
		for _, s := range winners(list) {
			t.prefixes(k, s)
		}
		if t.work += len(list); t.work > maxSetWork {
			return model.Errorf(model.ErrExhausted, "it has more rules per peer than this data plane can hold")
		}
	}
	return nil
}

// protocols are those that a rule's protocol stands for.
func protocols(p model.Protocol) []uint8 {
	switch {
	case p == model.ProtoICMP:
		return []uint8{uint8(model.ProtoICMP), uint8(model.ProtoICMPv6)}
	case p < 0 || p > 255:
		return nil
	}
	return []uint8{uint8(p)}
}

func (t *tierCompiler) put(k ruleKey, i int) {
	r := t.rules[i]
	t.c.rules[k] = rule{Rank: uint32(i), Action: toAction(r.Action), ID: ruleNumber(r.ID)}
}

// prefixes writes a span as the fewest port prefixes.
func (t *tierCompiler) prefixes(k ruleKey, s span) {
	for lo, end := s.lo, s.hi+1; lo < end; {
		size, bits := uint32(1), uint32(16)
		for bits > 0 && lo&(size*2-1) == 0 && lo+size*2 <= end {
			size, bits = size*2, bits-1
		}
		k.Bits = ruleBitsProto + bits
		binary.BigEndian.PutUint16(k.Port[:], uint16(lo))
		t.put(k, s.rule)
		lo += size
	}
}

// winners cuts overlapping spans into disjoint ones, each with its lowest rule.
func winners(list []span) []span {
	slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	var out []span
	var open spanHeap
	at, next := uint32(0), 0
	for next < len(list) || len(open) > 0 {
		if len(open) == 0 {
			at = max(at, list[next].lo)
		}
		for next < len(list) && list[next].lo <= at {
			heap.Push(&open, list[next])
			next++
		}
		for len(open) > 0 && open[0].hi < at {
			heap.Pop(&open)
		}
		if len(open) == 0 {
			continue
		}
		end := open[0].hi
		if next < len(list) {
			end = min(end, list[next].lo-1)
		}
		if n := len(out); n > 0 && out[n-1].rule == open[0].rule && out[n-1].hi+1 == at {
			out[n-1].hi = end
		} else {
			out = append(out, span{at, end, open[0].rule})
		}
		at = end + 1
	}
	return out
}

type spanHeap []span

func (h spanHeap) Len() int           { return len(h) }
func (h spanHeap) Less(i, j int) bool { return h[i].rule < h[j].rule }
func (h spanHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *spanHeap) Push(x any)        { *h = append(*h, x.(span)) }
func (h *spanHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// classifier holds the address prefixes of one tier and scope.
type classifier struct {
	nodes map[netip.Prefix]*node
	next  int
}

// node is a prefix at which address matches begin, or are excepted.
type node struct {
	begin  []match
	except []int
}

type match struct{ id, rule int }

func (c *classifier) at(p netip.Prefix) *node {
	p = p.Masked()
	if c.nodes[p] == nil {
		c.nodes[p] = &node{}
	}
	return c.nodes[p]
}

func (c *classifier) add(rule int, x desired.CIDR) {
	c.next++
	n := c.at(x.Prefix)
	n.begin = append(n.begin, match{c.next, rule})
	for _, e := range x.Except {
		if e.Addr().Is4() == x.Prefix.Addr().Is4() {
			n := c.at(e)
			n.except = append(n.except, c.next)
		}
	}
}

// covering lists the rules that match the addresses of p that are in no
// longer prefix.
func (c *classifier) covering(p netip.Prefix) []int {
	var out []int
	var begin []match
	except := map[int]bool{}
	for bits := range p.Bits() + 1 {
		q, err := p.Addr().Prefix(bits)
		if err != nil {
			continue
		}
		if n := c.nodes[q]; n != nil {
			begin = append(begin, n.begin...)
			for _, id := range n.except {
				except[id] = true
			}
		}
	}
	for _, m := range begin {
		if !except[m.id] {
			out = append(out, m.rule)
		}
	}
	return out
}
