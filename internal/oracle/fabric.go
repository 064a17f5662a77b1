package oracle

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Fabric joins several hosts: what one sends into a tunnel or out
// of its uplink arrives at the others and is judged there too.
type Fabric struct {
	hosts []fabricHost
}

type fabricHost struct {
	name model.HostName
	host *Driver
}

// Add connects a host.
func (f *Fabric) Add(name model.HostName, host *Driver) {
	f.hosts = append(f.hosts, fabricHost{name, host})
}

// Host returns a host, nil when it was not added.
func (f *Fabric) Host(name model.HostName) *Driver {
	for _, h := range f.hosts {
		if h.name == name {
			return h.host
		}
	}
	return nil
}

// Hop is what one host did with a packet.
type Hop struct {
	Host    model.HostName
	Verdict Verdict
}

// Arrival is a container that a packet reached.
type Arrival struct {
	Host model.HostName
	Port string
}

// Send sends a packet at a host and follows it to all others. Arrivals are
// sorted by host, in the order of Add, and port; hops begin with the sender's.
func (f *Fabric) Send(at model.HostName, p Packet) (arrived []Arrival, hops []Hop) {
	from := f.Host(at)
	if from == nil {
		return nil, nil
	}
	first := from.Send(p)
	hops = append(hops, Hop{at, first})
	for _, h := range f.hosts {
		var v Verdict
		if h.name == at {
			v = first
		} else if next, ok := f.carry(first, from, h.host, p); ok {
			v = h.host.Send(next)
			hops = append(hops, Hop{h.name, v})
		}
		for _, port := range v.Ports {
			arrived = append(arrived, Arrival{h.name, port})
		}
	}
	return arrived, hops
}

// carry makes the packet that arrives at another host, if one does. Networks
// have one number in the whole cluster, so it stands for the VNI.
func (f *Fabric) carry(v Verdict, from, to *Driver, p Packet) (Packet, bool) {
	if p.Port = ""; v.Sent != nil {
		p = *v.Sent
	}
	if v.Uplink {
		p.Uplink, p.VLAN = true, v.VLAN
		return p, true
	}
	if slices.Contains(v.VTEPs, to.vtep()) {
		p.VTEP, p.Network = from.vtep(), v.Network
		return p, true
	}
	return Packet{}, false
}

func (d *Driver) vtep() netip.Addr {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	return d.k.tables.vtep
}

// port returns a port as it is programmed.
func (d *Driver) port(name string) (desired.Port, bool) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	if p := d.k.tables.ports[name]; p != nil {
		return *p, true
	}
	return desired.Port{}, false
}

// Probe asks whether one container reaches another as an application would
// see it: the request arrives there, and its answer arrives back.
type Probe struct {
	FromHost, ToHost model.HostName
	FromPort, ToPort string // interface names
	IPv6             bool
	Proto            model.Protocol // TCP, UDP, SCTP; ICMP = echo; others = one packet each way
	SrcPort, DstPort uint16         // SrcPort is the identifier for echo
}

// Reach sends the request and the answer of a probe and tells whether both
// arrived, with all that happened on the way. Asking for the neighbour comes
// first: a sender that gets no answer sends nothing.
func (f *Fabric) Reach(q Probe) (bool, []Hop) {
	from, ok1 := f.portAt(q.FromHost, q.FromPort)
	to, ok2 := f.portAt(q.ToHost, q.ToPort)
	if !ok1 || !ok2 {
		return false, nil
	}
	src, dst := from.IPv4, to.IPv4
	if q.IPv6 {
		src, dst = from.IPv6, to.IPv6
	}
	toNext, backNext := f.next(q.FromHost, from, to, dst), f.next(q.ToHost, to, from, src)
	if !src.IsValid() || !dst.IsValid() {
		return false, nil
	}
	p := Packet{
		Port: q.FromPort, SrcMAC: from.MAC, DstMAC: toNext.mac, Src: src, Dst: dst,
		Proto: q.Proto, SrcPort: q.SrcPort, DstPort: q.DstPort,
	}
	r := Packet{
		Port: q.ToPort, SrcMAC: to.MAC, DstMAC: backNext.mac, Src: dst, Dst: src,
		Proto: q.Proto, SrcPort: q.DstPort, DstPort: q.SrcPort,
	}
	switch {
	case q.Proto == model.ProtoTCP:
		p.TCPFlags, r.TCPFlags = FlagSYN, FlagSYN|FlagACK
	case p.isICMP():
		p.SrcPort, p.DstPort, r.SrcPort, r.DstPort = 0, 0, 0, 0
		p.ICMPID, r.ICMPID = q.SrcPort, q.SrcPort
		p.Proto, p.ICMPType, r.ICMPType = model.ProtoICMP, 8, 0
		if q.IPv6 {
			p.Proto, p.ICMPType, r.ICMPType = model.ProtoICMPv6, 128, 129
		}
		r.Proto = p.Proto
	}
	var hops []Hop
	for _, leg := range []struct {
		at   model.HostName
		p    Packet
		by   netip.Addr
		want Arrival
	}{{q.FromHost, p, toNext.addr, Arrival{q.ToHost, q.ToPort}}, {q.ToHost, r, backNext.addr, Arrival{q.FromHost, q.FromPort}}} {
		if found, more := f.resolve(leg.at, leg.p, leg.by); !found {
			return false, append(hops, more...)
		}
		arrived, more := f.Send(leg.at, leg.p)
		hops = append(hops, more...)
		if !slices.Contains(arrived, leg.want) {
			return false, hops
		}
	}
	return true, hops
}

