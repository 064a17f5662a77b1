package hoststack

import (
	"net"
	"net/netip"
)

// LocalAddresses are this host's; none where they cannot be read.
func LocalAddresses() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return out
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				out[addr.Unmap()] = true
			}
		}
	}
	return out
}
