package hoststack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
)

// read notes what routes of ours the kernel has.
func (f *Fabric) read() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	have := map[netip.Prefix]string{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := h.RouteListFiltered(family, &netlink.Route{Protocol: fabricProtocol}, netlink.RT_FILTER_PROTOCOL)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("read routes: %w", err)
		}
		for _, r := range list {
			p, ok := routePrefix(r, family)
			if !ok {
				continue
			}
			var hops []netip.Addr
			add := func(ip net.IP) {
				if a, ok := netip.AddrFromSlice(ip); ok {
					hops = append(hops, a.Unmap())
				}
			}
			add(r.Gw)
			for _, n := range r.MultiPath {
				add(n.Gw)
			}
			have[p] = hopsText(r.LinkIndex, r.MultiPath, hops)
		}
	}
	f.routes = have
	return nil
}

// Has reports whether a route to a prefix is there, as far as the Fabric knows.
func (f *Fabric) Has(p netip.Prefix) bool { return f.routes[p] != "" }

func routePrefix(r netlink.Route, family int) (netip.Prefix, bool) {
	if r.Dst == nil {
		if family == netlink.FAMILY_V4 {
			return netip.PrefixFrom(netip.IPv4Unspecified(), 0), true
		}
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0), true
	}
	a, ok := netip.AddrFromSlice(r.Dst.IP)
	ones, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones), ok
}

// hopsText is what a route leads to, to compare with another.
func hopsText(link int, path []*netlink.NexthopInfo, hops []netip.Addr) string {
	if len(path) > 0 {
		link = path[0].LinkIndex
	}
	hops = slices.Clone(hops)
	slices.SortFunc(hops, netip.Addr.Compare)
	return fmt.Sprint(link, hops)
}

// RouteError says which route the kernel did not take, or not give back; all else is as
// wanted. It is tried again by the next Apply.
type RouteError struct {
	Prefix netip.Prefix
	More   int // routes besides, of which this is the same
	Err    error
}

func (e *RouteError) Error() string {
	if e.More > 0 {
		return fmt.Sprintf("route to %s and %d more: %v", e.Prefix, e.More, e.Err)
	}
	return fmt.Sprintf("route to %s: %v", e.Prefix, e.Err)
}

// Unwrap returns the kernel's reason.
func (e *RouteError) Unwrap() error { return e.Err }

func (f *Fabric) ensureRoutes(ctx context.Context, want FabricConfig) error {
	if f.routes == nil {
		if err := f.read(); err != nil {
			return err
		}
	}
	if len(f.routes)+len(want.Routes) == 0 {
		return nil
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	index := 0
	if want.Device != "" {
		link, err := h.LinkByName(want.Device)
		if err != nil {
			return fmt.Errorf("interface %s: %w", want.Device, err)
		}
		index = link.Attrs().Index
	}
	var failed *RouteError
	fail := func(p netip.Prefix, err error) {
		if failed == nil {
			failed = &RouteError{Prefix: p, Err: err}
		} else {
			failed.More++
		}
	}
	count := 0
	var added []netip.Prefix
	defer func() {
		f.Changes.NoteRoutes(hostchanges.Learned, added, func(p netip.Prefix) bool { return want.Keep || want.Routes[p] != nil })
	}()
	suspended := f.Changes.SuspendedRoutes(hostchanges.Learned)
	for p, hops := range want.Routes {
		text := hopsText(index, nil, hops)
		if f.routes[p] == text || suspended[p] {
			continue
		}
		if count++; count%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := replaceRoute(h, fabricRoute(p, index, hops), f.routes[p] != ""); err != nil {
			fail(p, err)
			continue
		}
		f.routes[p] = text
		added = append(added, p)
	}
	for p := range f.routes {
		if _, stays := want.Routes[p]; (stays || want.Keep) && !suspended[p] {
			continue
		}
		r := &netlink.Route{Dst: ipNet(p), Protocol: fabricProtocol, Priority: fabricMetric, Table: unix.RT_TABLE_MAIN}
		if err := h.RouteDel(r); err != nil && !errors.Is(err, unix.ESRCH) {
			fail(p, err)
			continue
		}
		delete(f.routes, p)
	}
	if failed != nil {
		return failed
	}
	return nil
}

// replaceRoute puts a route in the place of the one that is there. Of IPv6 the kernel
// replaces one of several ways only, so that those go first.
func replaceRoute(h *netlink.Handle, r *netlink.Route, there bool) error {
	if there && r.Dst.IP.To4() == nil {
		del := &netlink.Route{Dst: r.Dst, Protocol: fabricProtocol, Priority: fabricMetric, Table: unix.RT_TABLE_MAIN}
		for h.RouteDel(del) == nil {
		}
	}
	return h.RouteReplace(r)
}

func fabricRoute(p netip.Prefix, index int, hops []netip.Addr) *netlink.Route {
	r := &netlink.Route{Dst: ipNet(p), Protocol: fabricProtocol, Priority: fabricMetric, Table: unix.RT_TABLE_MAIN}
	if len(hops) == 1 {
		r.LinkIndex, r.Gw = index, net.IP(hops[0].AsSlice())
		return r
	}
	for _, a := range hops {
		r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{LinkIndex: index, Gw: net.IP(a.AsSlice())})
	}
	return r
}

