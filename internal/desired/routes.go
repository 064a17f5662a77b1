package desired

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// RouteKey names a route: what endpoints of a network send to a prefix.
type RouteKey struct {
	From model.NetworkID
	To   netip.Prefix
}

// Route leads from one network to another: of the same tenant, or one that is
// shared. No picture has one before issue 13, which compiles them for forwarding
// mode routing; until then nothing leaves a network but by the way out.
type Route struct {
	RouteKey
	Network model.NetworkID // whose endpoints have the addresses
}
