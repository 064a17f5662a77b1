package desired

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Frontend is a port of an address at which a service answers, beside the addresses that
// are all its own: other ports of the address may be other services'.
type Frontend struct {
	// Addr unspecified (0.0.0.0, ::) = each of Host.NodeAddrs of the family at which no
	// service has a frontend with the port by the address itself.
	Addr     netip.Addr
	Protocol model.Protocol
	// Port 0, of an address that is specified and with Backend 0: it leads nowhere, and has
	// the address refuse all ports that no other frontend has.
	Port           uint16
	Backend        uint16 // the backends' port, but for those with one of their own
	InternalPolicy TrafficPolicy
	ExternalPolicy TrafficPolicy
	Sources        []netip.Prefix // of clients that it takes; empty = of all
}

// CompareFrontends orders the frontends of a service.
func CompareFrontends(a, b Frontend) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

// Equal compares two frontends by contents.
func (f Frontend) Equal(o Frontend) bool {
	return f.Addr == o.Addr && f.Protocol == o.Protocol && f.Port == o.Port && f.Backend == o.Backend &&
		f.InternalPolicy == o.InternalPolicy && f.ExternalPolicy == o.ExternalPolicy && slices.Equal(f.Sources, o.Sources)
}

// Takes reports whether a client may ask at the frontend.
func (f Frontend) Takes(client netip.Addr) bool {
	return len(f.Sources) == 0 || slices.ContainsFunc(f.Sources, func(p netip.Prefix) bool { return p.Contains(client) })
}

// AnyNode is the Addr of frontends at each node's address of the family of an address.
func AnyNode(a netip.Addr) netip.Addr {
	if a.Is6() {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// IsNode reports whether an address is one of NodeAddrs.
func (h Host) IsNode(a netip.Addr) bool {
	_, is := h.NodeAddrs.Get(a)
	return is
}

// FrontendAddr is the Addr of frontends at an address: all nodes' addresses share AnyNode.
func (h Host) FrontendAddr(a netip.Addr) netip.Addr {
	if h.IsNode(a) {
		return AnyNode(a)
	}
	return a
}

// KeyAtNode is the key of the part of an orchestrator's service that answers at a node's
// addresses; node "" = at those of all nodes that have no part of their own.
func KeyAtNode(k model.ServiceKey, node model.NodeName) model.ServiceKey {
	k.Name += "@" + string(node)
	return k
}

// WholeKey is the key of the service that one is a part of, by KeyAtNode; another's is its own.
func WholeKey(k model.ServiceKey) model.ServiceKey {
	k.Name, _, _ = strings.Cut(k.Name, "@") // which no name has
	return k
}

// Before reports whether a frontend of the service a has a port of an address before one of b.
func (f Frontend) Before(a model.ServiceKey, o Frontend, b model.ServiceKey) bool {
	if f.Addr.IsUnspecified() != o.Addr.IsUnspecified() {
		return o.Addr.IsUnspecified()
	}
	return a.String() < b.String()
}

// FrontendAt returns what a service has at a port of an address, be that an address of its
// own, a node's, or another one. At a node's, what it has there by the address itself
// comes before what it has at all nodes'.
func (s *Service) FrontendAt(a netip.Addr, node bool, proto model.Protocol, port uint16) (Frontend, bool) {
	if a == s.IPv4 || a == s.IPv6 {
		p, ok := s.PortOf(proto, port)
		return Frontend{Addr: a, Protocol: proto, Port: port, Backend: p.Backend, InternalPolicy: s.InternalPolicy, ExternalPolicy: s.ExternalPolicy}, ok
	}
	i, ok := slices.BinarySearchFunc(s.Frontends, Frontend{Addr: a, Protocol: proto, Port: port}, CompareFrontends)
	if !ok && node {
		i, ok = slices.BinarySearchFunc(s.Frontends, Frontend{Addr: AnyNode(a), Protocol: proto, Port: port}, CompareFrontends)
	}
	if !ok {
		return Frontend{}, false
	}
	return s.Frontends[i], true
}

// checkFrontends returns an error unless all frontends can be had.
func (s *Service) checkFrontends() error {
	for i, f := range s.Frontends {
		if f.Addr.IsValid() && f.Addr == f.Addr.Unmap() && (f.Port != 0) == (f.Backend != 0) && (f.Port != 0 || !f.Addr.IsUnspecified()) && f.Protocol.HasPorts() {
			if i > 0 && CompareFrontends(s.Frontends[i-1], f) >= 0 {
				return model.Errorf(model.ErrInvalid, "frontend %s: port %d of protocol %d occurs twice or out of order", f.Addr, f.Port, f.Protocol)
			}
			continue
		}
		return model.Errorf(model.ErrInvalid, "frontend %q: port %d of protocol %d, of backends %d, is invalid", f.Addr, f.Port, f.Protocol, f.Backend)
	}
	return nil
}
