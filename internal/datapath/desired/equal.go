package desired

import "slices"

// Equal compares two networks by contents.
func (n *Network) Equal(o *Network) bool {
	if n == o {
		return true
	}
	return n.ID == o.ID && n.Key == o.Key && n.Group == o.Group && n.Encap == o.Encap && n.Tag == o.Tag &&
		n.Subnet == o.Subnet && n.Subnet6 == o.Subnet6 && n.Gateway == o.Gateway && n.Gateway6 == o.Gateway6 && n.Joined == o.Joined && n.Routed == o.Routed && n.ByTenant == o.ByTenant &&
		slices.Equal(n.VTEPs, o.VTEPs)
}

// Equal compares two policy sets by contents.
func (s *PolicySet) Equal(o *PolicySet) bool {
	if s == o {
		return true
	}
	return s.ID == o.ID && s.Name == o.Name && s.Audited == o.Audited &&
		slices.EqualFunc(s.In, o.In, Tier.Equal) && slices.EqualFunc(s.Out, o.Out, Tier.Equal) &&
		slices.Equal(s.Audits, o.Audits)
}

// Equal compares two tiers by contents. What they share costs nothing.
func (t Tier) Equal(o Tier) bool {
	if t.Tier != o.Tier || t.Default != o.Default || t.DefaultOf != o.DefaultOf || t.Rules.Len() != o.Rules.Len() {
		return false
	}
	for c := range t.Rules.Diff(o.Rules) {
		if !c.Had || !c.Has || !c.Old.Equal(c.New) {
			return false
		}
	}
	return true
}

// Equal compares two rules by contents.
func (r *Rule) Equal(o *Rule) bool {
	if r == o {
		return true
	}
	return r.ID == o.ID && r.Priority == o.Priority && r.Action == o.Action && r.Log == o.Log && r.AnyPeer == o.AnyPeer &&
		r.Identities.Equal(o.Identities) && slices.Equal(r.Ports, o.Ports) &&
		slices.EqualFunc(r.CIDRs, o.CIDRs, CIDR.Equal)
}

// Equal compares two address matches by contents.
func (c CIDR) Equal(o CIDR) bool {
	return c.Prefix == o.Prefix && c.Network == o.Network && slices.Equal(c.Except, o.Except)
}
