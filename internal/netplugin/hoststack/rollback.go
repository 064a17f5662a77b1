package hoststack

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
)

// RolledBack says why a route is rolled back, and what to do.
const RolledBack = "its route is rolled back: with it no netmaster answered, and without it one does; delete it, or give it other addresses; " + hostchanges.ApplyAgain

// errRolledBack is why such a route is not there.
var errRolledBack = model.Errorf(model.ErrConflict, "%s", RolledBack)

// RemovedRoutes are routes of this host's that were removed before its desired state is
// known, so that no Apply removes them. The zero value has none.
type RemovedRoutes struct{ routes []netlink.Route }

// Remove removes the routes to prefixes that a Stack or a Fabric has made.
func (r *RemovedRoutes) Remove(prefixes []netip.Prefix) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	index := -1
	if link, err := h.LinkByName(desired.HostInterface); err == nil {
		index = link.Attrs().Index
	}
	var errs []error
	for _, p := range prefixes {
		family := netlink.FAMILY_V4
		if p.Addr().Is6() {
			family = netlink.FAMILY_V6
		}
		found, err := h.RouteListFiltered(family, &netlink.Route{Dst: ipNet(p)}, netlink.RT_FILTER_DST)
		errs = append(errs, err)
		for _, x := range found {
			if x.Protocol != fabricProtocol && (x.Protocol != unix.RTPROT_STATIC || x.LinkIndex != index) {
				continue
			}
			if err := h.RouteDel(&x); err != nil {
				errs = append(errs, fmt.Errorf("remove route %s: %w", p, err))
				continue
			}
			r.routes = append(r.routes, x)
		}
	}
	return errors.Join(errs...)
}

// Restore adds them again.
func (r *RemovedRoutes) Restore() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	var errs []error
	for _, x := range r.routes {
		if err := h.RouteReplace(&x); err != nil {
			errs = append(errs, fmt.Errorf("add route %s: %w", x.Dst, err))
		}
	}
	r.routes = nil
	return errors.Join(errs...)
}
