package desired

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Face is a port of an address at which a service answers, beside the addresses that
// are all its own: other ports of the address may be other services'.
type Face struct {
	// Addr unspecified (0.0.0.0, ::) = each of Host.NodeAddrs of the family.
	Addr     netip.Addr
	Protocol model.Protocol
	Port     uint16
	Backend  uint16 // the backends' port, but for those with one of their own
	Inside   TrafficPolicy
	Outside  TrafficPolicy
	Sources  []netip.Prefix // of clients that it takes; empty = of all
}

// CompareFaces orders the faces of a service.
func CompareFaces(a, b Face) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

// Equal compares two faces by contents.
func (f Face) Equal(o Face) bool {
	return f.Addr == o.Addr && f.Protocol == o.Protocol && f.Port == o.Port && f.Backend == o.Backend &&
		f.Inside == o.Inside && f.Outside == o.Outside && slices.Equal(f.Sources, o.Sources)
}

// Takes tells whether a client may ask at the face.
func (f Face) Takes(client netip.Addr) bool {
	return len(f.Sources) == 0 || slices.ContainsFunc(f.Sources, func(p netip.Prefix) bool { return p.Contains(client) })
}

// AnyNode is the Addr of faces at each node's address of the family of an address.
func AnyNode(a netip.Addr) netip.Addr {
	if a.Is6() {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// IsNode tells whether an address is one of NodeAddrs.
func (h Host) IsNode(a netip.Addr) bool {
	_, is := h.NodeAddrs.Get(a)
	return is
}

// FaceAt returns what a service has at a port of an address, be that an address of its
// own, a node's, or another one.
func (s *Service) FaceAt(a netip.Addr, node bool, proto model.Protocol, port uint16) (Face, bool) {
	if a == s.IPv4 || a == s.IPv6 {
		p, ok := s.PortOf(proto, port)
		return Face{Addr: a, Protocol: proto, Port: port, Backend: p.Backend, Inside: s.Inside, Outside: s.Outside}, ok
	}
	if node {
		a = AnyNode(a)
	}
	i, ok := slices.BinarySearchFunc(s.Faces, Face{Addr: a, Protocol: proto, Port: port}, CompareFaces)
	if !ok {
		return Face{}, false
	}
	return s.Faces[i], true
}

// checkFaces returns an error unless all faces can be had.
func (s *Service) checkFaces() error {
	for i, f := range s.Faces {
		if f.Addr.IsValid() && f.Addr == f.Addr.Unmap() && f.Port != 0 && f.Backend != 0 && f.Protocol.HasPorts() {
			if i > 0 && CompareFaces(s.Faces[i-1], f) >= 0 {
				return model.Errorf(model.ErrInvalid, "face %s port %d of protocol %d is there twice or not in order", f.Addr, f.Port, f.Protocol)
			}
			continue
		}
		return model.Errorf(model.ErrInvalid, "face %q port %d of protocol %d, of backends %d, is none", f.Addr, f.Port, f.Protocol, f.Backend)
	}
	return nil
}
