package reachability

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// controlPort is a port of an address of the control plane, which hosts' stacks refuse to
// containers.
type controlPort struct {
	port   uint16
	denies *Ruling
}

// controlPlane is what answers to TCP at each address of it.
type controlPlane map[netip.Addr][]controlPort

// SetControl records where the control plane answers to TCP. What ports of containers deny
// by themselves is in the desired state.
func (c *Cluster) SetControl(targets []netip.AddrPort) {
	c.control = controlPlane{}
	byPort := map[uint16]*Ruling{}
	for _, t := range targets {
		if byPort[t.Port()] == nil {
			rule := &desired.Rule{ID: desired.ControlRuleID(t.Port()), Action: model.Deny}
			byPort[t.Port()] = &Ruling{Rule: rule, Tier: desired.TierControl}
		}
		c.control[t.Addr()] = append(c.control[t.Addr()], controlPort{t.Port(), byPort[t.Port()]})
	}
}

// prefixes are its addresses.
func (c controlPlane) prefixes() (out []netip.Prefix) {
	for a := range c {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// deny takes the control plane's ports of an address out of what an endpoint's policy
// allows there.
func (c controlPlane) deny(parts []Part, a netip.Addr) []Part {
	for _, t := range c[a] {
		only := OnePort(model.ProtoTCP, t.port)
		var next []Part
		for _, p := range parts {
			denied := p
			if denied.Ports = p.Ports.And(only); p.Allowed && !denied.Ports.IsEmpty() {
				denied.Allowed, denied.Out = false, t.denies
				next = append(next, denied)
				p.Ports = p.Ports.Without(only)
			}
			if !p.Ports.IsEmpty() {
				next = append(next, p)
			}
		}
		parts = next
	}
	return inOrder(parts)
}
