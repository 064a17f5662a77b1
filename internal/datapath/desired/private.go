package desired

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// HostNAT is egress of a host's containers through the host's own stack:
// endpoint addresses overlap between tenants, so each endpoint has an address
// of the host's private subnet there, and the data plane translates one to one.
type HostNAT struct {
	Subnet    netip.Prefix // IPv4
	Addr      netip.Addr   // the host's own address in it
	Subnet6   netip.Prefix // model.PvtSubnet6; zero = IPv6 has no egress
	Addr6     netip.Addr   // the host's own address in it
	Interface string       // of the host's stack; the driver makes it, with RouterMAC as its address
	RouterMAC model.MAC    // of the virtual router that containers send to
	// TunnelPort is the UDP port of all hosts' tunnels, where nothing from a
	// container may get: hosts take what comes there for another host's. 0 = none.
	TunnelPort uint16
}

// HostInterface is the host's interface to its containers.
const HostInterface = "contivh0"

// RouterInterface is the host's interface to its physical network's routers where the
// uplinks are a switch's.
const RouterInterface = "contivr0"

// OwnMark is the mark of packets that sockets of the host send by HostInterface, as
// they are: not forwarded, nor translated. Data planes ask no policy of the host's own
// containers about them on native networks. It has none of the bits 0x4000 and 0x8000, by
// which kube-proxy masquerades and kubelets drop.
const OwnMark = 0xc0ff2e77

var (
	// RouterMAC is the virtual router's address on every network of every host.
	RouterMAC = model.MAC{0x02, 0x01, 0, 0, 0, 1}
	// RouterAddr is the router's address on a network without a gateway.
	RouterAddr = netip.AddrFrom4([4]byte{169, 254, 1, 1})
)

// NewHostNAT returns egress by a private subnet: the host's address is the
// last usable one. nil when the subnet is not IPv4 or holds no endpoint.
func NewHostNAT(subnet netip.Prefix) *HostNAT {
	if !subnet.IsValid() || !subnet.Addr().Is4() || subnet.Bits() > 30 {
		return nil
	}
	last := subnet.Masked().Addr().As4()
	for i := subnet.Bits(); i < 31; i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	return &HostNAT{Subnet: subnet.Masked(), Addr: netip.AddrFrom4(last), Interface: HostInterface, RouterMAC: RouterMAC}
}

// WithIPv6 gives IPv6 egress as well.
func (p *HostNAT) WithIPv6() *HostNAT {
	if p != nil {
		p.Subnet6 = model.PvtSubnet6
		p.Addr6 = p.Private6(p.Addr)
	}
	return p
}

// WithoutIPv6 returns egress for IPv4 alone.
func (p *HostNAT) WithoutIPv6() *HostNAT {
	if p == nil || !p.Subnet6.IsValid() {
		return p
	}
	four := *p
	four.Subnet6, four.Addr6 = netip.Prefix{}, netip.Addr{}
	return &four
}

// Private6 returns the IPv6 address that goes with a private IPv4 one; zero = there
// is none.
func (p *HostNAT) Private6(a netip.Addr) netip.Addr {
	if p == nil || !p.Subnet6.IsValid() || !a.Is4() {
		return netip.Addr{}
	}
	b, low := p.Subnet6.Addr().As16(), a.As4()
	copy(b[12:], low[:])
	return netip.AddrFrom16(b)
}

// Contains reports whether an address may be an endpoint's private one: of the
// subnet, and neither its first, its last, the host's, nor Relay's.
func (p *HostNAT) Contains(a netip.Addr) bool {
	return p != nil && p.Subnet.Contains(a) && a != p.Subnet.Addr() && a.Less(p.Addr) && a != p.Relay(false)
}

// Relay returns the address by which a data plane asks backends that are no endpoints for
// clients outside: the one before the host's. Zero = there is none.
func (p *HostNAT) Relay(v6 bool) netip.Addr {
	switch {
	case p == nil || p.Subnet.Bits() > 29:
		return netip.Addr{}
	case v6:
		return p.Private6(p.Addr.Prev())
	}
	return p.Addr.Prev()
}

// Relays reports whether a data plane may send packets of clients outside to a backend of a
// network's service that is no endpoint.
func (p *HostNAT) Relays(n *Network, to netip.AddrPort, proto model.Protocol) bool {
	return p.Relay(to.Addr().Is6()).IsValid() && p.Takes(n, to.Addr()) && !p.IsTunnel(proto, to.Port())
}

// Takes reports whether the router takes a packet from an endpoint of a network to an
// address: a unicast one outside of the network, but for endpoints' private
// addresses and Nowhere.
func (p *HostNAT) Takes(n *Network, to netip.Addr) bool {
	switch {
	case n.Contains(to) || to.Is6() && !p.Subnet6.IsValid():
		return false
	case to == p.Addr || to == p.Addr6:
		return true
	}
	return !p.Subnet.Contains(to) && !p.Subnet6.Contains(to) &&
		!InBlackhole(to)
}

// Blackhole is where no router leads: this network, loopback, multicast and reserved
// (RFC 6890), and of IPv6 also addresses of IPv4 (::ffff:0:0/96) and a link's.
var Blackhole = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/64"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// IsTunnel reports whether a packet is for a host's tunnel. Later fragments, which have no
// ports (0 here), pass: without the first one they are never reassembled.
func (p *HostNAT) IsTunnel(proto model.Protocol, port uint16) bool {
	return proto == model.ProtoUDP && port == p.TunnelPort && port != 0
}

// InBlackhole reports whether an address is in Blackhole.
func InBlackhole(a netip.Addr) bool {
	return slices.ContainsFunc(Blackhole, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Diverts reports whether the host takes a packet that a container sends to a VLAN
// network's physical router: one to the host's own private address, or one to any
// name server (UDP and TCP port 53), which the host's name server answers.
func (p *HostNAT) Diverts(n *Network, to netip.Addr, proto model.Protocol, port uint16) bool {
	router := n.Router()
	if to.Is6() {
		router = n.Router6()
	}
	return !router.IsValid() && p.Takes(n, to) &&
		(to == p.Addr || to == p.Addr6 || port == 53 && (proto == model.ProtoUDP || proto == model.ProtoTCP))
}

// Addr returns the port's address of a family, zero when it has none.
func (p *Port) Addr(v6 bool) netip.Addr {
	if v6 {
		return p.IPv6
	}
	return p.IPv4
}

// PrivateNumber is the number that a port's private addresses have in common, and
// no other port's have, as an IPv4 address. Zero = the port has none.
func (p *Port) PrivateNumber() netip.Addr {
	if b := p.Private6; b.Is6() {
		a := b.As16()
		return netip.AddrFrom4([4]byte(a[12:]))
	}
	return p.Private
}

// Check returns an error unless each private address of a port may be an
// endpoint's, the port has an own address of that family, and both have one number.
func (p *HostNAT) Check(o *Port) error {
	n := o.PrivateNumber()
	if o.Private.IsValid() && (o.Private != n || !p.Contains(n) || !o.IPv4.IsValid()) {
		return model.Errorf(model.ErrInvalid, "private address %s is not an endpoint's in %s", o.Private, p.Subnet)
	}
	if o.Private6.IsValid() && (o.Private6 != p.Private6(n) || !p.Contains(n) || !o.IPv6.IsValid()) {
		return model.Errorf(model.ErrInvalid, "private address %s is not an endpoint's in %s", o.Private6, p.Subnet6)
	}
	return nil
}
