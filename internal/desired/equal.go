package desired

import "slices"

// Equal compares two networks by contents.
func (n *Network) Equal(o *Network) bool {
	if n == o {
		return true
	}
	return n.ID == o.ID && n.Key == o.Key && n.Encap == o.Encap && n.Tag == o.Tag &&
		n.Subnet == o.Subnet && n.Subnet6 == o.Subnet6 && n.Gateway == o.Gateway && n.Gateway6 == o.Gateway6 &&
		slices.Equal(n.VTEPs, o.VTEPs)
}

// Equal compares two policy sets by contents.
func (s *PolicySet) Equal(o *PolicySet) bool {
	if s == o {
		return true
	}
	return s.ID == o.ID && s.Name == o.Name &&
		slices.EqualFunc(s.In, o.In, Tier.Equal) && slices.EqualFunc(s.Out, o.Out, Tier.Equal)
}

// Equal compares two tiers by contents.
func (t Tier) Equal(o Tier) bool {
	return t.Tier == o.Tier && t.Default == o.Default && slices.EqualFunc(t.Rules, o.Rules, Rule.Equal)
}

// Equal compares two rules by contents.
func (r Rule) Equal(o Rule) bool {
	return r.ID == o.ID && r.Priority == o.Priority && r.Action == o.Action && r.AnyPeer == o.AnyPeer &&
		slices.Equal(r.Identities, o.Identities) && slices.Equal(r.Ports, o.Ports) &&
		slices.EqualFunc(r.CIDRs, o.CIDRs, CIDR.Equal)
}

// Equal compares two address matches by contents.
func (c CIDR) Equal(o CIDR) bool {
	return c.Prefix == o.Prefix && c.Network == o.Network && slices.Equal(c.Except, o.Except)
}
