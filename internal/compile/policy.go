package compile

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// compileGroups brings the policy sets of the changed groups up to date and
// returns the ports whose set has got another number.
func (c *Compiler) compileGroups(before desired.Host) set[*endpoint] {
	left := set[*policy]{} // policies that lost a user
	old := map[*group]*desired.PolicySet{}
	for g := range c.dirtyGroups {
		var uses []*policy
		if g.rec != nil && len(g.ports) > 0 {
			names := slices.Compact(slices.Sorted(slices.Values(g.rec.Policies)))
			for _, name := range names {
				uses = append(uses, c.policy(model.PolicyKey{Tenant: g.key.Tenant, Name: name}))
			}
		}
		for _, p := range g.active {
			delete(p.users, g)
			left.add(p)
		}
		for _, p := range uses {
			p.users.add(g)
		}
		g.active = uses
		noEffect(c, "endpointGroups", g.key.String(), g.rec, len(g.ports) > 0)
		old[g] = g.set
		g.set = c.groupSet(g)
		if g.set != nil {
			c.withSet.add(g)
		} else {
			delete(c.withSet, g)
		}
	}
	for p := range left {
		if len(p.users) == 0 {
			c.dropCompiled(p)
			c.prunePolicy(p)
		}
	}
	return c.numberSets(before, old)
}

// numberSets gives each policy set its number: a hash of its name, or the next
// free one when a set with a smaller name has that. So numbers depend on the
// present sets only, and hardly ever change.
func (c *Compiler) numberSets(before desired.Host, old map[*group]*desired.PolicySet) set[*endpoint] {
	touched := set[*endpoint]{}
	renumber := false
	for g, was := range old {
		if (was == nil) != (g.set == nil) || was != nil && was.Name != g.set.Name {
			renumber = true
			for e := range g.ports {
				touched.add(e)
			}
		}
	}
	if renumber {
		groups := slices.SortedFunc(maps.Keys(c.withSet), func(a, b *group) int { return cmp.Compare(a.set.Name, b.set.Name) })
		taken := set[desired.PolicySetID]{}
		for _, g := range groups {
			id := freeSetID(setHash(g.set.Name), taken)
			taken.add(id)
			if g.set.ID == id {
				continue
			}
			if _, changed := old[g]; !changed {
				old[g] = g.set
			}
			moved := *g.set
			moved.ID, g.set = id, &moved
			for e := range g.ports {
				touched.add(e)
			}
		}
	} else {
		for g, was := range old {
			if g.set != nil {
				g.set.ID = was.ID
			}
		}
	}
	for _, was := range old {
		if was != nil {
			c.out.PolicySets = c.out.PolicySets.Delete(was.ID)
		}
	}
	for g := range old {
		if g.set == nil {
			continue
		}
		if same, ok := before.PolicySets.Get(g.set.ID); ok && same.Equal(g.set) {
			g.set = same
		}
		c.out.PolicySets = c.out.PolicySets.Set(g.set.ID, g.set)
	}
	return touched
}

// setHash is a variable so that a test can make collisions.
var setHash = func(name string) desired.PolicySetID {
	h := fnv.New32a()
	h.Write([]byte(name))
	return desired.PolicySetID(h.Sum32())
}

func freeSetID(id desired.PolicySetID, taken set[desired.PolicySetID]) desired.PolicySetID {
	for {
		if _, used := taken[id]; !used && id != 0 {
			return id
		}
		id++
	}
}

// groupSet compiles the whole policy of a group's ports, without its number;
// nil when none applies. What it cannot compile denies everything.
func (c *Compiler) groupSet(g *group) *desired.PolicySet {
	object := "group " + g.key.String()
	if len(g.ports) == 0 {
		c.problems.set(object, "")
		return nil
	}
	control := c.controlTier(g)
	if g.standsForNone() {
		if control == nil {
			return nil
		}
		return &desired.PolicySet{Name: setName(g.key, "control plane"), Out: control}
	}
	if g.rec == nil {
		c.problems.set(object, "unknown: its ports on this host deny everything")
		return denySet(g.key, "unknown group")
	}
	var names, unknown []string
	for _, p := range g.active {
		c.compilePolicy(p) // also when another one is missing: its problems count
		names = append(names, string(p.key.Name))
		if !p.known {
			unknown = append(unknown, string(p.key.Name))
		}
	}
	if len(unknown) > 0 {
		list := strings.Join(unknown, ",")
		c.problems.set(object, "its policy "+list+" is unknown: its ports on this host deny everything")
		return denySet(g.key, "unknown policy "+list)
	}
	c.problems.set(object, "")
	if control != nil {
		names = append(names, "control plane")
	}
	if len(names) == 0 {
		return nil
	}
	var in, out desired.Rules
	for _, p := range g.active {
		for _, r := range p.in {
			in = in.Set(r.ID, r)
		}
		for _, r := range p.out {
			out = out.Set(r.ID, r)
		}
	}
	return &desired.PolicySet{
		Name: setName(g.key, strings.Join(names, ",")),
		In:   contivTier(in),
		Out:  append(control, contivTier(out)...),
	}
}

// setName is the canonical name of a set: subject, then what applies to it.
func setName(g model.GroupKey, what string) string { return g.String() + "/" + what }

func denySet(g model.GroupKey, why string) *desired.PolicySet {
	tier := []desired.Tier{{
		Tier:    model.TierContiv,
		Rules:   desired.RulesOf(desired.Rule{ID: "shut/" + g.String(), Priority: 100, Action: model.Deny, AnyPeer: true}),
		Default: model.Deny,
	}}
	return &desired.PolicySet{Name: setName(g, why), In: tier, Out: tier}
}

