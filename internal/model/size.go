package model

import (
	"cmp"
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

// portPair is what a rule matches beside its peer; port 0 = all.
type portPair struct {
	proto Protocol
	port  uint16
}

// portCount counts pairs, and tells how many entries they take at most.
type portCount struct {
	points, wide [len(ported)]int // with a port, with all ports
	other        int              // entries of other protocols
}

func (c *portCount) add(q portPair, times int) {
	i := slices.Index(ported[:], q.proto)
	switch {
	case i >= 0 && q.port != 0:
		c.points[i] += times
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
		c.wide[i] += times * o.wide[i]
	}
	c.other += times * o.other
}

// entries counts for one peer, or for several in whose lists the pairs of
// beside may be as well.
func (c *portCount) entries(beside ...portCount) int {
	n := c.other
	for i := range ported {
		each, wide := 1, c.wide[i]
		for _, b := range beside {
			wide += b.wide[i]
		}
		if wide > 0 {
			each = entriesPerPort
		}
		n += each*c.points[i] + c.wide[i]
	}
	return n
}

// peerKey is the peer of a rule; the zero value is any peer.
type peerKey struct {
	group   GroupName
	network NetworkName
	prefix  netip.Prefix
}

// peerPorts are the pairs of the rules that name a peer, and how many name each.
type peerPorts struct {
	rules map[portPair]int
	sum   portCount
}

// PolicyMeter keeps an upper bound of the entries that rules of one tenant take
// together on a host, at a cost by rule that hardly depends on their number: a
// prefix counts its ports and those of all prefixes that cover it. Only beyond
// the limit all rules are looked at, for a closer bound, which then holds for a
// while. The zero value is empty. It is not safe for several goroutines.
type PolicyMeter struct{ in, out directionMeter }

type directionMeter struct {
	peers    map[peerKey]*peerPorts
	anybody  portCount
	groups   portCount
	networks map[NetworkName]portCount
	prefixes portCount
	spare    int // what prefixes was found to count too much
	sorted   []netip.Prefix
	lengths  [2][129]int // prefixes of a length, by family
}

func (m *PolicyMeter) directions() [2]*directionMeter { return [2]*directionMeter{&m.in, &m.out} }

func (m *PolicyMeter) of(d Direction) *directionMeter {
	if d == Out {
		return &m.out
	}
	return &m.in
}

// NewPolicyMeter returns a meter that counts rules.
func NewPolicyMeter(rules []Rule) *PolicyMeter {
	m := &PolicyMeter{}
	rules = slices.Clone(rules)
	slices.SortFunc(rules, func(a, b Rule) int { return comparePrefixes(a.Addr, b.Addr) }) // then placing them moves none
	for _, r := range rules {
		m.Add(r)
	}
	return m
}

// Add counts a rule.
func (m *PolicyMeter) Add(r Rule) { m.of(r.Direction).change(r, 1) }

// Remove takes back a rule that was added.
func (m *PolicyMeter) Remove(r Rule) { m.of(r.Direction).change(r, -1) }

// Entries bounds the entries and the prefixes of the rules; identities tells
// how many identities the endpoints of a network have.
func (m *PolicyMeter) Entries(identities func(NetworkName) int) (entries, prefixes int) {
	for _, d := range m.directions() {
		e, p := d.named(identities)
		entries, prefixes = entries+e+d.prefixes.entries()-d.spare, prefixes+p+len(d.sorted)
	}
	return entries, prefixes
}

// Check tells whether rules may join those that the meter counts, which present
// lists, and leaves the meter as it was. Otherwise the error, of kind
// ErrExhausted, says what they would take, and fit how many of them fit.
func (m *PolicyMeter) Check(present func() []Rule, joining []Rule, identities func(NetworkName) int) (fit int, err error) {
	fits := func() error {
		entries, prefixes := m.Entries(identities)
		switch {
		case entries > MaxPolicyEntries:
			return Errorf(ErrExhausted, "its rules would take up to %d entries of a host's tables, where an address prefix counts the ports of all prefixes that cover it, and a network's rule each of its groups; at most %d are allowed: name the peers of wide ranges by group, or their ports by protocol (docs/user/limits.md)", entries, MaxPolicyEntries)
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
func (m *PolicyMeter) Recount(rules []Rule) {
	rules = slices.Clone(rules)
	slices.SortFunc(rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(actionRank(a.Action), actionRank(b.Action)),
			cmp.Compare(a.Key.String(), b.Key.String()))
	})
	for i, d := range m.directions() {
		named := map[netip.Prefix][]int{}
		for at, r := range rules {
			if r.Addr.IsValid() && r.Direction == [2]Direction{In, Out}[i] {
				named[r.Addr.Masked()] = append(named[r.Addr.Masked()], at)
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
		d.spare = max(0, d.prefixes.entries()-sum.entries(d.prefixes))
	}
}

// deciding counts the rules of a list that none before them hides.
func deciding(rules []Rule, list []int) (c portCount) {
	slices.Sort(list)
	seen := map[portPair]bool{}
	for _, i := range list {
		q := pairOf(rules[i])
		if !seen[q] {
			seen[q] = true
			c.add(q, 1)
		}
		if q.proto == AnyProtocol {
			break
		}
	}
	return c
}

func pairOf(r Rule) portPair {
	if !r.Protocol.HasPorts() {
		return portPair{proto: r.Protocol}
	}
	return portPair{r.Protocol, r.Port}
}

// named counts the peers that are no prefixes. On a VLAN network the addresses
// of its two subnets are peers beside its identities.
func (d *directionMeter) named(identities func(NetworkName) int) (entries, prefixes int) {
	beside := []portCount{d.groups}
	for _, c := range d.networks {
		beside = append(beside, c)
	}
	entries = d.anybody.entries() + d.groups.entries(beside[1:]...)
	for name, c := range d.networks {
		entries += c.entries(beside...) * (identities(name) + 2)
		prefixes += 2
	}
	return entries, prefixes
}

func (d *directionMeter) change(r Rule, by int) {
	wide := d.prefixes.wide
	k := peerKey{group: r.Group, network: r.Network}
	if r.Addr.IsValid() {
		k.prefix = r.Addr.Masked()
	}
	if d.peers == nil {
		d.peers, d.networks = map[peerKey]*peerPorts{}, map[NetworkName]portCount{}
	}
	own := d.peers[k]
	if own == nil {
		own = &peerPorts{rules: map[portPair]int{}}
		d.peers[k] = own
		if k.prefix.IsValid() {
			d.place(k.prefix, 1)
		}
	}
	q := pairOf(r)
	before := own.rules[q]
	if own.rules[q] += by; own.rules[q] == 0 {
		delete(own.rules, q)
	}
	if (before == 0) != (own.rules[q] == 0) {
		own.sum.add(q, by)
		switch {
		case k.group != "":
			d.groups.add(q, by)
		case k.network != "":
			c := d.networks[k.network]
			if c.add(q, by); c == (portCount{}) {
				delete(d.networks, k.network)
			} else {
				d.networks[k.network] = c
			}
		case k.prefix.IsValid():
			d.prefixes.add(q, by*d.covered(k.prefix))
		default:
			d.anybody.add(q, by)
		}
	}
	if len(own.rules) == 0 {
		delete(d.peers, k)
		if k.prefix.IsValid() {
			d.place(k.prefix, -1)
		}
	}
	for i := range ported {
		if by < 0 || wide[i] == 0 && d.prefixes.wide[i] > 0 { // other ports count otherwise now
			d.spare = 0
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
