package statemirror

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Bgp returns this host's BGP settings, nil = none, and the hosts before it by name whose
// settings have the same router address.
func (c *State) Bgp() (own *model.Bgp, rivals []model.HostName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.bgps {
		if b.Host == c.Host {
			own = &b
		}
	}
	if own == nil {
		return nil, nil
	}
	for _, b := range c.bgps {
		if b.Host < c.Host && b.RouterIP.Addr() == own.RouterIP.Addr() {
			rivals = append(rivals, b.Host)
		}
	}
	slices.Sort(rivals)
	return own, rivals
}

// spokenOfLocked are the tenants that a host which speaks BGP follows, whether it has
// anything of them or not: all, since no route of a router may lead their networks away.
func (c *State) spokenOfLocked() (out []model.TenantName) {
	global := c.mirrors[Scope{}]
	if global == nil {
		return nil
	}
	rows := c.rowsLocked(global)
	if _, speaks := rows[tables.BgpKey{Host: c.Host}]; !speaks {
		return nil
	}
	for k := range rows {
		if t, is := k.(model.TenantName); is {
			out = append(out, t)
		}
	}
	return out
}

// Subnets are those of all networks that this host knows of: of the cluster's, where it
// has BGP settings.
func (c *State) Subnets() (out []netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.subnetsLocked()
}

// VLANs are the networks of encap vlan that this host knows of, in order: of the
// cluster's, where it has BGP settings.
func (c *State) VLANs() (out []model.Network) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.mirrors {
		for _, n := range m.networks {
			if n.Encap == model.EncapVLAN {
				out = append(out, n)
			}
		}
	}
	slices.SortFunc(out, func(a, b model.Network) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func (c *State) subnetsLocked() (out []netip.Prefix) {
	for _, m := range c.mirrors {
		for _, n := range m.networks {
			for _, p := range []netip.Prefix{n.Subnet, n.Subnet6} {
				if p.IsValid() {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// NodeAddresses are the addresses of the cluster's machines: of hosts, and where the
// control plane answers.
func (c *State) NodeAddresses() (out []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hosts {
		for _, a := range []netip.Addr{h.VTEP, h.Control, h.IPv6} {
			if a.IsValid() {
				out = append(out, a)
			}
		}
	}
	return out
}

// Targets are where the control plane answers, as of the last pass.
func (p *ControlPlane) Targets() (out []netip.Addr) {
	if k := p.last.Load(); k != nil {
		for _, t := range k.Targets {
			out = append(out, t.Addr())
		}
	}
	return out
}

// TenantPrefixes are the prefixes that cluster administrators allow to tenants.
func (c *State) TenantPrefixes() model.Prefixes {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.global == nil {
		return nil
	}
	return c.global.TenantPrefixes
}
