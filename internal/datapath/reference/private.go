package reference

import (
	"net/netip"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Egress through the host's own stack; see docs/design/policy.md.

// routerAnswers reports whether a packet asks for the virtual router, which
// answers its containers whatever the ARP mode is.
func (t *tables) routerAnswers(from origin, p *Packet) bool {
	if from.port == nil || !isNeighbourRequest(p) {
		return false
	}
	joined := from.net.Joined != 0 || t.private != nil && from.net.Routed
	if p.ARP != nil {
		router := from.net.Router()
		return (joined || t.private != nil && from.port.Private.IsValid()) && router.IsValid() && p.ARP.TargetIP == router
	}
	router := from.net.Router6()
	return (joined || t.private != nil && from.port.Private6.IsValid()) && router.IsValid() &&
		(p.ND.Target == router || p.ND.Target == desired.RouterMAC.LinkLocal())
}

// isRouter reports whether a MAC is the router's, and the router takes what is sent
// on a network.
func (t *tables) isRouter(n *desired.Network, mac model.MAC) bool {
	return mac == desired.RouterMAC && (t.private != nil || n.Joined != 0)
}

// toRouter reports whether an IP packet is the virtual router's to take.
func (t *tables) toRouter(from origin, p *Packet) bool {
	if from.port == nil || p.DstMAC.Multicast() {
		return false
	}
	if t.isRouter(from.net, p.DstMAC) {
		return true
	}
	if t.private == nil {
		return false
	}
	port := p.DstPort
	if p.Frag != nil && p.Frag.Offset != 0 {
		port = 0
	}
	return t.private.Diverts(from.net, p.Dst, p.Proto, port)
}

// portAddresses are a port's own and private addresses of an address's family.
func portAddresses(port *desired.Port, family netip.Addr) (own, private netip.Addr) {
	if family.Is4() {
		return port.IPv4, port.Private
	}
	return port.IPv6, port.Private6
}

// out finds where the router sends a packet by egress: to the host, in the
// name of the endpoint's private address.
func (t *tables) out(from origin, p *Packet) Verdict {
	own, private := portAddresses(from.port, p.Dst)
	if from.net.Routed {
		return t.sendRouted(from, p, own)
	}
	if t.private == nil || !private.IsValid() || p.Src != own || !t.private.Takes(from.net, p.Dst) || t.private.IsTunnel(p.Proto, p.DstPort) {
		return dropped(driver.DropUnknownDest)
	}
	sent := *p
	sent.Port, sent.DstMAC, sent.Src = "", desired.RouterMAC, private
	if p.Inner != nil && p.Inner.Dst == own {
		inner := *p.Inner
		inner.Dst, sent.Inner = private, &inner
	}
	return Verdict{Host: true, Sent: &sent}
}

// fromHost turns a packet that the host's stack sent to a private address into the
// endpoint's; the text says why it is dropped, "" = it is not.
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
	from := origin{net: t.networks[port.Network], host: true, own: p.Own}
	if from.net.Contains(p.Src) || t.isOtherNetwork(from.net, p.Src) || p.isND() || p.Src.Is6() && p.Src.IsLinkLocalUnicast() {
		return from, nil, driver.DropSpoof // endpoints of the domain do not come this way
	}
	own, _ := portAddresses(port, p.Dst)
	q := *p
	q.Own, q.SrcMAC, q.DstMAC, q.Dst = false, desired.RouterMAC, port.MAC, own
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
