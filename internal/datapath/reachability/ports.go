package reachability

import (
	"cmp"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Ports is a set of pairs of an IP protocol and a destination port. The zero value is empty.
// A protocol without ports is in it wholly or not at all. Values are not changed.
type Ports struct{ spans []span }

// span is an interval, both ends in it, of protocol*perProtocol + port. A protocol without
// ports has its whole interval.
type span struct{ lo, hi uint32 }

const (
	perProtocol = 1 << 16
	protocols   = 256
)

// AllPorts returns all protocols with all of their ports.
func AllPorts() Ports { return Ports{[]span{{0, protocols*perProtocol - 1}}} }

// PortsOf returns what one of some matches matches, as model.PortMatch.Matches says; without
// any match all protocols, as in rules.
func PortsOf(matches ...model.PortMatch) Ports {
	if len(matches) == 0 {
		return AllPorts()
	}
	var all []span
	for _, m := range matches {
		switch {
		case m.Name != "": // by a name nothing is matched
		case m.Protocol == model.AnyProtocol:
			return AllPorts()
		case m.Protocol == model.ProtoICMP:
			all = append(all, whole(model.ProtoICMP), whole(model.ProtoICMPv6))
		case !m.Protocol.HasPorts():
			all = append(all, whole(m.Protocol))
		case m.Lo <= m.Hi:
			base := uint32(m.Protocol) * perProtocol
			all = append(all, span{base + uint32(m.Lo), base + uint32(m.Hi)})
		}
	}
	return normal(all)
}

// OnePort is the set of one port of a protocol.
func OnePort(p model.Protocol, port uint16) Ports {
	return PortsOf(model.PortMatch{Protocol: p, Lo: port, Hi: port})
}

func whole(p model.Protocol) span {
	return span{uint32(p) * perProtocol, uint32(p)*perProtocol + perProtocol - 1}
}

// normal sorts spans, and joins each with the ones that it meets.
func normal(all []span) Ports {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	var out []span
	for _, s := range all {
		if n := len(out); n > 0 && s.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, s.hi)
			continue
		}
		out = append(out, s)
	}
	return Ports{out}
}

// IsEmpty reports whether the set has nothing.
func (p Ports) IsEmpty() bool { return len(p.spans) == 0 }

// Equal compares two sets.
func (p Ports) Equal(o Ports) bool { return slices.Equal(p.spans, o.spans) }

// Has reports whether the set has a port of a protocol.
func (p Ports) Has(proto model.Protocol, port uint16) bool {
	if proto < 0 || proto >= protocols {
		return false
	}
	if !proto.HasPorts() {
		port = 0
	}
	at := uint32(proto)*perProtocol + uint32(port)
	i, _ := slices.BinarySearchFunc(p.spans, at, func(s span, at uint32) int { return cmp.Compare(s.hi, at) })
	return i < len(p.spans) && p.spans[i].lo <= at
}

// Or returns what is in one of two sets.
func (p Ports) Or(o Ports) Ports { return normal(slices.Concat(p.spans, o.spans)) }

// And returns what is in both sets.
func (p Ports) And(o Ports) Ports {
	var out []span
	for i, j := 0, 0; i < len(p.spans) && j < len(o.spans); {
		a, b := p.spans[i], o.spans[j]
		if lo, hi := max(a.lo, b.lo), min(a.hi, b.hi); lo <= hi {
			out = append(out, span{lo, hi})
		}
		if a.hi < b.hi {
			i++
		} else {
			j++
		}
	}
	return Ports{out}
}

// Without returns what is in the set and not in another one.
func (p Ports) Without(o Ports) Ports { return p.And(o.others()) }

func (p Ports) others() Ports {
	var out []span
	next := uint32(0)
	for _, s := range p.spans {
		if next < s.lo {
			out = append(out, span{next, s.lo - 1})
		}
		next = s.hi + 1
	}
	if next < protocols*perProtocol {
		out = append(out, span{next, protocols*perProtocol - 1})
	}
	return Ports{out}
}

// Matches returns the set as matches, each of one protocol, in ascending order; a set that has
// everything as the only one of model.AnyProtocol.
func (p Ports) Matches() (out []model.PortMatch) {
	if p.Equal(AllPorts()) {
		return []model.PortMatch{{Protocol: model.AnyProtocol, Hi: perProtocol - 1}}
	}
	for _, s := range p.spans {
		for lo := s.lo; lo <= s.hi; {
			proto := model.Protocol(lo / perProtocol)
			hi := min(s.hi, whole(proto).hi)
			out = append(out, model.PortMatch{Protocol: proto, Lo: uint16(lo % perProtocol), Hi: uint16(hi % perProtocol)})
			lo = hi + 1
		}
	}
	return out
}
