package reference

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Frontends of services; see docs/design/services.md.

// frontendAddrs are the addresses at which a service has frontends, each once.
func frontendAddrs(s *desired.Service) (out []netip.Addr) {
	for _, f := range s.Frontends {
		if !slices.Contains(out, f.Addr) {
			out = append(out, f.Addr)
		}
	}
	return out
}

func (t *tables) isNode(a netip.Addr) bool {
	_, is := t.shared.Get(a)
	return is
}

// servicesAt are the services with frontends that an address may be of: by itself, and as a node's.
func (t *tables) servicesAt(a netip.Addr) map[model.ServiceKey]struct{} {
	if !t.isNode(a) {
		return t.frontends[a]
	}
	out := maps.Clone(t.frontends[desired.AnyNode(a)])
	if out == nil {
		return t.frontends[a]
	}
	maps.Copy(out, t.frontends[a])
	return out
}

// virtual reports whether an address is the services' of a network's domain, whichever
// port is asked. A node's is not.
func (t *tables) virtual(n *desired.Network, a netip.Addr) bool {
	return t.serviceAt(n, a) != nil || !t.isNode(a) && len(t.withFrontends(n, a)) > 0
}

// withFrontends are the services of a network's domain that have frontends at an address,
// unless that is an endpoint's.
func (t *tables) withFrontends(n *desired.Network, a netip.Addr) (out []*desired.Service) {
	for key := range t.servicesAt(a) {
		if s := t.services[key]; s != nil && t.networks[s.Network] != nil && t.networks[s.Network].Domain() == n.Domain() {
			out = append(out, s)
		}
	}
	if len(out) > 0 && t.stations.byAddr(n, a).known() {
		return nil
	}
	return out
}

// frontendAt finds the service at a port of an address in a network's domain; nil when there is
// none. The owner of the whole address comes first, then a single node's before all nodes',
// then the smallest key.
func (t *tables) frontendAt(n *desired.Network, a netip.Addr, proto model.Protocol, port uint16) (has *desired.Service, at desired.Frontend) {
	if s := t.serviceAt(n, a); s != nil {
		if at, ok := s.FrontendAt(a, false, proto, port); ok {
			return s, at
		}
		return nil, at
	}
	for _, s := range t.withFrontends(n, a) {
		if f, ok := s.FrontendAt(a, t.isNode(a), proto, port); ok && (has == nil || f.Before(s.Key, at, has.Key)) {
			has, at = s, f
		}
	}
	return has, at
}

// isForService reports whether a packet is some service's: at a node's address, what a service
// has a frontend for, and what belongs to a connection by one.
func (k *kernel) isForService(n *desired.Network, p *Packet) bool {
	t := k.tables
	switch {
	case !t.isNode(p.Dst) || t.serviceAt(n, p.Dst) != nil:
		return t.virtual(n, p.Dst)
	case p.DstMAC != desired.RouterMAC || len(t.withFrontends(n, p.Dst)) == 0:
		return false
	case p.Frag != nil && p.Frag.Offset != 0:
		tr := k.nat.frags[fragOf(n, p)]
		return tr != nil && tr.original.dst == p.Dst
	case p.isError():
		return p.Inner != nil && p.Inner.Src == p.Dst && k.nat.original[tupleOf(n, p.Inner).reversed()] != nil
	}
	s, _ := t.frontendAt(n, p.Dst, p.Proto, p.DstPort)
	return s != nil && p.hasPorts() && (s.Exposed || !p.Host)
}
