package desired

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// GroupKey finds a multicast group of a network.
type GroupKey struct {
	Network model.NetworkID
	Addr    netip.Addr // Grouped
}

// Group is who hears a multicast group on this host.
type Group struct {
	Ports []string // by Port.IfName, sorted; at least one, all on the group's network
}

// IsMulticastMember reports whether packets to an address are for the members of a group that
// endpoints join (docs/adr/0029-multicast.md): multicast beyond the link. 224.0.0.0/24 (RFC
// 5771 section 4) and IPv6 of a scope up to link-local (RFC 4291 section 2.7) are not: they
// are for the whole network or for no endpoint.
func IsMulticastMember(a netip.Addr) bool {
	switch {
	case !a.IsMulticast() || a.Is4In6():
		return false
	case a.Is4():
		b := a.As4()
		return b[0] != 224 || b[1] != 0 || b[2] != 0
	}
	return a.As16()[1]&15 > 2
}
