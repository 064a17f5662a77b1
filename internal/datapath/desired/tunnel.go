package desired

import "net/netip"

// TunnelOverhead returns how many bytes of the underlay's MTU a VXLAN tunnel between
// addresses of vtep's family takes: outer IP, UDP and VXLAN headers and the inner
// Ethernet header (RFC 7348 section 5).
func TunnelOverhead(vtep netip.Addr) int {
	if vtep.Is6() {
		return 70
	}
	return 50
}
