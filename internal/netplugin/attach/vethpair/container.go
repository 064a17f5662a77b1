package vethpair

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
)

// ContainerConfig is the configuration of the container's side of a pair, after Create.
type ContainerConfig struct {
	Netns     string // empty = this namespace
	IfName    string
	MAC       model.MAC
	Addresses []netip.Prefix // not masked
	// Gateways of default routes, at most one per family. A gateway outside the
	// subnets of Addresses gets an on-link route.
	Gateways []netip.Addr
	// TxChecksumOff makes the container's kernel write complete checksums, without
	// which a switch that reads frames from user space would send on wrong ones.
	TxChecksumOff bool
}

// Configure sets MAC, addresses and routes of the container's side of a pair that
// Create made; without an IPv6 address IPv6 goes off. It returns the gateways
// whose default route it made: a namespace that has a default route already
// keeps it, and only what is sent from the interface's own addresses leaves by its
// gateway. Processes that watch the host's links see no event of it.
// When it returns, the kernel sends what the container sends. Running it twice is
// harmless. Errors: model.ErrNotFound when the namespace or the interface is not there.
func Configure(in ContainerConfig) ([]netip.Addr, error) {
	var routed []netip.Addr
	err := within(in.Netns, func(h *netlink.Handle) (err error) {
		routed, err = configure(h, in)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("configure %s in %s: %w", in.IfName, in.Netns, err)
	}
	return routed, nil
}

// within works in the namespace of a path, or in this one if that is empty.
func within(netns string, work func(*netlink.Handle) error) error {
	do := func(ns.NetNS) error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		return work(h)
	}
	if netns == "" {
		return do(nil)
	}
	target, err := openNetns(netns)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }() // open for reading
	return target.Do(do)
}

// Park sets the MAC of a container's side that stays in this namespace, and leaves
// it down: the runtime that moves it into the container configures it.
func Park(in ContainerConfig) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("take %s out of use: %w", in.IfName, err)
	}
	defer h.Close()
	link, err := h.LinkByName(in.IfName)
	if err != nil {
		return fmt.Errorf("take %s out of use: %w", in.IfName, err)
	}
	if in.TxChecksumOff {
		if err := setTxChecksum(in.IfName, false); err != nil {
			return err
		}
	}
	if err := h.LinkSetHardwareAddr(link, in.MAC[:]); err != nil {
		return fmt.Errorf("take %s out of use: set MAC %s: %w", in.IfName, in.MAC, err)
	}
	return nil
}

func configure(h *netlink.Handle, in ContainerConfig) ([]netip.Addr, error) {
	index, err := indexOf(in.IfName)
	if isNoLink(err) {
		return nil, model.Errorf(model.ErrNotFound, "the interface does not exist")
	}
	if err != nil {
		return nil, err
	}
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: in.IfName, Index: index}}
	if in.TxChecksumOff {
		if err := setTxChecksum(in.IfName, false); err != nil {
			return nil, err
		}
	}
	if err := h.LinkSetHardwareAddr(link, in.MAC[:]); err != nil {
		return nil, fmt.Errorf("set MAC %s: %w", in.MAC, err)
	}
	addresses, off := in.Addresses, "1" // without an IPv6 address the protocol is off
	if slices.ContainsFunc(addresses, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		addresses, off = append(slices.Clone(addresses), linkLocal(in.MAC)), "0"
	}
	if _, err := writeIPv6(in.IfName, "disable_ipv6", off); err != nil {
		return nil, err
	}
	for _, p := range addresses {
		addr := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD // addresses are unique by allocation
		}
		if err := h.AddrReplace(link, addr); err != nil {
			return nil, fmt.Errorf("add address %s: %w", p, err)
		}
	}
	var routed []netip.Addr
	for _, gw := range in.Gateways {
		switch err := h.RouteAdd(defaultRouteBy(index, in.Addresses, gw)); {
		case err == nil:
			routed = append(routed, gw)
		case errors.Is(err, unix.EEXIST):
			if ours, err := hasRoute(h, link, defaultRoute(gw), gw); err != nil {
				return nil, err
			} else if ours {
				routed = append(routed, gw)
			} else if err := routeReplies(h, index, in.Addresses, gw); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("add default route by %s: %w", gw, err)
		}
	}
	return routed, awaitUp(h, link)
}

// upTimeout bounds awaitUp. The kernel takes some microseconds, or as long as the lock of
// all links is busy.
const upTimeout = 5 * time.Second

