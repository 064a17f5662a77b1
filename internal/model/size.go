package model

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"
)

// What one policy, or the policies of one group together, may take of a host's
// tables: half of what the eBPF driver has by default (docs/adr/0003), as a
// changed policy is written beside the one that it replaces.
const (
	MaxPolicyEntries  = 1 << 19 // ports by peer
	MaxPolicyPrefixes = 1 << 17 // address prefixes
)

// entriesPerPort is what a port takes at most where a rule for all ports of its
// protocol matches the same peer: itself, and the 16 port prefixes beside it.
const entriesPerPort = 17

// ported are the protocols that have ports, by their place in a portCount.
var ported = [...]Protocol{ProtoTCP, ProtoUDP, ProtoSCTP}

// portPair is what a rule matches beside its peer: all ports of a protocol, or
// a block of a power of two of them.
type portPair struct {
	proto Protocol
	port  uint16
	bits  uint8 // of the block; 0 = all ports, 16 = one
}

// pairsOf returns what a rule matches beside its peers.
func pairsOf(r PolicyRule) []portPair {
	if len(r.Ports) == 0 {
		return []portPair{{proto: AnyProtocol}}
	}
	out := make([]portPair, 0, len(r.Ports))
	for _, m := range r.Ports {
		if !m.Protocol.HasPorts() || m.Lo == 0 && m.Hi == 65535 {
			out = append(out, portPair{proto: m.Protocol})
			continue
		}
		for lo := uint32(m.Lo); lo <= uint32(m.Hi); {
			size := uint32(1)
			for size < 1<<16 && lo%(2*size) == 0 && lo+2*size-1 <= uint32(m.Hi) {
				size *= 2
			}
			out = append(out, portPair{m.Protocol, uint16(lo), uint8(16 - bits.TrailingZeros32(size))})
			lo += size
		}
	}
	return out
}

// portCount counts pairs, and tells how many entries they take at most.
type portCount struct {
	points, blocks, wide [len(ported)]int // one port, several, all
	other                int              // entries of other protocols
}

func (c *portCount) add(q portPair, times int) {
	i := slices.Index(ported[:], q.proto)
	switch {
	case i >= 0 && q.bits == 16:
		c.points[i] += times
	case i >= 0 && q.bits > 0:
		c.blocks[i] += times
	case i >= 0:
		c.wide[i] += times
	case q.proto == ProtoICMP: // of either family
		c.other += 2 * times
	default:
		c.other += times
	}
}

func (c *portCount) addAll(o portCount, times int) {
	for i := range ported {
		c.points[i] += times * o.points[i]
		c.blocks[i] += times * o.blocks[i]
		c.wide[i] += times * o.wide[i]
	}
	c.other += times * o.other
}

// entries counts for one peer, in whose list the pairs of beside may be as well.
func (c *portCount) entries(beside portCount) int {
	n := c.other
	for i := range ported {
		each, own := 1, c.points[i]+c.blocks[i]
		if c.wide[i]+c.blocks[i]+beside.wide[i]+beside.blocks[i] > 0 {
			each = entriesPerPort
		}
		n += each*own + c.wide[i]
	}
	return n
}

// peerKey is the peer of a rule; the zero value is any peer.
type peerKey struct {
	selector string
	network  bool // endpoints of a network, and on a VLAN network its addresses
	prefix   netip.Prefix
}

// peersOf returns a rule's peers; exceptions of a prefix count like prefixes.
func peersOf(r PolicyRule) map[peerKey]*Selector {
	out := map[peerKey]*Selector{}
	for _, p := range r.Peers {
		switch {
		case p.Selector != nil:
			out[peerKey{selector: p.Selector.String()}] = p.Selector
		case p.CIDR.IsValid():
			out[peerKey{prefix: p.CIDR.Masked()}] = nil
			for _, x := range p.Except {
				out[peerKey{prefix: x.Masked()}] = nil
			}
		default:
			s := &Selector{Tenant: p.Network.Tenant, Network: p.Network.Name}
			out[peerKey{selector: s.String(), network: true}] = s
		}
	}
	if len(r.Peers) == 0 {
		out[peerKey{}] = nil
	}
	return out
}

// peerPorts are the pairs of the rules that name a peer, and how many name each.
type peerPorts struct {
	selector *Selector
	rules    map[portPair]int
	sum      portCount
}

// RuleSize returns how many peers a rule names, exceptions included and at least
// one, and how many blocks of ports.
func RuleSize(r PolicyRule) (peers, ports int) { return len(peersOf(r)), len(pairsOf(r)) }

// PolicyMeter keeps an upper bound of the entries that rules of one tenant take
// together on a host, at a cost by rule that hardly depends on their number: a
// prefix counts its ports and those of all prefixes that cover it. Only beyond
// the limit all rules are looked at, for a closer bound, which then holds for a
// while. The zero value is empty. It is not safe for several goroutines.
type PolicyMeter struct{ in, out directionMeter }

