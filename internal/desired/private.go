package desired

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Private is the way out of a host's containers through the host's own stack:
// endpoint addresses overlap between tenants, so each endpoint has an address
// of the host's private subnet there, and the data plane translates one to one.
type Private struct {
	Subnet    netip.Prefix // IPv4
	Addr      netip.Addr   // the host's own address in it
	Interface string       // of the host's stack; the driver makes it, with RouterMAC as its address
	RouterMAC model.MAC    // of the virtual router that containers send to
	// TunnelPort is the UDP port of all hosts' tunnels: nothing of a container
	// gets there, since hosts take what comes for each other's. 0 = none.
	TunnelPort uint16
}

// HostInterface is the host's interface to its containers.
const HostInterface = "contivh0"

var (
	// RouterMAC is the virtual router's address on every network of every host.
	RouterMAC = model.MAC{0x02, 0x01, 0, 0, 0, 1}
	// RouterAddr is the router's address on a network without a gateway.
	RouterAddr = netip.AddrFrom4([4]byte{169, 254, 1, 1})
)

// NewPrivate returns the way out by a private subnet: the host's address is the
// last usable one. nil when the subnet is not IPv4 or holds no endpoint.
func NewPrivate(subnet netip.Prefix) *Private {
	if !subnet.IsValid() || !subnet.Addr().Is4() || subnet.Bits() > 30 {
		return nil
	}
	last := subnet.Masked().Addr().As4()
	for i := subnet.Bits(); i < 31; i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	return &Private{Subnet: subnet.Masked(), Addr: netip.AddrFrom4(last), Interface: HostInterface, RouterMAC: RouterMAC}
}

// Holds tells whether an address may be an endpoint's private one: of the
// subnet, and neither its first, its last, nor the host's.
func (p *Private) Holds(a netip.Addr) bool {
	return p != nil && p.Subnet.Contains(a) && a != p.Subnet.Addr() && a.Less(p.Addr)
}

// Leads tells whether the router takes a packet from an endpoint of a network to
// an address: a unicast one outside of the network, but for private addresses of
// endpoints.
func (p *Private) Leads(n *Network, to netip.Addr) bool {
	return to.Is4() && !n.Subnet.Contains(to) && (to == p.Addr || !p.Subnet.Contains(to)) &&
		to.As4()[0] != 0 && to.As4()[0] != 127 && to.As4()[0] < 224
}

// IsTunnel tells whether a packet is for a host's tunnel. Later fragments, which
// have no ports (0 here), pass: nobody assembles them without the first.
func (p *Private) IsTunnel(proto model.Protocol, port uint16) bool {
	return proto == model.ProtoUDP && port == p.TunnelPort && port != 0
}

// Diverts tells whether the host takes a packet that a container sends to a VLAN
// network's physical router: one to the host's own private address, or one to any
// name server (UDP and TCP port 53), which the host's name server answers.
func (p *Private) Diverts(n *Network, to netip.Addr, proto model.Protocol, port uint16) bool {
	return !n.Router().IsValid() && p.Leads(n, to) &&
		(to == p.Addr || port == 53 && (proto == model.ProtoUDP || proto == model.ProtoTCP))
}
