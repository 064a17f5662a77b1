package pipeline

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// What is counted of connections to services: three flows for each port, family and
// backend, in stages beside the packets' path, whose counters are all that they are for.
// A match names all that is counted, so who reads the flows needs to remember nothing.

// CountersOf is how many flows a service has in Begun and Counted, if it is counted.
func CountersOf(s *desired.Service) int {
	n := 0
	for _, vip := range []netip.Addr{s.IPv4, s.IPv6} {
		for _, b := range s.Backends.All() {
			if vip.IsValid() && b.Addr(vip.Is6()).IsValid() {
				n += countersEach
			}
		}
	}
	return n * len(countable(s))
}

const countersEach = 3

// countable are the ports of a service that are served.
func countable(s *desired.Service) []desired.ServicePort {
	var out []desired.ServicePort
	for _, p := range s.Ports {
		if p.Protocol == model.ProtoTCP || p.Protocol == model.ProtoUDP {
			out = append(out, p)
		}
	}
	return out
}

// What is noted of a packet that passes the stages of services. The upper half of
// regFlags has the port of the service that it was sent to, which the translation hides.
const (
	portShift = 16

	// regCounted is free but in the stages of audits, which write it before they read it.
	regCounted    = regAuditKind
	backendChosen = 1       // its backend has been chosen just now
	packetCounted = 1 << 31 // Output has had it counted
)

var (
	notePort        = of.Move{From: of.CtTpDst, To: regFlags, At: portShift}
	isBackendChosen = of.Eq(regCounted, backendChosen)
)

func toPort(port uint16) of.Term {
	return of.Masked(regFlags, of.Uint(uint32(port)<<portShift), of.Uint(uint32(0xffff<<portShift)))
}

// noteBackend writes down who sends an answer, before it is sent in the service's name:
// in the registers of affinityTerms.
func noteBackend(v6 bool) of.Action {
	if v6 {
		return of.Move{From: of.IPv6Src, To: of.XXReg3}
	}
	return of.Move{From: of.NwSrc, To: of.Reg12}
}

// counted adds the flows that count what goes to the backends of a virtual address and
// comes back: in Begun connections when policy has let them through, which are those
// without a mark, in Counted packets, as they leave. Fragments but the first show no
// port, and are not counted; in user space the first one on its way to a backend is not
// either (services.md).
func (s Service) counted(l *list, vip netip.Addr) {
	eth, _, dst := ethOf(vip.Is6())
	front := of.CtNwDst
	if vip.Is6() {
		front = of.CtIPv6Dst
	}
	before := l.cookie
	l.cookie = CountersPart(s.Number % CounterParts)
	for _, port := range countable(s.Service) {
		proto := isProto(int(port.Protocol))
		for _, b := range s.Backends.All() {
			a := b.Addr(vip.Is6())
			if !a.IsValid() {
				continue
			}
			there := []of.Term{of.Eq(regService, s.Number), eth, proto, toPort(port.Port), of.EqAddr(dst, a)}
			l.add(CountConnections, 10, match(append(there, of.Eq(of.CtMark, 0))...))
			l.add(CountPackets, 10, match(there...))
			l.add(CountPackets, 10, match(append(affinityTerms(a), inDomain(s.Domain), eth, of.State(of.StateRpl|of.StateTrk, of.StateInv),
				of.EqAddr(front, vip), of.Eq(of.CtNwProto, uint8(port.Protocol)), of.Eq(of.CtTpDst, port.Port))...))
		}
	}
	l.cookie = before
}

// CounterParts is how many parts the flows that count services have, which may be read
// one by one: each has a cookie, and the switch finds flows by whole cookies.
const CounterParts = 64

// CountersPart is the cookie of a part.
func CountersPart(i uint32) uint64 { return cookie(KindCount, i) }

// Count is what a flow counts of a service.
type Count struct {
	Begun   bool // connections, else packets
	IsReply bool // from the backend

	Service  uint32         // its number; of what does not come back
	Domain   desired.Domain // of what comes back
	VIP      netip.Addr     // likewise: the virtual address
	Protocol model.Protocol
	Port     uint16 // of the service
	Backend  netip.Addr
}

// CountOf reads a flow of Begun or Counted; ok is false when it is none of
// Service.counted.
func CountOf(f of.Flow) (c Count, ok bool) {
	if kind, _, ours := KindOf(f.Cookie); !ours || kind != KindCount {
		return c, false
	}
	c.Begun = Stage(f.Table) == CountConnections
	var packetCounted [4]uint32 // the registers of affinityTerms
	for _, t := range f.Match {
		n := t.Value.Lo
		switch t.Field {
		case regService:
			c.Service = uint32(n) //nolint:gosec // 32 bits wide
		case regDomain:
			c.IsReply, c.Domain = true, desired.Domain(n)
		case regFlags:
			c.Port = uint16(n >> portShift) //nolint:gosec // 32 bits wide
		case of.CtTpDst:
			c.Port = uint16(n) //nolint:gosec // 16 bits wide
		case of.IPProto, of.CtNwProto:
			c.Protocol = model.Protocol(n) //nolint:gosec // 8 bits wide
		case of.NwDst, of.IPv6Dst:
			c.Backend = t.Addr()
		case of.CtNwDst, of.CtIPv6Dst:
			c.VIP = t.Addr()
		case of.Reg12, of.Reg13, of.Reg14, of.Reg15:
			packetCounted[t.Field-of.Reg12] = uint32(n) //nolint:gosec // 32 bits wide
		default:
		}
	}
	switch {
	case c.IsReply && c.VIP.Is4():
		c.Backend = of.EqValue(of.NwDst, of.Uint(packetCounted[0])).Addr()
	case c.IsReply:
		hi, lo := uint64(packetCounted[0])<<32|uint64(packetCounted[1]), uint64(packetCounted[2])<<32|uint64(packetCounted[3])
		c.Backend = of.EqValue(of.IPv6Dst, of.Value{Hi: hi, Lo: lo}).Addr()
	}
	return c, c.Backend.IsValid() && (c.Service != 0 || c.VIP.IsValid())
}