// awaitUp waits until the kernel sends packets by an interface. The container's side gets
// its carrier from the host's side, and until a work queue of the kernel has noticed that
// (linkwatch), the kernel drops what is sent by it: the first answer of a container, which
// a client waits for a second. To ask for one link has that done at once since Linux 6.8.
func awaitUp(h *netlink.Handle, link netlink.Link) error {
	ctx, cancel := context.WithTimeout(context.Background(), upTimeout)
	defer cancel()
	for {
		l, err := h.LinkByIndex(link.Attrs().Index)
		if err != nil {
			return fmt.Errorf("find interface %s: %w", link.Attrs().Name, err)
		}
		if l.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if waiting.Pause(ctx, time.Millisecond) != nil {
			return model.Errorf(model.ErrUnavailable, "interface %s has no carrier %v after it was set up", link.Attrs().Name, upTimeout)
		}
	}
}

// defaultRouteBy is an interface's default route by a gateway, on-link where that is in no subnet of
// the interface's addresses.
func defaultRouteBy(index int, addresses []netip.Prefix, gw netip.Addr) *netlink.Route {
	r := &netlink.Route{LinkIndex: index, Dst: ipNet(defaultRoute(gw)), Gw: net.IP(gw.AsSlice())}
	if !slices.ContainsFunc(addresses, func(p netip.Prefix) bool { return p.Contains(gw) }) {
		r.Flags = int(netlink.FLAG_ONLINK)
	}
	return r
}

// linkLocal is the address that a kernel derives from a MAC (RFC 4291 appendix A);
// on interfaces made by Create the kernel does not do so itself.
func linkLocal(m model.MAC) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{
		0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5],
	}), 64)
}

// indexOf finds an interface in the namespace of the calling thread. It asks for the
// number only: a link's full description takes the kernel ten times as long.
func indexOf(ifName string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("find %s: %w", ifName, err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	req, err := unix.NewIfreq(ifName)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req)
	}
	if err != nil {
		return 0, fmt.Errorf("find %s: %w", ifName, err)
	}
	return int(req.Uint32()), nil
}

// Expect is what Verify compares an interface with; empty fields are not compared.
type Expect struct {
	Netns     string // empty = this namespace
	IfName    string
	MAC       model.MAC
	Addresses []netip.Prefix
	Gateways  []netip.Addr
	Direct    []netip.Prefix // reached without a gateway, in the main table of routes
}

// Verify fails with model.ErrNotFound, naming what is missing, or with
// model.ErrConflict, naming what differs.
func Verify(want Expect) error {
	return within(want.Netns, func(h *netlink.Handle) error { return verify(h, want) })
}

func verify(h *netlink.Handle, want Expect) error {
	where := want.IfName + " in " + want.Netns
	link, err := h.LinkByName(want.IfName)
	if isNoLink(err) {
		return model.Errorf(model.ErrNotFound, "interface %s does not exist", where)
	}
	if err != nil {
		return fmt.Errorf("find %s: %w", where, err)
	}
	a := link.Attrs()
	if a.Flags&net.FlagUp == 0 {
		return model.Errorf(model.ErrConflict, "interface %s is down", where)
	}
	if got := a.HardwareAddr.String(); want.MAC != (model.MAC{}) && got != want.MAC.String() {
		return model.Errorf(model.ErrConflict, "interface %s has MAC %s instead of %s", where, got, want.MAC)
	}
	addrs, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("list addresses of %s: %w", where, err)
	}
	for _, p := range want.Addresses {
		found := false
		for _, got := range addrs {
			found = found || got.IPNet.String() == p.String()
		}
		if !found {
			return model.Errorf(model.ErrNotFound, "interface %s lacks address %s", where, p)
		}
	}
	for _, gw := range want.Gateways {
		ok, err := hasRoute(h, link, defaultRoute(gw), gw)
		if err != nil {
			return fmt.Errorf("list routes of %s: %w", where, err)
		}
		if !ok {
			return model.Errorf(model.ErrNotFound, "interface %s lacks the default route by %s", where, gw)
		}
	}
	for _, p := range want.Direct {
		ok, err := hasRoute(h, link, p, netip.Addr{})
		if err != nil {
			return fmt.Errorf("list routes of %s: %w", where, err)
		}
		if !ok {
			return model.Errorf(model.ErrNotFound, "interface %s lacks the route to %s", where, p)
		}
	}
	return nil
}

func hasRoute(h *netlink.Handle, link netlink.Link, dst netip.Prefix, gw netip.Addr) (bool, error) {
	family := netlink.FAMILY_V4
	if dst.Addr().Is6() {
		family = netlink.FAMILY_V6
	}
	routes, err := h.RouteList(link, family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return false, err
	}
	for _, r := range routes {
		isDst := r.Dst == nil && dst.Bits() == 0 || r.Dst != nil && r.Dst.String() == dst.String()
		if isDst && r.Gw.Equal(net.IP(gw.AsSlice())) {
			return true, nil
		}
	}
	return false, nil
}

func defaultRoute(gw netip.Addr) netip.Prefix {
	if gw.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: net.IP(p.Addr().AsSlice()), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
