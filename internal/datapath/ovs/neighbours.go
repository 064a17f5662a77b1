package ovs

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// In user space the switch drops a packet whose tunnel leads to a neighbour that
// it does not know, and asks for that neighbour. It also learns from every ARP
// reply to its bridge, so the driver asks before there are flows that lead
// there: no packet is lost then.

const (
	// resolveWait bounds how long an Apply waits for neighbours' answers; a host
	// that is down gives none.
	resolveWait = 100 * time.Millisecond
	// resolveAgain is when a neighbour is resolved again: the switch forgets one that was
	// not used for 15 minutes.
	resolveAgain = 5 * time.Minute
	// resolveOthers is for how many other hosts those are asked for that no network
	// leads to: any host may lead clients of services here, or speak to containers of routed
	// networks, and be answered. All hosts of a link ask all others so.
	resolveOthers = 256
)

// resolve asks for the IPv4 neighbours that the desired state's tunnels lead to, and waits
// a moment when there are new ones.
func (u *underlay) resolve(ctx context.Context, want desired.Host) {
	if u.cfg.Datapath != "netdev" {
		return
	}
	now, vteps := time.Now(), map[netip.Addr]bool{}
	for _, n := range want.Networks.All() {
		for _, v := range n.VTEPs {
			vteps[v] = true
		}
	}
	if (want.Services.Len() > 0 || hasRouted(want)) && want.Tunnels.Len() <= resolveOthers {
		for v := range want.Tunnels.All() {
			vteps[v] = true
		}
	}
	links := map[int][]netip.Addr{} // next hops by interface
	source := map[int]netip.Addr{}
	fresh := false
	for v := range vteps {
		last, known := u.asked[v]
		if !v.Is4() || known && now.Sub(last) < resolveAgain {
			continue
		}
		u.asked[v], fresh = now, fresh || !known
		routes, err := netlink.RouteGet(v.AsSlice())
		if err != nil || len(routes) == 0 {
			continue // no way there: packets say so themselves
		}
		hop := v
		if gw, ok := netip.AddrFromSlice(routes[0].Gw); ok {
			hop = gw.Unmap()
		}
		own, ok := netip.AddrFromSlice(routes[0].Src)
		if !ok || slices.Contains(links[routes[0].LinkIndex], hop) {
			continue
		}
		links[routes[0].LinkIndex], source[routes[0].LinkIndex] = append(links[routes[0].LinkIndex], hop), own.Unmap()
	}
	for v := range u.asked {
		if !vteps[v] {
			delete(u.asked, v)
		}
	}
	wait := resolveWait
	if !fresh {
		wait = 0
	}
	for index, hops := range links {
		if err := askNeighbours(ctx, index, source[index], hops, wait); err != nil {
			u.cfg.Log.Debug("neighbours of the tunnel were not asked for: the first packet to each may be lost", "error", err)
		}
	}
}

// askNeighbours sends an ARP request (RFC 826) for each address by an interface,
// and waits until all have answered.
func askNeighbours(ctx context.Context, index int, own netip.Addr, addrs []netip.Addr, wait time.Duration) error {
	i, err := net.InterfaceByIndex(index)
	if err != nil || len(i.HardwareAddr) != 6 || !own.Is4() {
		return err
	}
	arp := binary.BigEndian.Uint16([]byte{unix.ETH_P_ARP >> 8, unix.ETH_P_ARP & 0xff})
	proto := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, arp))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(proto))
	if err != nil {
		return fmt.Errorf("open packet socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing is lost with it
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: index}); err != nil {
		return fmt.Errorf("bind to %s: %w", i.Name, err)
	}
	missing := map[netip.Addr]bool{}
	for _, a := range addrs {
		f := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, i.HardwareAddr...)
		f = append(f, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
		f = append(append(f, i.HardwareAddr...), own.AsSlice()...)
		f = append(append(f, 0, 0, 0, 0, 0, 0), a.AsSlice()...)
		if err := unix.Send(fd, f, 0); err != nil {
			return fmt.Errorf("resolve %s by %s: %w", a, i.Name, err)
		}
		missing[a] = true
	}
	b := make([]byte, 128)
	for deadline := time.Now().Add(wait); len(missing) > 0 && ctx.Err() == nil; {
		left := time.Until(deadline).Milliseconds()
		if left <= 0 {
			return nil
		}
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left)); err != nil || n == 0 {
			continue
		}
		if n, err := unix.Read(fd, b); err == nil && n >= 42 && b[21] == 2 {
			delete(missing, netip.AddrFrom4([4]byte(b[28:32])))
		}
	}
	return nil
}