// HostAddr is an address of a host's interface.
type HostAddr struct {
	Device string
	Prefix netip.Prefix // not masked
}

// Addresses are all of the host, but for those of loopback interfaces.
func Addresses() (out []HostAddr, err error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	for _, l := range links {
		if l.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := h.AddrList(l, netlink.FAMILY_ALL)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			continue // it may have gone
		}
		for _, a := range addrs {
			if p, ok := netip.AddrFromSlice(a.IP); ok {
				ones, _ := a.Mask.Size()
				out = append(out, HostAddr{l.Attrs().Name, netip.PrefixFrom(p.Unmap(), ones)})
			}
		}
	}
	return out, nil
}

// PutAddress gives an interface, which it sets up, an address; TakeAddress takes it away.
func PutAddress(at HostAddr) error {
	l, err := netlink.LinkByName(at.Device)
	if err != nil {
		return fmt.Errorf("interface %s: %w", at.Device, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("set interface %s up: %w", at.Device, err)
	}
	a := &netlink.Addr{IPNet: ipNet(at.Prefix)}
	if at.Prefix.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD // who listens there does so at once
	}
	if err := netlink.AddrReplace(l, a); err != nil {
		return fmt.Errorf("add address %s to %s: %w", at.Prefix, at.Device, err)
	}
	return nil
}

// TakeAddress undoes PutAddress.
func TakeAddress(at HostAddr) error {
	l, err := netlink.LinkByName(at.Device)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := netlink.AddrDel(l, &netlink.Addr{IPNet: ipNet(at.Prefix)}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("remove address %s from %s: %w", at.Prefix, at.Device, err)
	}
	return nil
}

// IPv6Off reports whether an interface has no IPv6: no address can be given to it.
func IPv6Off(device string) bool {
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + device + "/disable_ipv6")
	return errors.Is(err, fs.ErrNotExist) || strings.TrimSpace(string(off)) == "1" // not there: a kernel without
}

// SwitchPort says by an error that an interface is a switch's port, where the host's own
// stack sees nothing.
func SwitchPort(device string) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("interface %s: %w", device, err)
	}
	if m := l.Attrs().MasterIndex; m != 0 {
		if master, err := netlink.LinkByIndex(m); err == nil && (master.Type() == "openvswitch" || master.Type() == "bridge") {
			return model.Errorf(model.ErrConflict, "interface %s is a port of a switch", device)
		}
	}
	return nil
}

// HasInterface reports whether the host has an interface.
func HasInterface(name string) bool {
	_, err := netlink.LinkByName(name)
	return err == nil
}
