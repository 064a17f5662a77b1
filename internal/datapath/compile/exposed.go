package compile

import (
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// exposes tells whether services of a network are exposed. Addresses of different
// tenants may be equal, so only one tenant's can be. On an infra network each host reaches
// them by its own interface there.
func (n *network) exposes() bool {
	return n.key.Tenant == model.DefaultTenant && (n.rec == nil || n.rec.OnHosts() && n.rec.Type != model.NetworkInfra) && (n.services != nil || n.cluster)
}

// countExposing follows how many networks with exposed services a tenant has, as
// countLocal does endpoints: every host leads to them.
func (c *Compiler) countExposing(n *network, by int) {
	if n.key.Tenant != model.DefaultTenant {
		return
	}
	c.dirtyNetworks.add(n)
	c.countEverywhere(n.tenant, by)
}

// countEverywhere follows how many networks of a tenant every host has.
func (c *Compiler) countEverywhere(t *tenant, by int) {
	was := t.exposing
	if t.exposing += by; (was == 0) != (t.exposing == 0) {
		c.touchRouter(t)
	}
}

// claimAddrs follows at which addresses a service wants to be exposed, and has those
// looked at again who want one of them too.
func (c *Compiler) claimAddrs(s *service) {
	var want [2]netip.Addr
	if s.rec != nil && s.net.id != 0 && s.net.exposes() {
		want[0], want[1] = s.rec.Addrs()
	}
	if want == s.claims {
		return
	}
	rivals := func() {
		for _, a := range s.claims {
			for o := range c.exposedAt[a] {
				c.changed.services.add(o)
			}
		}
	}
	rivals()
	for _, a := range s.claims {
		removeFrom(c.exposedAt, a, s)
	}
	s.claims = want
	for _, a := range want {
		if a.IsValid() {
			addTo(c.exposedAt, a, s)
		}
	}
	rivals()
}

// exposed tells whether a service is exposed: one that wants to be, and has its
// addresses before all others that want one of them. The text says who has one.
func (c *Compiler) exposed(s *service) (bool, string) {
	if s.claims == ([2]netip.Addr{}) {
		return false, ""
	}
	first := s
	for _, a := range s.claims {
		for o := range c.exposedAt[a] {
			if o.key.String() < first.key.String() {
				first = o
			}
		}
	}
	if first != s {
		return false, fmt.Sprintf("neither hosts nor clients outside reach it: it has an address in common with service %s", first.key)
	}
	return true, ""
}

// touchTunnel has it looked at whose a tunnel endpoint is.
func (c *Compiler) touchTunnel(name model.HostName, old, now *model.Host) {
	if old != nil && old.VTEP.IsValid() {
		removeFrom(c.tunnels, old.VTEP, name)
		c.dirtyTunnels.add(old.VTEP)
	}
	if now != nil && now.VTEP.IsValid() {
		addTo(c.tunnels, now.VTEP, name)
		c.dirtyTunnels.add(now.VTEP)
	}
}

// compileTunnels writes the other hosts' tunnel endpoints. What is this host's too
// is no other's.
func (c *Compiler) compileTunnels() {
	for a := range c.dirtyTunnels {
		var first model.HostName
		for name := range c.tunnels[a] {
			if name == c.self {
				first = ""
				break
			}
			if first == "" || name < first {
				first = name
			}
		}
		if first == "" {
			c.out.Tunnels = c.out.Tunnels.Delete(a)
		} else {
			c.out.Tunnels = c.out.Tunnels.Set(a, first)
		}
	}
	reset(&c.dirtyTunnels)
}

// leadOutside says how a service is reached from elsewhere than from endpoints, and
// returns what is wrong with that. A VLAN network has no tunnel by which a
// host could send in the name of somebody outside.
func (c *Compiler) leadOutside(s *service, pic *desired.Service) (problem string) {
	pic.Exposed, problem = c.exposed(s)
	if s.net.rec.Encap == model.EncapVLAN {
		pic.ExternalPolicy = desired.TrafficLocal
	} else if pic.Exposed && c.speaksBGP {
		pic.ExternalPolicy = desired.TrafficNear
	}
	return problem
}
