package picture

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Bgp returns this host's BGP settings, nil = none, and the hosts before it by name whose
// settings have the same router address.
func (c *Cluster) Bgp() (own *model.Bgp, rivals []model.HostName) {
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

// NodeAddresses are the addresses of the cluster's machines: of hosts, and where the
// control plane answers.
func (c *Cluster) NodeAddresses() (out []netip.Addr) {
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
