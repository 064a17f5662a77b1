package ovs

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// In user space the switch finds the route of the tunnel's packets by a table that it
// empties and reads again whenever an interface of the host comes or goes (Open vSwitch
// 3.1, lib/route-table.c). Packets that are to leave meanwhile are dropped. Routes that it
// was given (ovs/route/add) outlive that, so the driver gives it the route to the tunnel's
// own link. A tunnel with local_ip also needs an entry of that address, which cannot be
// given: so it has no local_ip where the switch finds the address by itself.

const (
	// routeKey is in the bridge's external_ids: what the driver has given the switch, so
	// that another one finds it.
	routeKey = "contiv-route"
	// routeRetry is how soon the host's addresses are looked at again.
	routeRetry = 10 * time.Second
	localIP    = "local_ip"
)

// syncRoute gives the switch the tunnel's route, or takes back one that is not right any
// more; force asks the switch whether it still has it. Until it has the route the tunnel
// keeps local_ip, and packets are lost while interfaces come and go.
func (u *underlay) syncRoute(ctx context.Context, force bool) error {
	if u.cfg.Datapath != "netdev" || !u.cfg.VTEP.IsValid() {
		return nil
	}
	if !force && time.Since(u.routeSeen) < routeRetry {
		return nil
	}
	u.noSubnet = false
	bridge, link := u.tunnelLink()
	want := netip.Prefix{}
	if link.IsValid() {
		want = link.Masked()
	}
	u.routeSeen = time.Now()
	if !force && want == u.route {
		return nil
	}
	u.conns.db.mu.Lock()
	given := ""
	if b := u.conns.db.bridge(u.cfg.Bridge); b != nil {
		given = b.ExternalIDs[routeKey]
	}
	u.conns.db.mu.Unlock()
	if given != "" && given != want.String() {
		dropRoute(ctx, u.cfg.RunDir, given)
	}
	if !want.IsValid() {
		u.route = want
		return nil
	}
	u.bridge.rowMu.Lock()
	u.bridge.noted = want.String() // before there is something to find
	u.bridge.rowMu.Unlock()
	if _, err := u.bridge.ensureBridge(ctx, u.conns.db); err != nil {
		return err
	}
	table, err := control(ctx, u.cfg.RunDir, "ovs/route/show")
	if err == nil && !hasRoute(table, want, bridge, u.cfg.VTEP) {
		if _, err = control(ctx, u.cfg.RunDir, "ovs/route/add", want.String(), bridge); err == nil {
			table, err = control(ctx, u.cfg.RunDir, "ovs/route/show")
		}
	}
	switch {
	case err != nil: // it stands still, or is of a version without
		u.routeSeen = time.Time{}
		u.cfg.Log.Debug("the switch was not given the route to the tunnel's link: packets between hosts may be lost while interfaces come and go", "route", want, "error", err)
	case hasRoute(table, want, bridge, u.cfg.VTEP):
		u.route = want
	default: // with another source
		u.route = netip.Prefix{}
		dropRoute(ctx, u.cfg.RunDir, want.String())
	}
	return nil
}

// dropRoute takes back a route that the switch was given. A switch that does not answer
// has forgotten it by the time it does.
func dropRoute(ctx context.Context, runDir, route string) {
	if route != "" {
		_, _ = control(ctx, runDir, "ovs/route/del", route)
	}
}

// hasRoute reads the answer of ovs/route/show.
func hasRoute(table string, route netip.Prefix, bridge string, src netip.Addr) bool {
	for line := range strings.Lines(table) {
		if slices.Equal(strings.Fields(line), []string{"User:", route.String(), "dev", bridge, "SRC", src.String()}) {
			return true
		}
	}
	return false
}

// tunnelLink is the bridge that has the tunnel's address, and that address with its
// link's prefix, where the switch can find both by itself: no bridge has another address
// of the family, and no route leads to a part of the link by another way, over which the
// given route would win. Else the prefix is zero.
func (u *underlay) tunnelLink() (bridge string, link netip.Prefix) {
	links, family := u.links, netlink.FAMILY_V4
	if u.cfg.VTEP.Is6() {
		family = netlink.FAMILY_V6
	}
	for _, name := range u.conns.db.bridgeNames() {
		if name == u.cfg.Bridge {
			continue
		}
		l, err := links.LinkByName(name)
		if err != nil {
			continue // a bridge that has just come or gone
		}
		have, err := links.AddrList(l, family)
		if err != nil {
			return "", netip.Prefix{}
		}
		for _, a := range have {
			ip, ok := netip.AddrFromSlice(a.IP)
			ones, bits := a.Mask.Size()
			switch ip = ip.Unmap(); {
			case !ok || ip.IsLinkLocalUnicast():
			case ip == u.cfg.VTEP && ones == bits: // the switch takes a source whose subnet holds the next hop
				u.noSubnet = true
				return "", netip.Prefix{}
			case ip != u.cfg.VTEP || ones == bits || link.IsValid():
				return "", netip.Prefix{}
			default:
				bridge, link = name, netip.PrefixFrom(ip, ones)
			}
		}
	}
	if !link.IsValid() {
		return "", link
	}
	routes, err := links.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return "", netip.Prefix{}
	}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		ip, ok := netip.AddrFromSlice(r.Dst.IP)
		ones, _ := r.Dst.Mask.Size()
		if ok && ones > link.Bits() && link.Contains(ip.Unmap()) {
			return "", netip.Prefix{}
		}
	}
	return bridge, link
}
