package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// moveSubject puts a local port among those whom the same policies apply to, and
// takes it from where it was.
func (c *Compiler) moveSubject(e *endpoint, port bool) {
	var s *subject
	if port {
		s = c.subjectOf(e)
		c.dirtySubjects.add(s)
	}
	if s == e.subject {
		return
	}
	if e.subject != nil {
		delete(e.subject.ports, e)
		c.dirtySubjects.add(e.subject)
	}
	if s != nil {
		s.ports.add(e)
	}
	e.subject = s
}

func (c *Compiler) subjectOf(e *endpoint) *subject {
	k := subjectKey{e.Key.Network, e.Group, e.identity(), e.OfHost()}
	return lookup(c.subjects, k, func() *subject {
		s := &subject{key: k, net: e.net, ports: set[*endpoint]{}}
		t := c.tenant(k.network.Tenant)
		addTo(t.subjects, k.identity, s)
		if k.group != "" {
			s.group = c.group(model.GroupKey{Tenant: t.name, Name: k.group})
			s.group.subjects.add(s)
			c.dirtyGroups.add(s.group)
		}
		return s
	})
}

// dropSubjects forgets the changed subjects that have no ports any more.
func (c *Compiler) dropSubjects() {
	for s := range c.dirtySubjects {
		if len(s.ports) > 0 {
			continue
		}
		delete(c.dirtySubjects, s)
		if c.subjects[s.key] != s {
			continue
		}
		delete(c.subjects, s.key)
		t := c.tenant(s.key.network.Tenant)
		removeFrom(t.subjects, s.key.identity, s)
		c.dirtyTenants.add(t)
		if s.group != nil {
			delete(s.group.subjects, s)
			c.dirtyGroups.add(s.group)
		}
		c.problems.set(s.problemObject(), "")
		c.useSet(s, nil)
	}
}

// compileGroups finds out for the changed groups what attaches policies to
// their ports.
func (c *Compiler) compileGroups() {
	for g := range c.dirtyGroups {
		here := len(g.subjects) > 0
		object := "group " + g.key.String()
		g.active, g.shut, g.fabric = nil, "", segmentOfGroup(g.rec) != (segmentOf{})
		text := ""
		switch {
		case !here || g.fabric:
		case g.rec == nil:
			g.shut, text = "unknown group", "unknown: its ports on this host deny everything"
		default:
			var unknown []string
			for _, name := range slices.Compact(slices.Sorted(slices.Values(g.rec.Policies))) {
				p := c.policies[model.PolicyKey{Tenant: g.key.Tenant, Name: name}]
				if p == nil || p.rec == nil || !p.rec.Attached && p.malformed == "" {
					unknown = append(unknown, string(name))
					continue
				}
				g.active = append(g.active, p)
			}
			text = c.unfabric(g)
			if list := strings.Join(unknown, ","); list != "" {
				g.shut = "unknown policy " + list
				text = "its policy " + list + " is unknown: its ports on this host deny everything"
			}
		}
		c.problems.set(object, text)
		c.profileProblem(g, here)
		noEffect(c, "endpointGroups", g.key.String(), g.rec, here)
		for s := range g.subjects {
			c.dirtySubjects.add(s)
		}
	}
}

// plan says which policies apply to a subject: what its set is made of.
type plan struct {
	enforced, audited []*policy // sorted by key
	shut              string    // why everything is denied instead
	problem           string
	control           *network          // whose control tier its ports have
	ports             []model.NamedPort // those of the subject, where a policy names ports
	apart             *network          // whose tiers keep its ports from other tenants
}

func (c *Compiler) planOf(s *subject) (p plan) {
	if s.group != nil {
		if p.shut = s.group.shut; p.shut != "" {
			return p
		}
		for _, x := range s.group.active {
			p.add(x)
		}
	}
	t := c.tenant(s.key.network.Tenant)
	switch rec := t.records[s.key.identity]; {
	case rec == nil:
		c.planUnknown(s, t, &p)
	case rec.LabelsUnknown() && t.asking > 0:
		p.shut = "labels that are told later"
	default:
		for _, m := range termsOf(rec) {
			for sel := range t.byTerm[m] {
				if sel.ids.Has(rec.ID) {
					p.addAll(sel)
				}
			}
		}
	}
	if p.shut != "" {
		return p
	}
	byName := func(a, b *policy) int { return cmp.Compare(a.key.Name, b.key.Name) }
	slices.SortFunc(p.enforced, byName)
	slices.SortFunc(p.audited, byName)
	p.enforced, p.audited = slices.Compact(p.enforced), slices.Compact(p.audited)
	if !s.key.host && len(c.controlTier(s.net.rec)) > 0 { // the host may command the cluster
		p.control = s.net
	}
	names := func(x *policy) bool { return x.named > 0 }
	if rec := t.records[s.key.identity]; rec != nil && (slices.ContainsFunc(p.enforced, names) || slices.ContainsFunc(p.audited, names)) {
		p.ports = rec.Ports
	}
	if c.routes() && c.shares(t.name) && (s.group == nil || !s.group.fabric) { // no segment is joined
		p.apart = s.net
	}
	return p
}

// planUnknown makes the plan of a subject whose labels are unknown, by its network
// and group: a policy that asks for labels besides may or may not apply, so that
// everything is denied.
func (c *Compiler) planUnknown(s *subject, t *tenant, p *plan) {
	known := model.IdentityRecord{Network: s.key.network, Group: s.key.group}
	for _, sel := range t.selections {
		switch {
		case len(sel.policies) == 0 || !sel.selector.WithoutLabels().Selects(known):
		case sel.selector.AsksForLabels():
			p.shut = cmp.Or(p.shut, "unknown labels")
			p.problem = fmt.Sprintf("the labels of identity %d are unknown, and policies ask for labels: they deny everything", s.key.identity)
		default:
			p.addAll(sel)
		}
	}
}

func (p *plan) addAll(s *selection) {
	for x := range s.policies {
		p.add(x)
	}
}

func (p *plan) add(x *policy) {
	switch {
	case x.malformed != "" && (p.shut == "" || "policy "+string(x.key.Name) < p.shut):
		p.shut = "policy " + string(x.key.Name)
	case x.malformed != "":
	case x.rec.Audit:
		p.audited = append(p.audited, x)
	default:
		p.enforced = append(p.enforced, x)
	}
}

func (s *subject) problemObject() string {
	return fmt.Sprintf("%s with identity %d", s.key, s.key.identity)
}

// compileSubjects gives the changed subjects the sets of the policies that apply
// to them.
func (c *Compiler) compileSubjects() {
	for s := range c.dirtySubjects {
		p := c.planOf(s)
		c.problems.set(s.problemObject(), p.problem)
		next := c.setOf(s, p)
		if next != nil && next == s.set && (next.control != nil || next.apart != nil) {
			c.dirtySets.add(next) // the control plane may be elsewhere, other tenants' networks be others
			for _, a := range next.audits {
				c.dirtySets.add(a)
			}
		}
		c.useSet(s, next)
	}
}

// useSet moves a subject to a set.
func (c *Compiler) useSet(s *subject, next *policySet) {
	if s.set == next {
		return
	}
	old := s.set
	if s.set = next; next != nil {
		next.users.add(s)
	}
	if old != nil {
		delete(old.users, s)
		c.unused.add(old)
	}
	for e := range s.ports {
		c.dirtyEps.add(e)
	}
}
