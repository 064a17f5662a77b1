package compile

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// tierControl keeps containers from the control plane before any policy.
const tierControl model.Tier = 1

// SetControl records where the control plane answers to TCP, nothing = nowhere.
// Containers of VLAN networks that reach it past their host, by the physical
// network, are denied it by their ports; the host's own stack denies it to all
// others. The host's own endpoint is no container: its netplugin may have no other way.
func (c *Compiler) SetControl(targets []netip.AddrPort) {
	targets = slices.Clone(targets)
	slices.SortFunc(targets, netip.AddrPort.Compare)
	targets = slices.Compact(targets)
	if slices.Equal(targets, c.control) {
		return
	}
	c.control = targets
	for _, s := range c.subjects {
		c.dirtySubjects.add(s)
	}
}

// controlTier denies the control plane's addresses that the ports on a network reach
// without passing through their host's stack; it is empty where there are none.
func (c *Compiler) controlTier(n *model.Network) []desired.Tier {
	if n == nil || n.Encap != model.EncapVLAN {
		return nil
	}
	byPort := map[uint16][]desired.CIDR{}
	for _, t := range c.control {
		// Without a gateway IPv4 leads out by the host.
		if a := t.Addr(); a.Is6() || n.Gateway.IsValid() || n.Subnet.Contains(a) {
			byPort[t.Port()] = append(byPort[t.Port()], desired.CIDR{Prefix: netip.PrefixFrom(a, a.BitLen())})
		}
	}
	if len(byPort) == 0 {
		return nil
	}
	tier := desired.Tier{Tier: tierControl, Default: model.Pass}
	for port, cidrs := range byPort {
		r := &desired.Rule{
			ID: fmt.Sprintf("control-plane/%d", port), Priority: 100, Action: model.Deny, CIDRs: cidrs,
			Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: port, Hi: port}},
		}
		tier.Rules = tier.Rules.Set(r.ID, r)
	}
	return []desired.Tier{tier}
}
