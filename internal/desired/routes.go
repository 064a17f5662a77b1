package desired

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// RouteKey names a route: what endpoints of a domain send to a prefix.
type RouteKey struct {
	From Domain
	To   netip.Prefix
}

// Route leads from a domain to a network outside of it that is shared; networks of
// one domain need none. No picture has one before networks can be shared.
type Route struct {
	RouteKey
	Network model.NetworkID // whose endpoints have the addresses
}
