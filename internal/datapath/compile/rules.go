package compile

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// rules compiles the rules of the policies that sets use.
//
// Takes: marked rules; selections, networks, groups, identities.
// Gives: the compiled rules of policies, and of the sets that have them; marks sets,
// policies.
type rules struct {
	inv           *inventory
	selections    *selections
	problems      *problems
	dirtyRules    *marks[*rule]
	dirtyPolicies *marks[*policy]
	dirtySets     *marks[*policySet]
}

func (rs *rules) compile() {
	for r := range rs.dirtyRules.of {
		if r.policy.compiled {
			rs.compileOne(r)
		}
	}
}

// byPeer resolves named ports for egress rules. The named ports of a peer without a record
// are unknown: a rule that denies or passes then denies all of its ports.
func (rs *rules) byPeer(r *rule, all []*desired.Rule) (out []*desired.Rule) {
	t := rs.inv.tenant(r.key.Tenant)
	for _, x := range all {
		m, named := namedPortOf(x)
		if !named {
			out = append(out, x)
			continue
		}
		with := map[uint16]*desired.Rule{}
		for id := range t.postings[term{termPort, m.Name, ""}] {
			port, ok := t.records[id].PortNamed(m.Name, m.Protocol)
			if !ok || !x.AnyPeer && !x.Identities.Has(id) {
				continue
			}
			if with[port] == nil {
				with[port] = withPortNumber(x, m, port, port)
				with[port].AnyPeer, with[port].CIDRs, with[port].Identities = false, nil, desired.Identities{}
			}
			with[port].Identities = with[port].Identities.With(id)
		}
		if x.Action != model.Allow {
			every := withPortNumber(x, m, 0, 65535)
			if x.Action == model.Pass {
				every.Action = model.Deny
			}
			every.AnyPeer, every.CIDRs, every.Identities = false, nil, desired.Identities{}
			for _, id := range t.compiledOrphans {
				if x.AnyPeer || x.Identities.Has(id) {
					every.Identities = every.Identities.With(id)
				}
			}
			if every.Identities.Len() > 0 {
				with[0] = every
			}
		}
		for _, one := range with {
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b *desired.Rule) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// use compiles a policy's rules when the first set has it, and drops what was
// compiled when the last set is gone.
func (rs *rules) use(p *policy) {
	if used := len(p.sets) > 0; used == p.compiled {
		return
	}
	p.compiled = !p.compiled
	if p.compiled {
		for _, r := range p.rules {
			rs.dirtyRules.add(r)
		}
		return
	}
	for id, r := range p.rules {
		rs.unbind(r, nil)
		if t := rs.inv.tenants[r.key.Tenant]; t != nil {
			delete(t.named, r)
		}
		if r.in, r.out = nil, nil; r.problem {
			r.problem = false
			rs.problems.set("rule "+r.key.String(), "")
		}
		if r.rec == nil {
			delete(p.rules, id)
		}
	}
	p.in, p.out = desired.Rules{}, desired.Rules{}
	rs.dirtyPolicies.add(p)
	rs.inv.dropPolicy(p)
}

// bind takes the selections of a rule's peers, and lets those of its last form go.
func (rs *rules) bind(r *rule) {
	if r.bound == r.rec {
		return
	}
	var peers []*selection
	if r.rec != nil && malformedRule(r.rec) == "" {
		for _, p := range r.rec.Peers {
			switch {
			case p.Selector != nil:
				peers = append(peers, rs.selections.get(*p.Selector))
			case !p.CIDR.IsValid():
				peers = append(peers, rs.selections.get(model.Selector{Tenant: p.Network.Tenant, Network: p.Network.Name}))
			}
			for _, s := range peers {
				s.rules.add(r)
			}
		}
	}
	rs.unbind(r, peers)
	r.bound, r.peers = r.rec, peers
}

// unbind lets the selections of a rule's peers go, but for those to be kept.
func (rs *rules) unbind(r *rule, keep []*selection) {
	for _, s := range r.peers {
		if !slices.Contains(keep, s) {
			delete(s.rules, r)
			rs.selections.release(s)
		}
	}
	r.bound, r.peers, r.seen, r.merged = nil, nil, nil, desired.Identities{}
}

// compileOne compiles a rule and enters it into its policy and the sets that have it.
func (rs *rules) compileOne(r *rule) {
	p := r.policy
	rs.bind(r)
	var in, out []*desired.Rule
	text := ""
	if r.rec != nil {
		next := &desired.Rule{ID: r.key.String(), Priority: p.priority(r.rec.Priority), Action: r.rec.Action, Log: r.rec.Log}
		if why := malformedRule(r.rec); why != "" {
			next.Action, next.AnyPeer = model.Deny, true
			text = why + ": everything is denied in its place"
			in, out = []*desired.Rule{next}, []*desired.Rule{next}
		} else {
			next.Ports = r.rec.Ports
			text = rs.resolvePeers(r, next)
			all := splitNamedPorts(next)
			if unknown := r.unknownPeers(next); unknown != nil {
				all = append(all, splitNamedPorts(unknown)...)
			}
			if r.rec.Direction == model.In {
				in = all
			} else {
				out = rs.byPeer(r, all)
			}
		}
	}
	if namesPorts(r.rec, model.Out) {
		rs.inv.tenant(r.key.Tenant).named.add(r)
	} else if t := rs.inv.tenants[r.key.Tenant]; t != nil {
		delete(t.named, r)
	}
	if text != "" || r.problem {
		rs.problems.set("rule "+r.key.String(), text)
		r.problem = text != ""
	}
	rs.enterRules(r, &r.in, in, model.In)
	rs.enterRules(r, &r.out, out, model.Out)
	if r.rec == nil {
		delete(p.rules, r.key.Rule)
		rs.inv.dropPolicy(p)
	}
}

// enterRules replaces one direction of a rule.
func (rs *rules) enterRules(r *rule, at *[]*desired.Rule, next []*desired.Rule, dir model.Direction) {
	olds := *at
	*at = next
	for _, old := range olds {
		if !slices.ContainsFunc(next, func(x *desired.Rule) bool { return x.ID == old.ID }) {
			rs.enterRule(r.policy, dir, old, nil)
		}
	}
	for i, x := range next {
		var old *desired.Rule
		if n := slices.IndexFunc(olds, func(o *desired.Rule) bool { return o.ID == x.ID }); n >= 0 {
			old = olds[n]
		}
		if old != nil && (old == x || old.Equal(x)) {
			next[i] = old
			continue
		}
		rs.enterRule(r.policy, dir, old, x)
	}
}

func (rs *rules) enterRule(p *policy, dir model.Direction, old, next *desired.Rule) {
	rules := &p.in
	if dir == model.Out {
		rules = &p.out
	}
	if next != nil {
		put(rules, next.ID, next)
	} else {
		put(rules, old.ID, nil)
	}
	for s := range p.sets {
		s.changeRule(p, dir, old, next)
		rs.dirtySets.add(s)
	}
}

func put(rules *desired.Rules, id string, r *desired.Rule) {
	if r == nil {
		*rules = rules.Delete(id)
	} else {
		*rules = rules.Set(id, r)
	}
}

// priority is the rank of a rule in its tier: of its policy's order, and its own.
func (p *policy) priority(of int) int {
	order := 0
	if p.rec != nil {
		order = min(max(p.rec.Order, 0), model.MaxOrder)
	}
	return (model.MaxOrder-order)*100 + min(max(of, 0), 100)
}

// malformedRule says what a rule has that this version does not know.
func malformedRule(r *model.PolicyRule) string {
	switch {
	case r.Direction != model.In && r.Direction != model.Out:
		return fmt.Sprintf("direction %q is not known", r.Direction)
	case !r.Action.IsKnown():
		return fmt.Sprintf("action %q is not known", r.Action)
	}
	for _, m := range r.Ports {
		switch {
		case m.Protocol < model.AnyProtocol || m.Protocol > 255:
			return fmt.Sprintf("protocol %d is not known", int(m.Protocol))
		case !m.Protocol.HasPorts() && (m.Lo != 0 || m.Hi != 65535 || m.Name != ""):
			return fmt.Sprintf("protocol %q has no ports", m.Protocol)
		case m.Lo > m.Hi:
			return fmt.Sprintf("ports %d-%d end before they begin", m.Lo, m.Hi)
		}
	}
	for _, p := range r.Peers {
		switch {
		case p.Selector == nil && !p.CIDR.IsValid() && p.Network == (model.NetworkKey{}):
			return "a kind of peer is not known"
		case p.Selector != nil && malformedSelector(*p.Selector) != "":
			return malformedSelector(*p.Selector)
		}
	}
	return ""
}

// resolvePeers fills in a rule's peers. A peer that is not known makes a rule
// that denies or passes deny any peer, and adds nothing to one that allows.
func (rs *rules) resolvePeers(r *rule, next *desired.Rule) (problem string) {
	next.AnyPeer = len(r.rec.Peers) == 0
	shut := func(what string) {
		problem = what + " is unknown: the rule matches nothing"
		if r.rec.Action != model.Allow {
			problem = what + " is unknown: the rule denies any peer"
			next.Action, next.AnyPeer = model.Deny, true
		}
	}
	now := make([]desired.Identities, 0, len(r.peers))
	for _, p := range r.rec.Peers {
		if p.CIDR.IsValid() && p.Selector == nil {
			cidr := desired.CIDR{Prefix: p.CIDR.Masked()}
			for _, x := range p.Except {
				cidr.Except = append(cidr.Except, x.Masked())
			}
			next.CIDRs = append(next.CIDRs, cidr)
			continue
		}
		s := r.peers[len(now)]
		missing := rs.missing(s.selector)
		if p.Selector == nil && missing == "" {
			missing = rs.networkAddresses(p.Network, next)
		}
		switch {
		case missing != "":
			shut(missing)
			now = append(now, desired.Identities{})
		case r.rec.Action.Denies():
			now = append(now, s.denied)
		default:
			now = append(now, s.ids)
		}
	}
	r.mergeSelections(now)
	if next.AnyPeer {
		next.CIDRs = nil
		return problem
	}
	next.Identities = r.merged
	return problem
}

// unknownPeers returns a rule that denies the peers which a rule that passes may mean; nil =
// there are none. What comes after that in its tier would allow them.
func (r *rule) unknownPeers(pass *desired.Rule) *desired.Rule {
	if pass.Action != model.Pass {
		return nil
	}
	var unknown desired.Identities
	for _, s := range r.peers {
		for _, ids := range [][]model.Identity{s.tenant.compiledOrphans, s.tenant.compiledLater} {
			for _, id := range ids {
				if s.denied.Has(id) && !pass.Identities.Has(id) {
					unknown = unknown.With(id)
				}
			}
		}
	}
	if unknown.Len() == 0 {
		return nil
	}
	deny := *pass
	deny.ID, deny.Action, deny.CIDRs, deny.Identities = pass.ID+" unknown peers", model.Deny, nil, unknown
	return &deny
}

// mergeSelections makes the union of what a rule's selections are now: of one, the very set
// that it has; of several, what it was with what has changed.
func (r *rule) mergeSelections(now []desired.Identities) {
	if len(now) <= 1 {
		r.merged = desired.Identities{}
		for _, s := range now {
			r.merged = s
		}
		return
	}
	if len(r.seen) != len(now) {
		r.seen, r.merged = make([]desired.Identities, len(now)), desired.Identities{}
	}
	for i, s := range now {
		for id, has := range s.Diff(r.seen[i]) {
			if has {
				r.merged = r.merged.With(id)
				continue
			}
			still := false
			for _, other := range now {
				still = still || other.Has(id)
			}
			if !still {
				r.merged = r.merged.Without(id)
			}
		}
	}
	copy(r.seen, now)
}

// missing names the group or network of a selector that is not known, if any.
func (rs *rules) missing(s model.Selector) string {
	if s.Group != "" {
		k := model.GroupKey{Tenant: s.Tenant, Name: s.Group}
		if g := rs.inv.groups[k]; g == nil || g.rec == nil {
			return "group " + k.String()
		}
	}
	if s.Network != "" {
		k := model.NetworkKey{Tenant: s.Tenant, Name: s.Network}
		if n := rs.inv.networks[k]; n == nil || n.rec == nil {
			return "network " + k.String()
		}
	}
	return ""
}

// networkAddresses adds the addresses of a VLAN network's subnets on it, and
// names the network when it has no number.
func (rs *rules) networkAddresses(k model.NetworkKey, out *desired.Rule) (missing string) {
	n := rs.inv.networks[k]
	if n == nil || n.rec == nil || n.rec.ID == 0 {
		return "network " + k.String()
	}
	if n.rec.Encap == model.EncapVLAN {
		at := []model.NetworkID{n.rec.ID}
		for _, name := range slices.Sorted(maps.Keys(n.segments)) {
			at = append(at, n.segments[name].segment.id)
		}
		for _, id := range at {
			for _, p := range []netip.Prefix{n.rec.Subnet, n.rec.Subnet6} {
				if p.IsValid() {
					out.CIDRs = append(out.CIDRs, desired.CIDR{Prefix: p.Masked(), Network: id})
				}
			}
		}
	}
	return ""
}
