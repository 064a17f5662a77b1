package reachability

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Compare returns the connections of some tenants' endpoints, with each other and with
// addresses outside, that one of two clusters allows and the other does not. The cost grows with
// the policy sets and endpoints that differ. At most most pairs of endpoints are judged that are
// not alike: beyond it fails with model.ErrInvalid. It ends early with the error of ctx.
func Compare(ctx context.Context, before, after *Cluster, has func(model.TenantName) bool, most int) ([]Difference, error) {
	x := &comparison{
		ended: ctx.Err, clusters: [2]*Cluster{before, after}, classes: classesOf(before, after, has), left: most,
		changes: map[setsKey]*setChange{}, seen: map[[2]int]bool{}, table: table{cells: map[differenceKey]*cell{}},
	}
	x.joins = len(changedNetworks(before, after)) > 0 || !slices.Equal(natSubnets(before.host.HostNAT), natSubnets(after.host.HostNAT))
	for _, c := range x.classes {
		if err := x.compareClass(c); err != nil {
			return nil, err
		}
	}
	x.compareOutside()
	if err := x.ended(); err != nil {
		return nil, err
	}
	return x.table.list(), nil
}

type comparison struct {
	ended    func() error // of the context
	clusters [2]*Cluster
	classes  []*class
	changes  map[setsKey]*setChange
	seen     map[[2]int]bool // pairs of classes, which are not compared again
	joins    bool            // networks, or the addresses that hosts use for containers, differ
	left     int             // pairs that may still be judged
	table    table
}

// setsKey names the policy sets that endpoints have in both clusters.
type setsKey [2]desired.PolicySetID

// setChange is a change of policy sets.
type setChange struct {
	differs map[model.Direction]bool
	peers   map[model.Direction][]*class // of which it decides differently; none that is moved
}

