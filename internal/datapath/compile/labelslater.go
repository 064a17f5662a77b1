package compile

import (
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Of an endpoint whose labels are told later (model.IdentityRecord.LabelsLater) its
// network and group are known. Selectors that ask for labels do not select it, but
// rules that deny by one take it for a peer, as far as network and group allow. Its
// own ports are shut while any policy of its tenant asks for labels: other hosts may
// learn the labels a moment later than this one.

// AsksForLabels tells whether a policy of a tenant selects by labels.
func (c *Compiler) AsksForLabels(name model.TenantName) bool {
	t := c.tenants[name]
	return t != nil && t.asking > 0
}

func policyAsks(p *model.Policy) bool { return p != nil && p.Applies.AsksForLabels() }

func ruleAsks(r *model.PolicyRule) bool {
	return r != nil && slices.ContainsFunc(r.Peers, func(p model.Peer) bool {
		return p.Selector != nil && p.Selector.AsksForLabels()
	})
}

// ask follows whether one of a tenant's policies or rules asks for labels.
func (c *Compiler) ask(name model.TenantName, before, now bool) {
	if before == now {
		return
	}
	t := c.tenant(name)
	first := t.asking == 0
	if now {
		t.asking++
	} else {
		t.asking--
	}
	if first || t.asking == 0 {
		for id := range t.later {
			c.touchIdentity(t, id)
		}
		c.dirtyTenants.add(t)
	}
}

// touchIdentity has the policies of an identity's ports looked at again.
func (c *Compiler) touchIdentity(t *tenant, id model.Identity) {
	for s := range t.subjects[id] {
		c.dirtySubjects.add(s)
	}
}
