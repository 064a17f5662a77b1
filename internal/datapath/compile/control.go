package compile

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// ControlPlane has the addresses of the control plane, which containers must not reach.
//
// Takes: these addresses; infra networks.
// Gives: the tier that denies them to the ports on a network; whether it has changed.
type ControlPlane struct {
	targets []netip.AddrPort // sorted
	infra   set[*network]    // infra networks
	changed bool             // since the last Compile
}

// Set records where the control plane answers to TCP, nothing = nowhere.
// Containers that reach it past the interface of their host's stack are denied it by their
// ports: by the physical network (VLAN networks), and at the interfaces that hosts have on
// infra networks. The host's own stack denies it to all others. The host's own endpoint is
// no container: its netplugin may have no other way.
func (cp *ControlPlane) Set(targets []netip.AddrPort) {
	targets = slices.Clone(targets)
	slices.SortFunc(targets, netip.AddrPort.Compare)
	targets = slices.Compact(targets)
	if slices.Equal(targets, cp.targets) {
		return
	}
	cp.targets = targets
	cp.changed = true
}

// countInfra follows which subnets hosts have addresses of their own in.
func (cp *ControlPlane) countInfra(n *network, rec *model.Network) {
	_, was := cp.infra[n]
	if is := rec != nil && rec.Type == model.NetworkInfra; is {
		cp.infra.add(n)
	} else if delete(cp.infra, n); !was {
		return
	}
	cp.changed = true
}

// takeChange reports whether the tier may be another one than when it was last asked.
func (cp *ControlPlane) takeChange() bool {
	changed := cp.changed
	cp.changed = false
	return changed
}

// onInfra reports whether an address lies in an infra network.
func (cp *ControlPlane) onInfra(a netip.Addr) bool {
	for n := range cp.infra {
		if n.rec.Subnet.Contains(a) || n.rec.Subnet6.Contains(a) {
			return true
		}
	}
	return false
}

// tier denies the control plane's addresses that the ports on a network reach
// without passing through their host's interface for all; it is empty where there are
// none.
func (cp *ControlPlane) tier(n *model.Network) []desired.Tier {
	if n == nil {
		return nil
	}
	byPort := map[uint16][]desired.CIDR{}
	for _, t := range cp.targets {
		a := t.Addr()
		// Without a gateway IPv4 leads out by the host.
		physical := n.Encap == model.EncapVLAN && (a.Is6() || n.Gateway.IsValid() || n.Subnet.Contains(a))
		// A host takes what is for any of its addresses; other networks may be routed there.
		if physical || n.Type == model.NetworkInfra || cp.onInfra(a) {
			byPort[t.Port()] = append(byPort[t.Port()], desired.CIDR{Prefix: netip.PrefixFrom(a, a.BitLen())})
		}
	}
	if len(byPort) == 0 {
		return nil
	}
	tier := desired.Tier{Tier: desired.TierControl, Default: model.Pass}
	for port, cidrs := range byPort {
		r := &desired.Rule{
			ID: desired.ControlRuleID(port), Priority: 100, Action: model.Deny, CIDRs: cidrs,
			Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: port, Hi: port}},
		}
		tier.Rules = tier.Rules.Set(r.ID, r)
	}
	return []desired.Tier{tier}
}
