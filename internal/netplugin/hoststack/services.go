package hoststack

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
)

// Service is a virtual address of a service.
type Service struct {
	Name string // in problems, as "service NAME"
	Addr netip.Addr
	// Optional: where this host reaches the address by a route of its own, that is no problem.
	Optional bool
}

// ensureRoutes leads the virtual addresses of services, the subnets of native networks
// and the ranges of services' addresses to the host's interface, and nothing else but the private subnet. What this
// host reaches by another route, the default ones excepted, is not led, and no service
// at an address of the cluster's machines.
func (s *Stack) ensureRoutes(want *Config, note func(object string, err error)) {
	const object = "routes to services and native networks"
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
	natives4, natives6 := byFamily(want.Routed)
	ranges4, ranges6 := byFamily(want.Ranges)
	if len(four)+len(natives4)+len(ranges4) == 0 {
		want.Source = netip.Addr{}
	}
	if len(six)+len(natives6)+len(ranges6) > 0 {
		want.source6 = sourceAddr6(h)
	}
	s.source6 = want.source6
	note(object, errors.Join(
		s.addRoutes(h, link, netlink.FAMILY_V4, want, four, natives4, ranges4, want.Source, want.Private.Subnet, note),
		s.addRoutes(h, link, netlink.FAMILY_V6, want, six, natives6, ranges6, want.source6, want.Private.Subnet6, note),
	))
}

func byFamily(all []netip.Prefix) (four, six []netip.Prefix) {
	for _, p := range all {
		if p.Addr().Is4() {
			four = append(four, p)
		} else {
			six = append(six, p)
		}
	}
	return four, six
}

// SourceAddr6 is the IPv6 address that this host has towards the outside, by which it
// speaks to services and to native networks; zero when it has none.
func SourceAddr6() netip.Addr {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return netip.Addr{}
	}
	defer h.Close()
	return sourceAddr6(h)
}

// sourceAddr6 is this host's source address for external IPv6 destinations; zero when it has
// none. RFC 3849's documentation prefix stands for them.
func sourceAddr6(h *netlink.Handle) netip.Addr {
	routes, err := h.RouteGet(net.ParseIP("2001:db8:ffff:ffff::1"))
	if err != nil || len(routes) == 0 {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(routes[0].Src)
	return a
}

// routedDest is what is led to the host's interface, and what it is to people.
type routedDest struct {
	to   netip.Prefix
	what string
	why  string // begins what is said when it is not led; empty = nothing is
}

// addRoutes makes the routes of one family.
func (s *Stack) addRoutes(h *netlink.Handle, link netlink.Link, family int, want *Config, services []Service, natives, ranges []netip.Prefix, source netip.Addr, private netip.Prefix, note func(object string, err error)) error {
	var all []routedDest
	for _, x := range services {
		why := fmt.Sprintf("neither this host nor clients outside reach it by this host: its address %s is ", x.Addr)
		if x.Optional {
			why = ""
		}
		all = append(all, routedDest{netip.PrefixFrom(x.Addr, x.Addr.BitLen()), "service " + x.Name, why})
	}
	for _, p := range natives {
		all = append(all, routedDest{p, "native network " + p.String(), "this host and its containers do not reach each other: the network's subnet is "})
	}
	for _, p := range ranges {
		all = append(all, routedDest{p, "addresses of services in " + p.String(), "processes of this host reach them only where it has another way there: they are "})
	}
	if !private.IsValid() {
		all = nil
	}
	routes, err := h.RouteList(nil, family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	mtu := want.MTU
	if most := want.ServiceMTU; mtu == 0 || most != 0 && most < mtu {
		mtu = most
	}
	ours := map[netip.Prefix]netlink.Route{}
	var others []netlink.Route
	for _, r := range routes {
		dst, ok := prefixOf(r)
		switch {
		case !ok || dst.Bits() == 0:
		case r.LinkIndex != link.Attrs().Index:
			others = append(others, r)
		case dst != private && r.Protocol == unix.RTPROT_STATIC:
			ours[dst] = r
		}
	}
	own, err := h.AddrList(nil, family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	var failed []error
	var near model.Lifelines
	if len(all) > 0 {
		near = Lifelines(want.ControlPath)
	}
	wanted, suspended := map[netip.Prefix]bool{}, s.changes.SuspendedRoutes(hostchanges.Routes)
	var added []netip.Prefix
	for _, x := range all {
		if wanted[x.to] = true; suspended[x.to] {
			note(x.what, errRolledBack)
			continue
		}
		if why := addressTaken(h, x.to, others, own, want.Machines, near); why != "" {
			if x.why != "" {
				note(x.what, model.Errorf(model.ErrConflict, "%s%s", x.why, why))
			}
			continue
		}
		r := netlink.Route{
			LinkIndex: link.Attrs().Index, Dst: ipNet(x.to), Src: source.AsSlice(),
			Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_STATIC, MTU: mtu,
		}
		if x.to.Addr().Is6() { // whose routes have no scope
			r.Scope = netlink.SCOPE_UNIVERSE
		}
		have, there := ours[x.to]
		delete(ours, x.to)
		if there && have.MTU == mtu && have.Src.Equal(r.Src) {
			continue
		}
		if err := h.RouteReplace(&r); err != nil {
			failed = append(failed, fmt.Errorf("add route %s: %w", x.to, err))
		} else if !there {
			added = append(added, x.to)
		}
	}
	s.changes.NoteRoutes(hostchanges.Routes, added, func(p netip.Prefix) bool { return wanted[p] || p.Addr().Is4() != (family == netlink.FAMILY_V4) })
	for a, r := range ours {
		if err := h.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			failed = append(failed, fmt.Errorf("remove route %s: %w", a, err))
		}
	}
	return errors.Join(failed...)
}

// addressTaken tells what else of this host, or of the cluster, has an address or a part of a
// subnet; "" = nothing.
func addressTaken(h *netlink.Handle, p netip.Prefix, others []netlink.Route, own []netlink.Addr, machines []netip.Addr, near model.Lifelines) string {
	for _, o := range own {
		if a, ok := netip.AddrFromSlice(o.IP); ok && p.Contains(a.Unmap()) {
			if p.IsSingleIP() {
				return "this host's own"
			}
			return "this host's own address " + a.Unmap().String()
		}
	}
	for _, r := range others {
		dst, _ := prefixOf(r)
		if !dst.Overlaps(p) {
			continue
		}
		name := "of this host"
		if l, err := h.LinkByIndex(r.LinkIndex); err == nil {
			name = "on " + l.Attrs().Name
		}
		return fmt.Sprintf("in route %s %s", dst, name)
	}
	if i := slices.IndexFunc(machines, p.Contains); i >= 0 {
		return "an address of a machine of the cluster (netmaster, the store or a host)"
	}
	for a, what := range near {
		// A name server in a range of Kubernetes' services is one of these services.
		if p.Contains(a) && (p.IsSingleIP() || what.Kind != model.NameServerLifeline) {
			return fmt.Sprintf("that of %s of this host, %s", what.Name, a)
		}
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
