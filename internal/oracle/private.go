package oracle

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The way out through the host's own stack; see docs/design/policy.md.

// routerAnswers tells whether a packet asks for the virtual router, which
// answers its containers whatever the ARP mode is.
func (t *tables) routerAnswers(from origin, p *Packet) bool {
	return t.private != nil && from.port != nil && from.port.Private.IsValid() &&
		p.ARP != nil && p.ARP.Op == ARPRequest && p.ARP.TargetIP == from.net.Router()
}

func (t *tables) isRouter(mac model.MAC) bool { return t.private != nil && mac == t.private.RouterMAC }

// toRouter tells whether an IP packet is the virtual router's to take.
func (t *tables) toRouter(from origin, p *Packet) bool {
	if t.private == nil || from.port == nil || p.DstMAC.Multicast() {
		return false
	}
	if t.isRouter(p.DstMAC) {
		return true
	}
	port := p.DstPort
	if p.Frag != nil && p.Frag.Offset != 0 {
		port = 0
	}
	return p.Dst.Is4() && t.private.Diverts(from.net, p.Dst, p.Proto, port)
}

// route finds where the router sends a packet: to the host, in the name of the
// endpoint's private address.
func (t *tables) route(from origin, p *Packet) Verdict {
	if !from.port.Private.IsValid() || !t.private.Leads(from.net, p.Dst) || t.private.IsTunnel(p.Proto, p.DstPort) {
		return dropped(driver.DropUnknownDest)
	}
	sent := *p
	sent.Port, sent.DstMAC, sent.Src = "", t.private.RouterMAC, from.port.Private
	if p.Inner != nil && p.Inner.Dst == from.port.IPv4 {
		inner := *p.Inner
		inner.Dst, sent.Inner = from.port.Private, &inner
	}
	return Verdict{Host: true, Sent: &sent}
}

// fromHost turns a packet that the host's stack sent to a private address into
// the endpoint's; "" or why it is dropped.
func (t *tables) fromHost(p *Packet) (origin, *Packet, string) {
	if t.private == nil {
		return origin{}, nil, driver.DropNetwork
	}
	if !p.isIP() {
		return origin{}, nil, driver.DropNotIP
	}
	port := t.byPrivate[p.Dst]
	if port == nil || t.networks[port.Network] == nil {
		return origin{}, nil, driver.DropUnknownDest
	}
	from := origin{net: t.networks[port.Network], host: true}
	if from.net.Subnet.Contains(p.Src) {
		return from, nil, driver.DropSpoof // nobody on the network comes this way
	}
	q := *p
	q.SrcMAC, q.DstMAC, q.Dst = t.private.RouterMAC, port.MAC, port.IPv4
	if p.Inner != nil && p.Inner.Src == p.Dst {
		inner := *p.Inner
		inner.Src, q.Inner = port.IPv4, &inner
	}
	return from, &q, ""
}

func privateText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return " private " + a.String()
}
