package hostservices

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Place is where a service is asked: a port of an address, or (unspecified: 0.0.0.0, ::) of
// each address of SetNode of the family.
type Place struct {
	Addr     netip.Addr
	Protocol model.Protocol // TCP or UDP
	Port     uint16
}

// Frontend says where connections to a Place go.
type Frontend struct {
	// Targets are chosen among, sorted, each once; empty = connections are refused.
	Targets []netip.AddrPort
	// Members are the backends with which datagrams of known sockets stay, sorted, each once:
	// the targets, and ones that get nothing new.
	Members []netip.AddrPort
	// Reserved: processes may not bind the port at this node's addresses.
	Reserved bool
}

// equal compares two frontends by contents; nil = there is none.
func (f *Frontend) equal(o *Frontend) bool {
	if f == nil || o == nil {
		return f == o
	}
	return slices.Equal(f.Targets, o.Targets) && slices.Equal(f.Members, o.Members) && f.Reserved == o.Reserved
}

// The types below are those of bpf/sockets.c.

type addr [16]byte // IPv4 mapped into IPv6

func toAddr(a netip.Addr) addr { return a.As16() }

func (a addr) netip() netip.Addr { return netip.AddrFrom16(a).Unmap() }

// placeKey is struct place.
type placeKey struct {
	IP    addr
	Port  uint16
	Proto uint8
	_     uint8
}

func toPlaceKey(p Place) placeKey {
	return placeKey{IP: toAddr(p.Addr), Port: p.Port, Proto: uint8(p.Protocol)}
}

func (k placeKey) place() Place {
	return Place{Addr: k.IP.netip(), Protocol: model.Protocol(k.Proto), Port: k.Port}
}

// frontendEntry is struct frontend.
type frontendEntry struct{ Number, Version, Targets, Reserved uint32 }

// targetKey is struct target_key.
type targetKey struct{ Number, Version, Index uint32 }

// target is struct target.
type target struct {
	IP   addr
	Port uint16
	_    uint16
}

// memberKey is struct member_key.
type memberKey struct {
	Number uint32
	IP     addr
	Port   uint16
	_      uint16
}

func toMember(number uint32, a netip.AddrPort) memberKey {
	return memberKey{Number: number, IP: toAddr(a.Addr()), Port: a.Port()}
}

// peer is struct peer.
type peer struct {
	Socket uint64
	At     placeKey
	_      uint32
}
