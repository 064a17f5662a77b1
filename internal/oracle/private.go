package oracle

import (
	"net/netip"
	"strings"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The way out through the host's own stack; see docs/design/policy.md.

// routerAnswers tells whether a packet asks for the virtual router, which
// answers its containers whatever the ARP mode is.
func (t *tables) routerAnswers(from origin, p *Packet) bool {
	switch {
	case t.private == nil || from.port == nil || !asks(p):
		return false
	case p.ARP != nil:
		return from.port.Private.IsValid() && p.ARP.TargetIP == from.net.Router()
	}
	router := from.net.Router6()
	return from.port.Private6.IsValid() && router.IsValid() && (p.ND.Target == router || p.ND.Target == t.private.RouterMAC.LinkLocal())
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
	return t.private.Diverts(from.net, p.Dst, p.Proto, port)
}

// ways are a port's own and private addresses of an address's family.
func ways(port *desired.Port, family netip.Addr) (own, private netip.Addr) {
	if family.Is4() {
		return port.IPv4, port.Private
	}
	return port.IPv6, port.Private6
}

// route finds where the router sends a packet: to the host, in the name of the
// endpoint's private address.
func (t *tables) route(from origin, p *Packet) Verdict {
	own, private := ways(from.port, p.Dst)
	if !private.IsValid() || p.Src != own || !t.private.Leads(from.net, p.Dst) || t.private.IsTunnel(p.Proto, p.DstPort) {
		return dropped(driver.DropUnknownDest)
	}
	sent := *p
	sent.Port, sent.DstMAC, sent.Src = "", t.private.RouterMAC, private
	if p.Inner != nil && p.Inner.Dst == own {
		inner := *p.Inner
		inner.Dst, sent.Inner = private, &inner
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
	if from.net.Holds(p.Src) || p.isND() || p.Src.Is6() && p.Src.IsLinkLocalUnicast() {
		return from, nil, driver.DropSpoof // nobody on the network comes this way
	}
	own, _ := ways(port, p.Dst)
	q := *p
	q.SrcMAC, q.DstMAC, q.Dst = t.private.RouterMAC, port.MAC, own
	if p.Inner != nil && p.Inner.Src == p.Dst {
		inner := *p.Inner
		inner.Src, q.Inner = own, &inner
	}
	return from, &q, ""
}

func privateText(port *desired.Port) string {
	var b strings.Builder
	for _, a := range []netip.Addr{port.Private, port.Private6} {
		if a.IsValid() {
			b.WriteString(" private " + a.String())
		}
	}
	return b.String()
}
