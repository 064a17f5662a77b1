package compile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// bind takes the selections of a rule's peers, and lets those of its last form go.
func (c *Compiler) bind(r *rule) {
	if r.bound == r.rec {
		return
	}
	var peers []*selection
	if r.rec != nil && malformedRule(r.rec) == "" {
		for _, p := range r.rec.Peers {
			switch {
			case p.Selector != nil:
				peers = append(peers, c.selection(*p.Selector))
			case !p.CIDR.IsValid():
				peers = append(peers, c.selection(model.Selector{Tenant: p.Network.Tenant, Network: p.Network.Name}))
			}
			for _, s := range peers {
				s.rules.add(r)
			}
		}
	}
	c.unbind(r, peers)
	r.bound, r.peers = r.rec, peers
}

// unbind lets the selections of a rule's peers go, but for those to be kept.
func (c *Compiler) unbind(r *rule, keep []*selection) {
	for _, s := range r.peers {
		if !slices.Contains(keep, s) {
			delete(s.rules, r)
			c.release(s)
		}
	}
	r.bound, r.peers, r.seen, r.union = nil, nil, nil, desired.Identities{}
}

// compileRule compiles a rule anew and enters it into its policy and the sets
// that have it.
func (c *Compiler) compileRule(r *rule) {
	p := r.policy
	c.bind(r)
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
			if text = c.resolvePeers(r, next); r.rec.Direction == model.In {
				in = byName(next)
			} else {
				out = c.byPeer(r, byName(next))
			}
		}
	}
	if namesPorts(r.rec, model.Out) {
		c.tenant(r.key.Tenant).named.add(r)
	} else if t := c.tenants[r.key.Tenant]; t != nil {
		delete(t.named, r)
	}
	if text != "" || r.problem {
		c.problems.set("rule "+r.key.String(), text)
		r.problem = text != ""
	}
	c.enterRules(r, &r.in, in, model.In)
	c.enterRules(r, &r.out, out, model.Out)
	if r.rec == nil {
		delete(p.rules, r.key.Rule)
		c.prunePolicy(p)
	}
}

// enterRules replaces one direction of a rule.
func (c *Compiler) enterRules(r *rule, at *[]*desired.Rule, next []*desired.Rule, dir model.Direction) {
	olds := *at
	*at = next
	for _, old := range olds {
		if !slices.ContainsFunc(next, func(x *desired.Rule) bool { return x.ID == old.ID }) {
			c.enterRule(r.policy, dir, old, nil)
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
		c.enterRule(r.policy, dir, old, x)
	}
}

func (c *Compiler) enterRule(p *policy, dir model.Direction, old, next *desired.Rule) {
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
		c.dirtySets.add(s)
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
	case !knownAction(r.Action):
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
func (c *Compiler) resolvePeers(r *rule, next *desired.Rule) (problem string) {
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
		missing := c.missing(s.selector)
		if p.Selector == nil && missing == "" {
			missing = c.networkAddresses(p.Network, next)
		}
		switch {
		case missing != "":
			shut(missing)
			now = append(now, desired.Identities{})
		case r.rec.Action == model.Deny:
			now = append(now, s.denied)
		case r.rec.Action == model.Pass && len(s.tenant.compiledOrphans) > 0:
			next.Action = model.Deny // or what comes after it in its tier would allow whom it should have passed on
			now = append(now, s.denied)
		default:
			now = append(now, s.ids)
		}
	}
	r.unite(now)
	if next.AnyPeer {
		next.CIDRs = nil
		return problem
	}
	next.Identities = r.union
	return problem
}

// unite makes the union of what a rule's selections are now: of one, the very set
// that it has; of several, what it was with what has changed.
func (r *rule) unite(now []desired.Identities) {
	if len(now) <= 1 {
		r.union = desired.Identities{}
		for _, s := range now {
			r.union = s
		}
		return
	}
	if len(r.seen) != len(now) {
		r.seen, r.union = make([]desired.Identities, len(now)), desired.Identities{}
	}
	for i, s := range now {
		for id, has := range s.Diff(r.seen[i]) {
			if has {
				r.union = r.union.With(id)
				continue
			}
			still := false
			for _, other := range now {
				still = still || other.Has(id)
			}
			if !still {
				r.union = r.union.Without(id)
			}
		}
	}
	copy(r.seen, now)
}

// missing names the group or network of a selector that is not known, if any.
func (c *Compiler) missing(s model.Selector) string {
	if s.Group != "" {
		k := model.GroupKey{Tenant: s.Tenant, Name: s.Group}
		if g := c.groups[k]; g == nil || g.rec == nil {
			return "group " + k.String()
		}
	}
	if s.Network != "" {
		k := model.NetworkKey{Tenant: s.Tenant, Name: s.Network}
		if n := c.networks[k]; n == nil || n.rec == nil {
			return "network " + k.String()
		}
	}
	return ""
}

// networkAddresses adds the addresses of a VLAN network's subnets on it, and
// names the network when it has no number.
func (c *Compiler) networkAddresses(k model.NetworkKey, out *desired.Rule) (missing string) {
	n := c.networks[k]
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
