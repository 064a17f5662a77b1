package ebpf

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// underlay is the interface that holds this host's tunnel endpoint.
type underlay struct {
	vtep  netip.Addr
	index int // 0 = not known (any more)
	mtu   int
	name  string  // empty unless it is an Ethernet interface
	mask  [4]byte // of the address's subnet, where it is IPv4
	local bool    // an interface of this host, loopback included, has the address
}

// find looks for the interface unless it is known. Where none holds the
// address, as behind a NAT, Ethernet's MTU is taken.
func (u *underlay) find(vtep netip.Addr) error {
	if u.index != 0 && u.vtep == vtep {
		return nil
	}
	*u = underlay{vtep: vtep, mtu: 1500}
	all, err := netlink.AddrList(nil, unix.AF_UNSPEC)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range all {
		if ip, ok := netip.AddrFromSlice(a.IP); !ok || ip.Unmap() != vtep {
			continue
		}
		u.local = true
		l, err := netlink.LinkByIndex(a.LinkIndex)
		if err == nil && l.Attrs().Flags&unix.IFF_LOOPBACK == 0 {
			u.index, u.mtu = a.LinkIndex, l.Attrs().MTU
			if l.Attrs().EncapType == "ether" {
				u.name = l.Attrs().Name
				copy(u.mask[:], a.Mask)
			}
			return nil
		}
	}
	return nil
}

// source is what tunnel packets are sent from. Behind a NAT it is the routing
// table's choice, which the NAT makes the registered address.
func (u *underlay) source() (s tunnelSource) {
	if u.local {
		s.Family, s.VTEP = toVTEP(u.vtep)
	}
	return s
}

// innerMTU is the biggest packet that the tunnel carries whole.
func (u *underlay) innerMTU() int {
	return u.mtu - desired.TunnelOverhead(u.vtep)
}