// contivTier makes the one tier of Contiv policies: what no rule matches goes on.
func contivTier(rules desired.Rules) []desired.Tier {
	if rules.Len() == 0 {
		return nil
	}
	return []desired.Tier{{Tier: model.TierContiv, Rules: rules, Default: model.Pass}}
}

func (c *Compiler) dropCompiled(p *policy) {
	for _, object := range p.problems {
		c.problems.set(object, "")
	}
	p.compiled, p.problems, p.in, p.out = false, nil, nil, nil
}

// compilePolicy compiles a policy's rules unless they are up to date.
func (c *Compiler) compilePolicy(p *policy) {
	if p.compiled {
		return
	}
	c.dropCompiled(p)
	p.compiled = true
	var rules []model.Rule
	for _, r := range p.rules {
		if why := malformed(r); why != "" {
			object := "rule " + r.Key.String()
			c.problems.set(object, why+": everything is denied in its place")
			p.problems = append(p.problems, object)
			shut := &desired.Rule{ID: r.Key.String(), Priority: r.Priority, Action: model.Deny, AnyPeer: true}
			p.in, p.out = append(p.in, shut), append(p.out, shut)
			continue
		}
		rules = append(rules, *r)
	}
	for _, r := range model.ContivToPolicy(p.key, model.GroupKey{Tenant: p.key.Tenant}, rules).Rules {
		rule, unknown := c.compileRule(p.key.Tenant, r)
		if unknown != "" {
			object := "rule " + r.ID
			c.problems.set(object, unknown)
			p.problems = append(p.problems, object)
		}
		if r.Direction == model.In {
			p.in = append(p.in, &rule)
		} else {
			p.out = append(p.out, &rule)
		}
	}
}

// malformed says what a rule has that this version does not know.
func malformed(r *model.Rule) string {
	switch {
	case r.Direction != model.In && r.Direction != model.Out:
		return fmt.Sprintf("direction %q is not known", r.Direction)
	case r.Action != model.Allow && r.Action != model.Deny:
		return fmt.Sprintf("action %q is not known", r.Action)
	case r.Protocol < model.AnyProtocol || r.Protocol > 255:
		return fmt.Sprintf("protocol %d is not known", int(r.Protocol))
	case r.Port != 0 && !r.Protocol.HasPorts():
		return fmt.Sprintf("protocol %q has no ports", r.Protocol)
	}
	return ""
}

// compileRule resolves a rule's peers. A peer that is not known makes a rule
// that denies match any peer, and adds nothing to one that allows.
func (c *Compiler) compileRule(tenant model.TenantName, r model.PolicyRule) (out desired.Rule, problem string) {
	out = desired.Rule{ID: r.ID, Priority: r.Priority, Action: r.Action, AnyPeer: len(r.Peers) == 0, Ports: r.Ports}
	ids := set[model.Identity]{}
	for _, peer := range r.Peers {
		unknown := ""
		switch {
		case peer.Selector != nil:
			unknown = c.selectPeers(*peer.Selector, ids)
		case peer.CIDR.IsValid():
			cidr := desired.CIDR{Prefix: peer.CIDR.Masked()}
			for _, x := range peer.Except {
				cidr.Except = append(cidr.Except, x.Masked())
			}
			out.CIDRs = append(out.CIDRs, cidr)
		default:
			unknown = c.networkPeers(peer.Network, ids, &out)
		}
		if unknown == "" {
			continue
		}
		if r.Action == model.Deny {
			out.AnyPeer = true
			problem = unknown + " is unknown: the rule denies any peer"
		} else {
			problem = unknown + " is unknown: the rule matches nothing"
		}
	}
	if r.Action == model.Deny && len(r.Peers) > 0 {
		if t := c.tenants[tenant]; t != nil && slices.ContainsFunc(r.Peers, func(p model.Peer) bool { return !p.CIDR.IsValid() }) {
			for _, id := range t.compiledOrphans {
				ids.add(id)
			}
		}
	}
	if out.AnyPeer {
		out.CIDRs = nil
	} else {
		out.Identities = desired.IdentitiesOf(slices.Collect(maps.Keys(ids))...)
	}
	return out, problem
}

// selectPeers adds the identities that a selector selects, and names the
// reference that is missing, if any.
func (c *Compiler) selectPeers(s model.Selector, ids set[model.Identity]) (missing string) {
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
	t := c.tenants[s.Tenant]
	if t == nil {
		return ""
	}
	add := func(id model.Identity) {
		if s.Selects(*t.records[id]) {
			ids.add(id)
		}
	}
	switch {
	case s.Group != "":
		for id := range t.byPeer[peerRef{tenant: s.Tenant, group: s.Group}] {
			add(id)
		}
	case s.Network != "":
		for id := range t.byPeer[peerRef{tenant: s.Tenant, network: s.Network}] {
			add(id)
		}
	default:
		for id := range t.records {
			add(id)
		}
	}
	return ""
}

// networkPeers adds the identities of a network's endpoints and, when it is a
// VLAN network, the addresses of its subnets on it.
func (c *Compiler) networkPeers(k model.NetworkKey, ids set[model.Identity], out *desired.Rule) (missing string) {
	n := c.networks[k]
	if n == nil || n.rec == nil || n.rec.ID == 0 {
		return "network " + k.String()
	}
	if t := c.tenants[k.Tenant]; t != nil {
		for id := range t.byPeer[peerRef{tenant: k.Tenant, network: k.Name}] {
			ids.add(id)
		}
	}
	if n.rec.Encap == model.EncapVLAN {
		for _, p := range []netip.Prefix{n.rec.Subnet, n.rec.Subnet6} {
			if p.IsValid() {
				out.CIDRs = append(out.CIDRs, desired.CIDR{Prefix: p.Masked(), Network: n.rec.ID})
			}
		}
	}
	return ""
}
