package desired

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Domain numbers a space of addresses: a network by itself, or all networks that
// a tenant's router joins, whose subnets do not overlap. An address, a connection
// and a datagram's fragments are a domain's, so that who sent a routed packet is
// known on any of its networks.
type Domain uint32

// routers is where the numbers of domains of several networks begin.
const routers Domain = 1 << 16

// Domain returns the network's domain.
func (n *Network) Domain() Domain {
	if n.Joined != 0 {
		return routers | Domain(n.Joined)
	}
	return Domain(n.ID)
}

// Contains reports whether an address is of the network's subnets.
func (n *Network) Contains(a netip.Addr) bool {
	return a.Is4() && n.Subnet.IsValid() && n.Subnet.Contains(a) || a.Is6() && n.Subnet6.IsValid() && n.Subnet6.Contains(a)
}

// Router is the IPv4 address that the virtual router has on a network: the
// gateway's, or RouterAddr where there is no gateway. It has none without IPv4, and
// on a VLAN network that is not joined and has a gateway, the physical router's.
func (n *Network) Router() netip.Addr {
	switch {
	case !n.Subnet.IsValid() || n.physical(n.Gateway):
		return netip.Addr{}
	case n.Gateway.IsValid():
		return n.Gateway
	}
	return RouterAddr
}

// Router6 is Router for IPv6: the gateway's address, or the link-local one of
// RouterMAC, to which it answers in any case.
func (n *Network) Router6() netip.Addr {
	switch {
	case !n.Subnet6.IsValid() || n.physical(n.Gateway6):
		return netip.Addr{}
	case n.Gateway6.IsValid():
		return n.Gateway6
	}
	return RouterMAC.LinkLocal()
}

// physical reports whether a gateway is a machine of the physical network.
func (n *Network) physical(gateway netip.Addr) bool {
	return n.Encap == model.EncapVLAN && n.Joined == 0 && gateway.IsValid()
}
