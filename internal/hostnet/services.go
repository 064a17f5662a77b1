package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Service is a virtual address of a service.
type Service struct {
	Name string // in problems, as "service NAME"
	Addr netip.Addr
}

// ensureServices routes the virtual addresses to the host's interface, and no other
// single addresses. An address that this host reaches by another route, the default
// ones excepted, is not led, and none of the cluster's machines.
func (s *Stack) ensureServices(want *Want, note func(object string, err error)) {
	const object = "routes to services"
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		note(object, err)
		return
	}
	defer h.Close()
	link, err := h.LinkByName(want.Private.Interface)
	if err != nil {
		return // which ensureLink tells of
	}
	var four, six []Service
	for _, x := range want.Services {
		if x.Addr.Is4() {
			four = append(four, x)
		} else {
			six = append(six, x)
		}
	}
	if len(four) == 0 {
		want.Source = netip.Addr{}
	}
	if len(six) > 0 {
		want.source6 = outwards6(h)
	}
	note(object, errors.Join(
		leadServices(h, link, netlink.FAMILY_V4, want, four, want.Source, want.Private.Subnet, note),
		leadServices(h, link, netlink.FAMILY_V6, want, six, want.source6, want.Private.Subnet6, note),
	))
}

// outwards6 is the IPv6 address that this host has towards the outside; zero when it
// has none. RFC 3849's prefix, which is nobody's, stands for the outside.
func outwards6(h *netlink.Handle) netip.Addr {
	routes, err := h.RouteGet(net.ParseIP("2001:db8:ffff:ffff::1"))
	if err != nil || len(routes) == 0 {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(routes[0].Src)
	return a
}

// leadServices makes the routes of one family.
func leadServices(h *netlink.Handle, link netlink.Link, family int, want *Want, services []Service, source netip.Addr, private netip.Prefix, note func(object string, err error)) error {
	if !private.IsValid() {
		services = nil
	}
	all, err := h.RouteList(nil, family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	mtu := want.MTU
	if most := want.ServiceMTU; mtu == 0 || most != 0 && most < mtu {
		mtu = most
	}
	ours := map[netip.Addr]netlink.Route{}
	var others []netlink.Route
	for _, r := range all {
		dst, ok := prefixOf(r)
		switch {
		case !ok || dst.Bits() == 0:
		case r.LinkIndex != link.Attrs().Index:
			others = append(others, r)
		case dst.IsSingleIP() && r.Protocol == unix.RTPROT_STATIC:
			ours[dst.Addr()] = r
		}
	}
	own, err := h.AddrList(nil, family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	var failed []error
	for _, x := range services {
		if why := taken(h, x.Addr, others, own, want.Machines); why != "" {
			note("service "+x.Name, model.Errorf(model.ErrConflict, "neither this host nor clients outside reach it by this host: its address %s is %s", x.Addr, why))
			continue
		}
		r := netlink.Route{
			LinkIndex: link.Attrs().Index, Dst: ipNet(netip.PrefixFrom(x.Addr, x.Addr.BitLen())), Src: source.AsSlice(),
			Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_STATIC, MTU: mtu,
		}
		if x.Addr.Is6() { // whose routes have no scope
			r.Scope = netlink.SCOPE_UNIVERSE
		}
		have, there := ours[x.Addr]
		delete(ours, x.Addr)
		if there && have.MTU == mtu && have.Src.Equal(r.Src) {
			continue
		}
		if err := h.RouteReplace(&r); err != nil {
			failed = append(failed, fmt.Errorf("add route %s: %w", x.Addr, err))
		}
	}
	for a, r := range ours {
		if err := h.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			failed = append(failed, fmt.Errorf("remove route %s: %w", a, err))
		}
	}
	return errors.Join(failed...)
}

// taken tells what else of this host, or of the cluster, has an address; "" = nothing.
func taken(h *netlink.Handle, a netip.Addr, others []netlink.Route, own []netlink.Addr, machines []netip.Addr) string {
	if slices.ContainsFunc(own, func(o netlink.Addr) bool { return o.IP.Equal(a.AsSlice()) }) {
		return "this host's own"
	}
	for _, r := range others {
		dst, _ := prefixOf(r)
		if !dst.Contains(a) {
			continue
		}
		name := "of this host"
		if l, err := h.LinkByIndex(r.LinkIndex); err == nil {
			name = "on " + l.Attrs().Name
		}
		return fmt.Sprintf("in route %s %s", dst, name)
	}
	if _, there := slices.BinarySearchFunc(machines, a, netip.Addr.Compare); there {
		return "that of a machine of the cluster (netmaster, the store or a host)"
	}
	return ""
}

func prefixOf(r netlink.Route) (netip.Prefix, bool) {
	if r.Dst == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(r.Dst.IP)
	bits, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(a, bits), ok
}