// hop is whom a container hands a packet to.
type hop struct {
	addr netip.Addr
	mac  model.MAC
}

// next is whom a container asks for to reach an address: the endpoint itself, or
// its network's router when that joins networks and the address is on another one.
func (f *Fabric) next(at model.HostName, from, to desired.Port, dst netip.Addr) hop {
	d := f.Host(at)
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	n := d.k.tables.networks[from.Network]
	if n == nil || n.Joined == 0 || n.Holds(dst) {
		return hop{dst, to.MAC}
	}
	if dst.Is4() {
		return hop{n.Router(), desired.RouterMAC}
	}
	return hop{n.Router6(), desired.RouterMAC}
}

// resolve asks for whom a packet is handed to, as its sender's kernel would, and
// tells whether an answer with the packet's MAC came back.
func (f *Fabric) resolve(at model.HostName, p Packet, by netip.Addr) (bool, []Hop) {
	p.Dst = by
	ask := solicit(p)
	arrived, hops := f.Send(at, ask)
	if a := hops[0].Verdict.Answer; a != nil {
		return a.SrcMAC == p.DstMAC, hops
	}
	for _, hop := range hops[1:] { // answered on the physical network
		if a := hop.Verdict.Answer; a != nil {
			return a.SrcMAC == p.DstMAC, hops
		}
	}
	for _, a := range arrived { // flooded: the one that was asked answers
		port, ok := f.portAt(a.Host, a.Port)
		if !ok || port.IPv4 != p.Dst && port.IPv6 != p.Dst {
			continue
		}
		reply := *answer(&ask, p.Dst, port.MAC)
		reply.Port = a.Port
		back, more := f.Send(a.Host, reply)
		return port.MAC == p.DstMAC && slices.Contains(back, Arrival{at, p.Port}), append(hops, more...)
	}
	return false, hops
}

// solicit makes the ARP request or neighbour solicitation for a packet's destination.
func solicit(p Packet) Packet {
	if p.Dst.Is4() {
		return Packet{Port: p.Port, SrcMAC: p.SrcMAC, DstMAC: Broadcast, ARP: &ARP{
			Op: ARPRequest, SenderMAC: p.SrcMAC, SenderIP: p.Src, TargetIP: p.Dst,
		}}
	}
	group, mac := SolicitedNode(p.Dst)
	return Packet{
		Port: p.Port, SrcMAC: p.SrcMAC, DstMAC: mac, Src: p.Src, Dst: group, Proto: model.ProtoICMPv6,
		ICMPType: NDNeighborSolicit, ND: &ND{Target: p.Dst, LinkAddr: p.SrcMAC, HasLink: true},
	}
}

// SolicitedNode returns the multicast group that an address is asked for in
// (RFC 4291 section 2.7.1), and its MAC (RFC 2464 section 7).
func SolicitedNode(a netip.Addr) (netip.Addr, model.MAC) {
	b := a.As16()
	group := [16]byte{0xff, 2, 11: 1, 12: 0xff, 13: b[13], b[14], b[15]}
	return netip.AddrFrom16(group), model.MAC{0x33, 0x33, 0xff, b[13], b[14], b[15]}
}

func (f *Fabric) portAt(host model.HostName, name string) (desired.Port, bool) {
	from := f.Host(host)
	if from == nil {
		return desired.Port{}, false
	}
	return from.port(name)
}
