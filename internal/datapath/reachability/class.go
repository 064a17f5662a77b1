package reachability

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// class is endpoints of which two clusters say the same to and of any other endpoint.
type class struct {
	index int
	keys  []model.EndpointKey
	// samples are the first two of them in each cluster, since an endpoint has no answer about itself.
	samples [2][]*desired.Port
	state   [2]endState
	moved   bool // others' policies may see it differently, or its routes may differ
}

// endState is all of an endpoint that answers depend on.
type endState struct {
	there    bool
	network  model.NetworkID
	identity model.Identity
	policies desired.PolicySetID
	onHost   bool     // it shares the host's network namespace
	bound    [2]int   // by family: the narrowest prefix that has its address
	addr     [2]uint8 // by family: hasAddress, ...
}

// What routes depend on of an endpoint's address.
const (
	hasAddress uint8 = 1 << iota
	ownSubnet        // its network contains it
	leadsHere        // packets to the address are the endpoint's
)

// prefixIndex finds the narrowest of some prefixes around an address.
type prefixIndex struct {
	bits [2][]int // by family, descending
	at   map[netip.Prefix]int
}

func newPrefixIndex(all []netip.Prefix) *prefixIndex {
	x := &prefixIndex{at: map[netip.Prefix]int{}}
	for _, p := range all {
		p = p.Masked()
		if _, has := x.at[p]; has {
			continue
		}
		x.at[p] = len(x.at) + 1
		f := family(p.Addr().Is6())
		if !slices.Contains(x.bits[f], p.Bits()) {
			x.bits[f] = append(x.bits[f], p.Bits())
		}
	}
	for _, b := range x.bits {
		slices.SortFunc(b, func(a, b int) int { return b - a })
	}
	return x
}

func family(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// of returns the number of the prefix; 0 = none.
func (x *prefixIndex) of(a netip.Addr) int {
	for _, bits := range x.bits[family(a.Is6())] {
		if p, err := a.Prefix(bits); err == nil && x.at[p] != 0 {
			return x.at[p]
		}
	}
	return 0
}

// bounds are all prefixes by which answers about endpoints may differ.
func (c *Cluster) bounds() (out []netip.Prefix) {
	for _, n := range c.host.Networks.All() {
		out = append(out, subnetsOf(n)...)
	}
	for _, s := range c.host.PolicySets.All() {
		out = append(append(out, ruleRanges(s, model.In)...), ruleRanges(s, model.Out)...)
	}
	return out
}

func (c *Cluster) stateOf(p *desired.Port, bounds *prefixIndex) (s endState) {
	n := c.NetworkOf(p)
	s = endState{there: true, network: p.Network, identity: p.Identity, policies: p.Policies, onHost: p.OnHost}
	for f, a := range []netip.Addr{p.IPv4, p.IPv6} {
		if !a.IsValid() {
			continue
		}
		s.bound[f], s.addr[f] = bounds.of(a), hasAddress
		if n != nil && n.Contains(a) {
			s.addr[f] |= ownSubnet
		}
		if n != nil && c.byAddress[address{n.Domain(), a}] == p {
			s.addr[f] |= leadsHere
		}
	}
	return s
}

// asPeer is what others' policies and routes depend on of an endpoint.
func (s endState) asPeer() endState {
	s.policies = 0
	return s
}

// classesOf divides the endpoints of two clusters, those of some tenants, into classes.
func classesOf(before, after *Cluster, has func(model.TenantName) bool) (out []*class) {
	networks := changedNetworks(before, after)
	bounds := newPrefixIndex(slices.Concat(before.bounds(), after.bounds()))
	byState := map[[2]endState]*class{}
	enter := func(k model.EndpointKey) {
		if !has(k.Network.Tenant) {
			return
		}
		var s [2]endState
		p, q := before.byKey[k], after.byKey[k]
		if p != nil {
			s[0] = before.stateOf(p, bounds)
		}
		if q != nil {
			s[1] = after.stateOf(q, bounds)
		}
		c := byState[s]
		if c == nil {
			moved := s[0].asPeer() != s[1].asPeer() || networks[s[0].network] || networks[s[1].network]
			c = &class{state: s, moved: moved}
			byState[s], out = c, append(out, c)
		}
		c.keys = append(c.keys, k)
		if p != nil && len(c.samples[0]) < 2 {
			c.samples[0] = append(c.samples[0], p)
		}
		if q != nil && len(c.samples[1]) < 2 {
			c.samples[1] = append(c.samples[1], q)
		}
	}
	for k := range before.byKey {
		enter(k)
	}
	for k := range after.byKey {
		if before.byKey[k] == nil {
			enter(k)
		}
	}
	for _, c := range out {
		slices.SortFunc(c.keys, model.EndpointKey.Compare)
	}
	slices.SortFunc(out, func(a, b *class) int { return a.keys[0].Compare(b.keys[0]) })
	for i, c := range out {
		c.index = i
	}
	return out
}

// changedNetworks are those by which routes may differ.
func changedNetworks(before, after *Cluster) map[model.NetworkID]bool {
	out := map[model.NetworkID]bool{}
	for d := range after.host.Networks.Diff(before.host.Networks) {
		if !d.Had || !d.Has || !d.Old.Equal(d.New) {
			out[d.Key] = true
		}
	}
	return out
}

// end is an endpoint of the class in a cluster, another one than the class's first if second;
// nil = none is there.
func (c *class) end(cluster int, second bool) *desired.Port {
	all := c.samples[cluster]
	switch {
	case second && len(all) > 1:
		return all[1]
	case !second && len(all) > 0:
		return all[0]
	}
	return nil
}

// Classes numbers endpoints: those with one number are alike to every other endpoint, and to all
// addresses outside.
type Classes struct {
	cluster *Cluster
	bounds  *prefixIndex
	numbers map[*desired.Port]int
	states  map[endState]int
}

// Classify returns the Classes of the desired state as it is. Earlier ones (nil = none) go on if the
// prefixes that divide addresses are still the same, as long as no address has moved.
func (c *Cluster) Classify(earlier *Classes) *Classes {
	bounds := newPrefixIndex(c.bounds())
	if earlier != nil && bounds.equal(earlier.bounds) {
		return earlier
	}
	return &Classes{c, bounds, map[*desired.Port]int{}, map[endState]int{}}
}

// equal reports whether two indexes have the same prefixes.
func (x *prefixIndex) equal(o *prefixIndex) bool {
	for p := range x.at {
		if o.at[p] == 0 {
			return false
		}
	}
	return len(x.at) == len(o.at)
}

// Of returns the number of an endpoint's class.
func (x *Classes) Of(p *desired.Port) int {
	n, known := x.numbers[p]
	if !known {
		s := x.cluster.stateOf(p, x.bounds)
		if n, known = x.states[s]; !known {
			n = len(x.states)
			x.states[s] = n
		}
		x.numbers[p] = n
	}
	return n
}

// Permits reports whether the policy of an endpoint lets another one open connections to some of the
// ports, whatever the other one's policy says.
func (x *Classes) Permits(to, from *desired.Port, ports Ports) bool {
	for _, a := range []netip.Addr{from.IPv4, from.IPv6} {
		peer := desired.Peer{Identity: from.Identity, Addr: a, Network: from.Network}
		if a.IsValid() && !passing(x.cluster.judge(to, model.In, peer)).And(ports).IsEmpty() {
			return true
		}
	}
	return false
}
