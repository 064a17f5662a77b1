package reference

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Routing between a tenant's networks; see docs/design/routing.md.

// refusal is why the router does not send a packet on, and the type and code of
// what it tells the sender, in IPv4 and in IPv6.
type refusal struct {
	reason string
	v4, v6 [2]uint8
}

// What the router tells (RFC 792, RFC 4443).
var (
	noHops     = refusal{driver.DropTTL, [2]uint8{11, 0}, [2]uint8{3, 0}}
	noRoute    = refusal{driver.DropUnknownDest, [2]uint8{3, 0}, [2]uint8{1, 0}}
	noEndpoint = refusal{driver.DropUnknownDest, [2]uint8{3, 1}, [2]uint8{1, 3}}
)

// isOtherNetwork reports whether an address is of another network of a network's domain:
// its own subnets come first.
func (t *tables) isOtherNetwork(n *desired.Network, a netip.Addr) bool {
	if n.Joined == 0 || n.Contains(a) {
		return false
	}
	for o := range t.joined[n.Domain()] {
		if o.Contains(a) {
			return true
		}
	}
	return false
}

// across reports whether a frame that another host or the physical network brings to
// a network says that it is from an address of another network of the domain, and
// whether that is to be believed: it is of a packet for one station, by the
// endpoint that has the address, as far as its MAC tells.
func (t *tables) across(n *desired.Network, p *Packet) (s station, across, believed bool) {
	a := senderAddr(p)
	if s = t.stations.byAddr(n, a); s.network() == n.ID || !s.known() && !t.isOtherNetwork(n, a) {
		return s, false, false
	}
	return s, true, s.remote != nil && s.mac() == p.SrcMAC && s.identity() != model.IdentityUnknown &&
		p.isIP() && p.ARP == nil && !p.isND() && !p.DstMAC.Multicast()
}

// deliver is toStation for an IP packet: a routed packet comes to a container from
// the router's MAC.
func (t *tables) deliver(from origin, p *Packet) Verdict {
	v := t.toStation(from, p)
	if from.port == nil && !from.host && len(v.Ports) > 0 {
		if s := t.stations.byAddr(from.net, p.Src); s.known() && s.network() != from.net.ID {
			sent := *p
			sent.VTEP, sent.Network, sent.Uplink, sent.VLAN, sent.SrcMAC = netip.Addr{}, 0, false, 0, desired.RouterMAC
			v.Sent = &sent
		}
	}
	return v
}

// byRouter finds where the router of a sender's host sends a packet; outside tells
// that it is by egress.
func (t *tables) byRouter(from origin, p *Packet) (v Verdict, outside bool) {
	if t.isOtherNetwork(from.net, p.Dst) {
		return t.route(from, p), false
	}
	if v = t.out(from, p); v.Passed() || from.net.Joined == 0 || from.net.Contains(p.Dst) {
		return v, true
	}
	return t.refuse(from, p, noRoute), false
}

// route sends a packet to another network of the domain, to the endpoint that has
// the address there; that endpoint's host does not route it again.
func (t *tables) route(from origin, p *Packet) Verdict {
	if from.port.Identity == model.IdentityUnknown || !from.net.Contains(p.Src) {
		return dropped(driver.DropUnknownSource) // the receiver could neither identify the source nor answer it
	}
	if p.Hops() == 1 {
		return t.refuse(from, p, noHops)
	}
	to := t.stations.byAddr(from.net, p.Dst)
	net := t.networks[to.network()]
	if net == nil || !net.Contains(p.Dst) {
		return t.refuse(from, p, noEndpoint)
	}
	sent := *p
	sent.Port, sent.DstMAC, sent.TTL = "", to.mac(), p.Hops()-1
	v := Verdict{Sent: &sent}
	switch {
	case to.port != nil:
		sent.SrcMAC, v.Ports = desired.RouterMAC, []string{to.port.IfName}
	case net.Encap == model.EncapVLAN:
		v.Uplink, v.VLAN = true, net.Tag
	default:
		v.VTEPs, v.Network = []netip.Addr{to.remote.VTEP}, net.ID
	}
	return v
}

// refuse drops a packet and tells its sender why, if that may be told.
func (t *tables) refuse(from origin, p *Packet, r refusal) Verdict {
	v := dropped(r.reason)
	router, proto, what := from.net.Router(), model.ProtoICMP, r.v4
	if p.Src.Is6() {
		router, proto, what = from.net.Router6(), model.ProtoICMPv6, r.v6
	}
	if !from.net.Contains(p.Src) || !oneStation(p.Dst) || p.isError() || p.Frag != nil && p.Frag.Offset != 0 {
		return v
	}
	about := *p
	about.Port = ""
	v.Answer = &Packet{
		SrcMAC: desired.RouterMAC, DstMAC: p.SrcMAC, Src: router, Dst: p.Src,
		Proto: proto, ICMPType: what[0], ICMPCode: what[1], Inner: &about,
	}
	return v
}

// isError reports whether a packet is an ICMP error, or may be one, of an unknown type (RFC
// 4443 section 2.1).
func (p *Packet) isError() bool {
	return p.Proto == model.ProtoICMP && icmp4Error[p.ICMPType] || p.Proto == model.ProtoICMPv6 && p.ICMPType < 128
}

// oneStation reports whether an address can be a single machine's that a router
// reaches.
func oneStation(a netip.Addr) bool {
	if a.Is4() && (a.As4()[0] == 0 || a.As4()[0] >= 240) {
		return false
	}
	return !a.IsMulticast() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast()
}