type directionMeter struct {
	peers     map[peerKey]*peerPorts
	selectors map[peerKey]*peerPorts // those of them that are selectors
	anybody   portCount
	named     portCount // of all selectors
	prefixes  portCount
	spare     int // what prefixes was found to count too much
	sorted    []netip.Prefix
	lengths   [2][129]int // prefixes of a length, by family
}

func (m *PolicyMeter) directions() [2]*directionMeter { return [2]*directionMeter{&m.in, &m.out} }

func (m *PolicyMeter) of(d Direction) *directionMeter {
	if d == Out {
		return &m.out
	}
	return &m.in
}

// NewPolicyMeter returns a meter that counts rules.
func NewPolicyMeter(rules []PolicyRule) *PolicyMeter {
	m := &PolicyMeter{}
	first := func(r PolicyRule) netip.Prefix {
		if len(r.Peers) == 0 {
			return netip.Prefix{}
		}
		return r.Peers[0].CIDR
	}
	rules = slices.Clone(rules)
	slices.SortFunc(rules, func(a, b PolicyRule) int { return comparePrefixes(first(a), first(b)) }) // then placing them moves none
	for _, r := range rules {
		m.Add(r)
	}
	return m
}

// Add counts a rule.
func (m *PolicyMeter) Add(r PolicyRule) { m.of(r.Direction).change(r, 1) }

// Remove takes back a rule that was added.
func (m *PolicyMeter) Remove(r PolicyRule) { m.of(r.Direction).change(r, -1) }

// Entries bounds the entries and the prefixes of the rules; identities tells
// how many identities a selector selects. It costs as much as the rules name
// different selectors.
func (m *PolicyMeter) Entries(identities func(Selector) int) (entries, prefixes int) {
	for _, d := range m.directions() {
		e, p := d.count(identities)
		entries, prefixes = entries+e+d.prefixes.entries(portCount{})-d.spare, prefixes+p+len(d.sorted)
	}
	return entries, prefixes
}

// Check tells whether rules may join those that the meter counts, which present
// lists, and leaves the meter as it was. Otherwise the error, of kind
// ErrExhausted, says what they would take, and fit how many of them fit.
func (m *PolicyMeter) Check(present func() []PolicyRule, joining []PolicyRule, identities func(Selector) int) (fit int, err error) {
	fits := func() error {
		entries, prefixes := m.Entries(identities)
		switch {
		case entries > MaxPolicyEntries:
			return Errorf(ErrExhausted, "its rules would take up to %d entries of a host's tables, where an address prefix counts the ports of all prefixes that cover it, and a selector each identity that it selects; at most %d are allowed: name the peers of wide ranges by group or label, or their ports by protocol (docs/user/limits.md)", entries, MaxPolicyEntries)
		case prefixes > MaxPolicyPrefixes:
			return Errorf(ErrExhausted, "its rules would take up to %d address prefixes of a host's tables; at most %d are allowed", prefixes, MaxPolicyPrefixes)
		}
		return nil
	}
	spare := [2]int{m.in.spare, m.out.spare}
	back := func(n int) {
		for _, r := range joining[:n] {
			m.Remove(r)
		}
		m.in.spare, m.out.spare = spare[0], spare[1]
	}
	for _, r := range joining {
		m.Add(r)
	}
	err = fits()
	back(len(joining))
	if err == nil {
		return len(joining), nil
	}
	rules := slices.Clone(present())
	m.Recount(rules)
	spare = [2]int{m.in.spare, m.out.spare}
	if err := fits(); err != nil {
		return 0, err
	}
	for i, r := range joining {
		m.Add(r)
		rules = append(rules, r)
		if fits() == nil {
			continue
		}
		m.Recount(rules)
		if err := fits(); err != nil {
			back(i + 1)
			return i, err
		}
	}
	back(len(joining))
	return len(joining), nil
}

// Recount finds what the sums over prefixes count too much, as rules hide
// others. A rule that joins adds no more to the true count than to the sums,
// so what is found holds until a rule goes. rules are those that the meter counts.
func (m *PolicyMeter) Recount(rules []PolicyRule) {
	rules = slices.Clone(rules)
	slices.SortFunc(rules, func(a, b PolicyRule) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(actionRank(a.Action), actionRank(b.Action)),
			cmp.Compare(a.Key.String(), b.Key.String()))
	})
	for i, d := range m.directions() {
		named := map[netip.Prefix][]int{}
		for at, r := range rules {
			if r.Direction != [2]Direction{In, Out}[i] {
				continue
			}
			for k := range peersOf(r) {
				if k.prefix.IsValid() {
					named[k.prefix] = append(named[k.prefix], at)
				}
			}
		}
		var sum portCount
		for _, p := range d.sorted {
			list := slices.Clone(named[p])
			d.covering(p, func(q netip.Prefix) { list = append(list, named[q]...) })
			sum.addAll(deciding(rules, list), 1)
			if sum.entries(d.prefixes) > MaxPolicyEntries {
				sum = d.prefixes // refused anyhow
				break
			}
		}
		d.spare = max(0, d.prefixes.entries(portCount{})-sum.entries(d.prefixes))
	}
}

