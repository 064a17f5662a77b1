package hostsync

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// containers has sockets of this host's processes reach its containers at their own
// addresses, which the host's stack does not know: kubelets' probes need that. An address that
// two containers have reaches neither. Networks that a tenant's administrator created do not
// count: with their subnets he would choose addresses that this host's processes lose.
type containers struct {
	sockets *sockets
	last    desired.Map[string, *desired.Port]
	nets    desired.Map[model.NetworkID, *desired.Network]
	at      map[netip.Addr]map[string]netip.Addr // host-local NAT addresses by a container's own and its port's name
	twice   map[netip.Addr]bool
}

func newContainers(s *sockets) *containers {
	return &containers{sockets: s, at: map[netip.Addr]map[string]netip.Addr{}, twice: map[netip.Addr]bool{}}
}

// follow notes the ports of the desired state, at the cost of what differs.
func (c *containers) follow(pic desired.Host) {
	for x := range pic.Networks.Diff(c.nets) {
		if x.Had && x.Has && x.Old.Routed == x.New.Routed && x.Old.ByTenant == x.New.ByTenant {
			continue
		}
		for _, p := range c.last.All() {
			if p.Network == x.Key {
				c.note(p, c.nets, false)
				c.note(p, pic.Networks, true)
			}
		}
	}
	for x := range pic.Ports.Diff(c.last) {
		if x.Had {
			c.note(x.Old, pic.Networks, false)
		}
		if x.Has {
			c.note(x.New, pic.Networks, true)
		}
	}
	c.last, c.nets = pic.Ports, pic.Networks
}

// note enters a port's addresses, or takes them out.
func (c *containers) note(p *desired.Port, nets desired.Map[model.NetworkID, *desired.Network], is bool) {
	n, ok := nets.Get(p.Network)
	is = is && ok && !n.Routed && !n.ByTenant && !p.OnHost
	for own, nat := range map[netip.Addr]netip.Addr{p.IPv4: p.Private, p.IPv6: p.Private6} {
		if !own.IsValid() || !nat.IsValid() {
			continue
		}
		if is {
			if c.at[own] == nil {
				c.at[own] = map[string]netip.Addr{}
			}
			c.at[own][p.IfName] = nat
		} else if delete(c.at[own], p.IfName); len(c.at[own]) == 0 {
			delete(c.at, own)
		}
		c.decide(own)
	}
}

func (c *containers) decide(own netip.Addr) {
	delete(c.twice, own)
	var nat netip.Addr
	if len(c.at[own]) == 1 {
		for _, nat = range c.at[own] {
		}
	} else if len(c.at[own]) > 1 {
		c.twice[own] = true
	}
	c.sockets.setContainer(own, nat)
}

// problems says which containers sockets do not reach.
func (c *containers) problems() []compile.Problem {
	const object = "containers at their own addresses"
	if len(c.at) > 0 && c.sockets.isUnable() {
		return []compile.Problem{{Object: object, Text: model.NoEffectPrefix +
			"processes of this host, such as a kubelet with its probes, reach no containers on networks that are not routed, since that needs eBPF at a cgroup2"}}
	}
	if len(c.twice) == 0 {
		return nil
	}
	var first netip.Addr
	for a := range c.twice {
		if !first.IsValid() || cmp.Or(cmp.Compare(first.BitLen(), a.BitLen()), first.Compare(a)) > 0 {
			first = a
		}
	}
	return []compile.Problem{{Object: object, Text: fmt.Sprintf(
		"%sprocesses of this host, such as a kubelet with its probes, reach no container at %d addresses that two containers of this host have, such as %s", model.NoEffectPrefix, len(c.twice), first)}}
}