func (x *comparison) compareClass(c *class) error {
	for _, dir := range []model.Direction{model.Out, model.In} {
		peers := x.classes
		if !c.moved {
			peers = x.change(c).peers[dir]
		}
		for _, peer := range peers {
			from, to := c, peer
			if dir == model.In {
				from, to = peer, c
			}
			if err := x.comparePair(from, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// change returns how the policy sets of a class differ, in both clusters.
func (x *comparison) change(c *class) *setChange {
	b, a := c.end(0, false), c.end(1, false)
	if b == nil || a == nil {
		return &setChange{}
	}
	key := setsKey{b.Policies, a.Policies}
	ch := x.changes[key]
	if ch != nil {
		return ch
	}
	ch = &setChange{differs: map[model.Direction]bool{}, peers: map[model.Direction][]*class{}}
	x.changes[key] = ch
	for _, dir := range []model.Direction{model.Out, model.In} {
		rules, all := changedRules(x.clusters[0].setOf(b), x.clusters[1].setOf(a), dir)
		all = all || (b.Policies == 0) != (a.Policies == 0)
		if ch.differs[dir] = all || len(rules) > 0; !ch.differs[dir] {
			continue
		}
		for _, peer := range x.classes {
			if !peer.moved && x.ended() == nil && x.decidesDifferently(b, a, peer, dir, rules, all) {
				ch.peers[dir] = append(ch.peers[dir], peer)
			}
		}
	}
	return ch
}

// decidesDifferently reports whether the policy of an endpoint allows a peer other ports in one
// cluster than in the other. If not all, only some rules differ.
func (x *comparison) decidesDifferently(before, after *desired.Port, peer *class, dir model.Direction, rules []*desired.Rule, all bool) bool {
	p := peer.end(0, false)
	if p == nil {
		return false
	}
	for _, addr := range []netip.Addr{p.IPv4, p.IPv6} {
		as := desired.Peer{Identity: p.Identity, Addr: addr, Network: p.Network}
		if !addr.IsValid() || !all && !slices.ContainsFunc(rules, func(r *desired.Rule) bool { return r.MatchesPeer(as) }) {
			continue
		}
		if !passing(x.clusters[0].judge(before, dir, as)).Equal(passing(x.clusters[1].judge(after, dir, as))) {
			return true
		}
	}
	return false
}

// passing is what one end allows.
func passing(all []ruled) Ports {
	var spans []span
	for _, r := range all {
		if r.Pass {
			spans = append(spans, r.ports.spans...)
		}
	}
	return normal(spans)
}

// setOf returns the policy set of an endpoint; nil = none, or it is not compiled.
func (c *Cluster) setOf(p *desired.Port) *desired.PolicySet {
	s, _ := c.host.PolicySets.Get(p.Policies)
	return s
}

// ChangedSets are the policy sets that differ in two desired states, by the direction in which they do.
func ChangedSets(before, after desired.Host) map[model.Direction]map[desired.PolicySetID]bool {
	out := map[model.Direction]map[desired.PolicySetID]bool{model.In: {}, model.Out: {}}
	for d := range after.PolicySets.Diff(before.PolicySets) {
		for dir, ids := range out {
			if rules, all := changedRules(d.Old, d.New, dir); all || len(rules) > 0 {
				ids[d.Key] = true
			}
		}
	}
	return out
}

// changedRules are the rules of a direction in which two policy sets differ, or all: more than
// rules differs.
func changedRules(before, after *desired.PolicySet, dir model.Direction) (rules []*desired.Rule, all bool) {
	if before == nil || after == nil || before == after {
		return nil, before != after
	}
	b, a := before.Tiers(dir), after.Tiers(dir)
	if len(b) != len(a) {
		return nil, true
	}
	for i := range b {
		if b[i].Tier != a[i].Tier || b[i].Default != a[i].Default {
			return nil, true
		}
		for d := range a[i].Rules.Diff(b[i].Rules) {
			if d.Had && d.Has && d.Old.Equal(d.New) {
				continue
			}
			if d.Had {
				rules = append(rules, d.Old)
			}
			if d.Has {
				rules = append(rules, d.New)
			}
		}
	}
	return rules, false
}

// comparePair compares the connections from each of a class to each of another.
func (x *comparison) comparePair(from, to *class) error {
	pair := [2]int{from.index, to.index}
	if err := x.ended(); err != nil || x.seen[pair] {
		return err
	}
	x.seen[pair] = true
	for _, v6 := range []bool{false, true} {
		var ends [2]struct{ from, to *desired.Port }
		var answers [2]Answer
		routed := false
		for i, c := range x.clusters {
			f, t := from.end(i, false), to.end(i, from == to)
			ends[i].from, ends[i].to = f, t
			answers[i] = Answer{Route: RouteNone, Gap: GapEndpoint}
			if f != nil && t != nil {
				answers[i].Route, answers[i].Gap = c.routeBetween(f, t, f.Addr(v6), t.Addr(v6))
				routed = routed || answers[i].Route != RouteNone
			}
		}
		if !routed {
			continue
		}
		if x.left--; x.left < 0 {
			return model.Errorf(model.ErrInvalid, "it concerns more pairs of endpoints than can be compared at once: plan fewer objects at a time")
		}
		for i, c := range x.clusters {
			if answers[i].Route != RouteNone {
				answers[i] = c.Between(ends[i].from, ends[i].to, v6)
			}
		}
		for _, p := range pieces(answers[0], answers[1]) {
			x.table.cell(differenceKey{v6: v6}, p, nil).add(from, to)
		}
	}
	return nil
}

// outsideState is all of an endpoint that answers about addresses outside depend on.
type outsideState struct {
	there, unknown, onHost bool
	network                model.NetworkID
	policies               desired.PolicySetID
	addr                   [2]bool
}

func (s endState) outside() outsideState {
	return outsideState{s.there, s.identity == model.IdentityUnknown, s.onHost, s.network, s.policies, [2]bool{s.addr[0] != 0, s.addr[1] != 0}}
}

// compareOutside compares the connections of endpoints with all addresses outside.
func (x *comparison) compareOutside() {
	type outsideDifference struct {
		key      differenceKey
		piece    piece
		prefixes []netip.Prefix
	}
	known := map[[2]outsideState][]outsideDifference{}
	for _, c := range x.classes {
		key := [2]outsideState{c.state[0].outside(), c.state[1].outside()}
		found, has := known[key]
		if !has {
			for _, dir := range []model.Direction{model.Out, model.In} {
				if key[0] == key[1] && !x.joins && !x.change(c).differs[dir] {
					continue
				}
				for _, all := range everywhere {
					for _, d := range x.outside(c, dir, all) {
						found = append(found, outsideDifference{differenceKey{v6: all.Addr().Is6(), outside: dir}, d.piece, d.prefixes})
					}
				}
			}
			known[key] = found
		}
		for _, d := range found {
			x.table.cell(d.key, d.piece, d.prefixes).add(c, nil)
		}
	}
}

// everywhere is all addresses.
var everywhere = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// outsidePiece is a piece with the prefixes that it is about.
type outsidePiece struct {
	piece
	prefixes []netip.Prefix
}

// outside returns in what two clusters differ about an endpoint and the addresses of a prefix.
func (x *comparison) outside(c *class, dir model.Direction, there netip.Prefix) (out []outsidePiece) {
	type answer struct {
		pieces []piece
		key    string
		routed bool
	}
	bounds := slices.Clone(desired.Blackhole)
	for i, cl := range x.clusters {
		if p := c.end(i, false); p != nil {
			bounds = slices.Concat(bounds, cl.subnets(cl.NetworkOf(p)), natSubnets(cl.host.HostNAT), cl.prefixes(p, dir))
			if dir == model.Out {
				bounds = append(bounds, cl.control.prefixes()...)
			}
		}
	}
	at := func(a netip.Addr) (r answer) {
		if x.ended() != nil { // nothing of it is returned
			return r
		}
		var answers [2]Answer
		for i, cl := range x.clusters {
			answers[i] = Answer{Route: RouteNone, Gap: GapEndpoint}
			if p := c.end(i, false); p != nil {
				answers[i] = cl.outsideAt(p, dir, a)
			}
			r.routed = r.routed || answers[i].Route != RouteNone
		}
		r.pieces = pieces(answers[0], answers[1])
		for _, p := range r.pieces {
			r.key += fmt.Sprint(p.why(), p.ports.spans)
		}
		return r
	}
	merge := func(a, b answer) (answer, bool) { // addresses without a route do not divide prefixes
		switch {
		case !a.routed:
			return b, true
		case !b.routed:
			return a, true
		}
		return a, a.key == b.key
	}
	taken := func(a netip.Addr) bool { // an endpoint's, of which compareClass says more
		for i, cl := range x.clusters {
			if p := c.end(i, false); p != nil && cl.byAddress.takenIn(cl.NetworkOf(p))(a) {
				return true
			}
		}
		return false
	}
	for _, part := range splitBeside(there, bounds, taken, at, merge) {
		for _, p := range part.answer.pieces {
			i := slices.IndexFunc(out, func(o outsidePiece) bool { return o.why() == p.why() && o.ports.Equal(p.ports) })
			if i < 0 {
				i, out = len(out), append(out, outsidePiece{piece: p})
			}
			out[i].prefixes = append(out[i].prefixes, part.prefix)
		}
	}
	return out
}