// deciding counts the rules of a list that none before them hides.
func deciding(rules []PolicyRule, list []int) (c portCount) {
	slices.Sort(list)
	seen := map[portPair]bool{}
	for at, i := range list {
		if at > 0 && list[at-1] == i {
			continue
		}
		hides := !slices.ContainsFunc(rules[i].Peers, func(p Peer) bool { return len(p.Except) > 0 })
		for _, q := range pairsOf(rules[i]) {
			if !seen[q] {
				c.add(q, 1)
			}
			if seen[q] = seen[q] || hides; q.proto == AnyProtocol && hides {
				return c
			}
		}
	}
	return c
}

// count counts the peers that are no prefixes. On a VLAN network the addresses
// of its two subnets are peers beside its identities.
func (d *directionMeter) count(identities func(Selector) int) (entries, prefixes int) {
	entries = d.anybody.entries(portCount{})
	for k, p := range d.selectors {
		times := identities(*p.selector)
		if k.network {
			times, prefixes = times+2, prefixes+2
		}
		entries += p.sum.entries(d.named) * times
	}
	return entries, prefixes
}

func (d *directionMeter) change(r PolicyRule, by int) {
	before, pairs := d.prefixes, pairsOf(r)
	if d.peers == nil {
		d.peers, d.selectors = map[peerKey]*peerPorts{}, map[peerKey]*peerPorts{}
	}
	for k, selector := range peersOf(r) {
		d.changePeer(k, selector, pairs, by)
	}
	for i := range ported { // other ports count otherwise now
		if by < 0 || before.wide[i]+before.blocks[i] == 0 && d.prefixes.wide[i]+d.prefixes.blocks[i] > 0 {
			d.spare = 0
		}
	}
}

func (d *directionMeter) changePeer(k peerKey, selector *Selector, pairs []portPair, by int) {
	own := d.peers[k]
	if own == nil {
		own = &peerPorts{rules: map[portPair]int{}, selector: selector}
		d.peers[k] = own
		switch {
		case k.prefix.IsValid():
			d.place(k.prefix, 1)
		case selector != nil:
			d.selectors[k] = own
		}
	}
	for _, q := range pairs {
		before := own.rules[q]
		if own.rules[q] += by; own.rules[q] == 0 {
			delete(own.rules, q)
		}
		if (before == 0) == (own.rules[q] == 0) {
			continue
		}
		own.sum.add(q, by)
		switch {
		case selector != nil:
			d.named.add(q, by)
		case k.prefix.IsValid():
			d.prefixes.add(q, by*d.covered(k.prefix))
		default:
			d.anybody.add(q, by)
		}
	}
	if len(own.rules) == 0 {
		delete(d.peers, k)
		delete(d.selectors, k)
		if k.prefix.IsValid() {
			d.place(k.prefix, -1)
		}
	}
}

// place enters a prefix without ports of its own, or takes it out.
func (d *directionMeter) place(p netip.Prefix, by int) {
	d.covering(p, func(q netip.Prefix) { d.prefixes.addAll(d.peers[peerKey{prefix: q}].sum, by) })
	i, _ := slices.BinarySearchFunc(d.sorted, p, comparePrefixes)
	if by > 0 {
		d.sorted = slices.Insert(d.sorted, i, p)
	} else {
		d.sorted = slices.Delete(d.sorted, i, i+1)
	}
	d.lengths[family(p)][p.Bits()] += by
}

// covering calls fn with the other prefixes that hold all addresses of p.
func (d *directionMeter) covering(p netip.Prefix, fn func(netip.Prefix)) {
	for bits, n := range d.lengths[family(p)][:p.Bits()] {
		if n == 0 {
			continue
		}
		q, err := p.Addr().Prefix(bits)
		if err == nil && d.peers[peerKey{prefix: q}] != nil {
			fn(q)
		}
	}
}

// covered counts the prefixes inside of p, p included.
func (d *directionMeter) covered(p netip.Prefix) int {
	first, _ := slices.BinarySearchFunc(d.sorted, p, comparePrefixes)
	end, _ := slices.BinarySearchFunc(d.sorted, p, func(q, p netip.Prefix) int {
		if p.Contains(q.Addr()) || comparePrefixes(q, p) < 0 {
			return -1
		}
		return 1
	})
	return end - first
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func family(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 0
	}
	return 1
}
