package reference

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
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
	if v.Sent != nil {
		p = *v.Sent
	}
	p.Port = ""
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
