package reference

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// Native networks, between their endpoints and the stacks of hosts; see
// docs/design/native.md.

// routedNetworkAt finds the native network that has an address in its subnets: the one with
// the longest prefix, of several the one with the smallest number.
func (t *tables) routedNetworkAt(a netip.Addr) (found *desired.Network) {
	longest := -1
	for n := range t.natives {
		bits := n.Subnet.Bits()
		if a.Is6() {
			bits = n.Subnet6.Bits()
		}
		if n.Contains(a) && (bits > longest || bits == longest && n.ID < found.ID) {
			found, longest = n, bits
		}
	}
	return found
}

// byItsNode reports whether packets of a tunnel endpoint may have an address as source: the
// address of a machine of the cluster only from that machine.
func (t *tables) byItsNode(a, vtep netip.Addr) bool {
	by, node := t.nodes.Get(a)
	return !node || by == vtep
}

// fromStack judges what the host's own stack sends to an address of a native network.
func (k *kernel) fromStack(p *Packet, n *desired.Network) Verdict {
	t := k.tables
	to := t.stations.onNetwork(n, p.Dst)
	switch {
	case !p.isIP():
		return dropped(driver.DropNotIP)
	case p.isND() || !t.isOutside(n, p.Src) && !t.isHost(p.Src):
		return dropped(driver.DropSpoof)
	case to.remote != nil && (t.isHost(p.Src) || !t.byItsNode(p.Src, t.vtep)):
		return dropped(driver.DropSpoof) // its host would not believe that
	case p.damaged():
		return dropped(driver.DropInvalid)
	case !to.known():
		return dropped(driver.DropUnknownDest)
	}
	q := *p
	q.Host, q.Own, q.SrcMAC, q.DstMAC = false, false, desired.RouterMAC, to.mac()
	v := k.fromBackend(origin{net: n, host: true, own: p.Own}, &q)
	if v.Passed() && v.Sent == nil {
		v.Sent = &q
	}
	return v
}

// sendRouted is out for a routed network: to the host's stack, or, by the tunnel, to the
// stack of the machine that has the address.
func (t *tables) sendRouted(from origin, p *Packet, own netip.Addr) Verdict {
	if t.private == nil || p.Src != own || !t.private.Takes(from.net, p.Dst) || t.routedNetworkAt(p.Dst) != nil || t.private.IsTunnel(p.Proto, p.DstPort) {
		return dropped(driver.DropUnknownDest)
	}
	sent := *p
	sent.Port, sent.DstMAC = "", desired.RouterMAC
	by, node := t.nodes.Get(p.Dst)
	if !node || by == t.vtep {
		return Verdict{Host: true, Sent: &sent}
	}
	if _, known := t.tunnels.Get(by); !known {
		return dropped(driver.DropUnknownDest)
	}
	sent.SrcMAC = desired.RouterMAC
	return Verdict{VTEPs: []netip.Addr{by}, Network: from.net.ID, Sent: &sent}
}

// backToStack gives the host's stack what an endpoint elsewhere sends to one of the
// host's own addresses, or to a client that this host's stack has led there.
func (k *kernel) backToStack(from origin, p *Packet) Verdict {
	t := k.tables
	if p.damaged() {
		return dropped(driver.DropInvalid)
	}
	if by, node := t.nodes.Get(p.Dst); !node || by != t.vtep {
		orig, ok := k.conns.classify(from.net, p, false)
		if !ok {
			return dropped(driver.DropInvalid)
		}
		if was, known := k.conns.conns[orig]; !known || orig.src != p.Dst || !was.outside {
			return dropped(driver.DropUnknownDest)
		}
	}
	return k.forwardBy(from, p, toStack(p))
}

// answersStack reports whether a container's packet to the router belongs to a connection
// that this host's stack has begun, or a client that it forwarded: the stack gets it, which
// may have translated its packets.
func (k *kernel) answersStack(from origin, p *Packet) bool {
	if from.port == nil || !from.net.Routed || p.DstMAC != desired.RouterMAC {
		return false
	}
	orig, ok := k.conns.classify(from.net, p, true)
	was, known := k.conns.conns[orig]
	return ok && known && orig.src == p.Dst && was.outside
}

// toStack hands a packet to the host's stack.
func toStack(p *Packet) *Verdict {
	sent := *p
	sent.Port, sent.VTEP, sent.Network, sent.SrcMAC, sent.DstMAC = "", netip.Addr{}, 0, desired.RouterMAC, desired.RouterMAC
	return &Verdict{Host: true, Sent: &sent}
}

func nativeText(n *desired.Network) string {
	if n.Routed {
		return " native"
	}
	return ""
}
