package reference

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Request is what an application asks, in a container, on a host, or beyond it.
type Request struct {
	Host             model.HostName
	Port             string         // of the container; "" = it comes by the host's own stack
	Src              netip.Addr     // without Port: whose request the host's stack hands on
	Dst              netip.Addr     // as the application, or the host's stack, sends it
	Proto            model.Protocol // TCP, UDP, SCTP; ICMP = echo; others = one packet each way
	SrcPort, DstPort uint16         // SrcPort is the identifier for echo
}

// Outcome is what became of a request.
type Outcome struct {
	Arrived  []Arrival // who got the request; Port "" = the host's own stack
	By       Arrival   // whose answer came back, of those
	Answered bool
	Refused  bool // a router answered that the destination is unreachable
	Hops     []Hop
}

// Ask sends a request as an application's kernel would, and the answer of its receiver.
// Neighbor resolution comes first: without an answer to it nothing is sent.
func (f *Fabric) Ask(q Request) (out Outcome) {
	p, r := q.packets()
	if q.Port != "" {
		from, ok := f.portAt(q.Host, q.Port)
		if !ok || !ownAddr(from, q.Dst).IsValid() {
			return out
		}
		p.SrcMAC, p.Src = from.MAC, ownAddr(from, q.Dst)
		if p.DstMAC, ok = f.neighbour(q.Host, from, &p, &out); !ok {
			return out
		}
	}
	got := f.follow(q.Host, p, &out)
	if a := out.Hops[len(out.Hops)-1].Verdict.Answer; a != nil && a.Dst == p.Src {
		out.Refused = a.TCPFlags&FlagRST != 0 || a.Proto == model.ProtoICMP && a.ICMPType == 3 || a.Proto == model.ProtoICMPv6 && a.ICMPType == 1
	}
	for _, g := range got {
		out.Arrived = append(out.Arrived, g.at)
	}
	for _, g := range got {
		r.Host, r.Port, r.Src, r.Dst, r.SrcPort, r.DstPort = g.at.Port == "", g.at.Port, g.packet.Dst, g.packet.Src, g.packet.DstPort, g.packet.SrcPort
		if g.at.Port != "" {
			port, ok := f.portAt(g.at.Host, g.at.Port)
			if !ok || ownAddr(port, r.Dst) != r.Src { // a broadcast, or to somebody else
				continue
			}
			r.SrcMAC = port.MAC
			if r.DstMAC, ok = f.neighbour(g.at.Host, port, &r, &out); !ok {
				continue
			}
		}
		for _, back := range f.follow(g.at.Host, r, &out) {
			b := back.packet
			if back.at == (Arrival{q.Host, q.Port}) && b.Src == p.Dst && b.Dst == p.Src && b.SrcPort == p.DstPort && b.DstPort == p.SrcPort {
				out.By, out.Answered = g.at, true
				return out
			}
		}
	}
	return out
}

// packets are a request and its answer, without who they are between.
func (q Request) packets() (p, r Packet) {
	p = Packet{Host: q.Port == "", Port: q.Port, Src: q.Src, Dst: q.Dst, Proto: q.Proto, SrcPort: q.SrcPort, DstPort: q.DstPort}
	r = Packet{Proto: q.Proto}
	switch {
	case q.Proto == model.ProtoTCP:
		p.TCPFlags, r.TCPFlags = FlagSYN, FlagSYN|FlagACK
	case p.isICMP():
		p.SrcPort, p.DstPort = 0, 0
		p.ICMPID, r.ICMPID = q.SrcPort, q.SrcPort
		p.Proto, p.ICMPType, r.ICMPType = model.ProtoICMP, 8, 0
		if q.Dst.Is6() {
			p.Proto, p.ICMPType, r.ICMPType = model.ProtoICMPv6, 128, 129
		}
		r.Proto = p.Proto
	}
	return p, r
}

func ownAddr(p desired.Port, family netip.Addr) netip.Addr {
	own, _ := portAddresses(&p, family)
	return own
}

// receivedPacket is a packet as somebody got it.
type receivedPacket struct {
	at     Arrival
	packet Packet
}

// follow sends a packet and returns who got it; a host's own stack has no port.
func (f *Fabric) follow(at model.HostName, p Packet, out *Outcome) (all []receivedPacket) {
	_, hops := f.Send(at, p)
	out.Hops = append(out.Hops, hops...)
	for _, h := range hops {
		v := h.Verdict
		seen := v.Packet
		if v.Sent != nil {
			seen = *v.Sent
		}
		for _, port := range v.Ports {
			all = append(all, receivedPacket{Arrival{h.Host, port}, seen})
		}
		if v.Host {
			all = append(all, receivedPacket{Arrival{h.Host, ""}, seen})
		}
	}
	return all
}

// neighbour asks, as a container's kernel would, for whom it hands a packet to: for
// the destination on its network, and else for its network's router.
func (f *Fabric) neighbour(at model.HostName, from desired.Port, p *Packet, out *Outcome) (model.MAC, bool) {
	ask := solicit(Packet{Port: p.Port, SrcMAC: p.SrcMAC, Src: p.Src, Dst: f.next(at, from, p.Dst)})
	arrived, hops := f.Send(at, ask)
	out.Hops = append(out.Hops, hops...)
	for _, hop := range hops { // answered here, or on the physical network
		if a := hop.Verdict.Answer; a != nil {
			return a.SrcMAC, true
		}
	}
	for _, a := range arrived { // flooded: the one that was asked answers
		port, ok := f.portAt(a.Host, a.Port)
		target := requestedAddr(&ask)
		if !ok || port.IPv4 != target && port.IPv6 != target {
			continue
		}
		reply := *answer(&ask, target, port.MAC)
		reply.Port = a.Port
		back, more := f.Send(a.Host, reply)
		out.Hops = append(out.Hops, more...)
		return port.MAC, slices.Contains(back, Arrival{at, p.Port})
	}
	return model.MAC{}, false
}

// next is whom a container asks for to reach an address.
func (f *Fabric) next(at model.HostName, from desired.Port, dst netip.Addr) netip.Addr {
	d := f.Host(at)
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	n := d.k.tables.networks[from.Network]
	if n == nil || n.Contains(dst) {
		return dst
	}
	router, gateway := n.Router(), n.Gateway
	if dst.Is6() {
		router, gateway = n.Router6(), n.Gateway6
	}
	if router.IsValid() {
		return router
	}
	return gateway // a machine of the physical network
}

// Probe asks whether one container reaches another: the request arrives there, and
// its answer arrives back.
type Probe struct {
	FromHost, ToHost model.HostName
	FromPort, ToPort string // interface names
	IPv6             bool
	Proto            model.Protocol // as in Request
	SrcPort, DstPort uint16
}

// Reach reports whether the request and the answer of a probe both arrived, with all
// that happened on the way.
func (f *Fabric) Reach(q Probe) (bool, []Hop) {
	to, ok := f.portAt(q.ToHost, q.ToPort)
	dst := to.IPv4
	if q.IPv6 {
		dst = to.IPv6
	}
	if !ok || !dst.IsValid() {
		return false, nil
	}
	out := f.Ask(Request{Host: q.FromHost, Port: q.FromPort, Dst: dst, Proto: q.Proto, SrcPort: q.SrcPort, DstPort: q.DstPort})
	return out.Answered && out.By == (Arrival{q.ToHost, q.ToPort}), out.Hops
}
