package testcluster

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Network changes the networks between the hosts, and the VLAN trunk. Its state is in the
// fabric's namespace.
type Network struct {
	*core
}

// setUp sets a link of the thread's namespace up.
func setUp(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	return netlink.LinkSetUp(l)
}

// addBridge makes a Linux bridge in the thread's namespace that forwards every
// frame, tagged ones as well: no VLAN filter, no snooping, no spanning tree.
func addBridge(name string, mtu int) error {
	off := false
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu}, MulticastSnooping: &off}
	if err := netlink.LinkAdd(br); err != nil {
		return fmt.Errorf("add bridge %s: %w", name, err)
	}
	return netlink.LinkSetUp(br)
}

// plug makes a veth pair between a bridge port in the fabric and a link in
// another namespace, both up. It runs in the fabric's namespace.
func plug(bridge, port string, mtu int, peer *Namespace, peerName string) error {
	br, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", bridge, err)
	}
	v := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: port, MTU: mtu, MasterIndex: br.Attrs().Index, TxQLen: 1000},
		PeerName:  peerName, PeerNamespace: netlink.NsFd(int(peer.h)), PeerMTU: uint32(mtu),
	}
	if err := netlink.LinkAdd(v); err != nil {
		return fmt.Errorf("add veth %s to %s in %s: %w", port, peerName, peer.Name, err)
	}
	return netlink.LinkSetUp(v)
}

// addAddress gives a link of the thread's namespace an address.
func addAddress(link string, p netip.Prefix) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("find link %s: %w", link, err)
	}
	a, err := netlink.ParseAddr(p.String())
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(l, a); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add address %s to %s: %w", p, link, err)
	}
	return netlink.LinkSetUp(l)
}

// addRoute leads to what is on a link of the thread's namespace.
func addRoute(link string, to netip.Prefix, from netip.Addr) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("find link %s: %w", link, err)
	}
	dst, err := netlink.ParseIPNet(to.String())
	if err != nil {
		return err
	}
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Scope: netlink.SCOPE_LINK}
	if from.IsValid() {
		r.Src = from.AsSlice()
	}
	if err := netlink.RouteReplace(r); err != nil {
		return fmt.Errorf("add route to %s by %s: %w", to, link, err)
	}
	return nil
}

// delAddress takes an address from a link of the thread's namespace; absent is fine.
func delAddress(link string, p netip.Prefix) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("find link %s: %w", link, err)
	}
	a, err := netlink.ParseAddr(p.String())
	if err != nil {
		return err
	}
	if err := netlink.AddrDel(l, a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("remove address %s from %s: %w", p, link, err)
	}
	return nil
}

// sysctl writes a setting of the thread's namespace, if the kernel has it.
func sysctl(path, value string) error {
	err := os.WriteFile("/proc/sys/"+path, []byte(value), 0o644)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// txChecksumOff makes the thread's namespace compute checksums before a frame
// leaves through link: Open vSwitch's userspace datapath forwards a frame that
// the kernel left to the card with the checksum missing.
func txChecksumOff(link string) error {
	const ethtoolSTXCSUM = 0x17 // linux/ethtool.h
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	value := struct{ cmd, data uint32 }{ethtoolSTXCSUM, 0}
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:], link)
	req.data = unsafe.Pointer(&value)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return fmt.Errorf("switch off checksum offload of %s: %w", link, errno)
	}
	return nil
}

// JoinControl links a namespace to the control network as machine n of it, 20 to
// 250, and returns its address there.
func (l *Network) JoinControl(ns *Namespace, n int) (netip.Addr, error) {
	at := address(control, n)
	port := fmt.Sprintf("joined%d", n)
	if err := l.Fabric.Do(func() error { return plug("control", port, l.st.Config.MTU, ns, "ctl0") }); err != nil {
		return netip.Addr{}, err
	}
	return at.Addr(), ns.Do(func() error { return addAddress("ctl0", at) })
}

// JoinUnderlay links a namespace to the hosts' underlay as machine n of it, 200 to 223,
// and returns its address there.
func (l *Network) JoinUnderlay(ns *Namespace, n int) (netip.Addr, error) {
	at := address(underlay, n)
	port := fmt.Sprintf("outside%d", n)
	if err := l.Fabric.Do(func() error { return plug("underlay", port, l.st.Config.MTU, ns, "eth0") }); err != nil {
		return netip.Addr{}, err
	}
	return at.Addr(), ns.Do(func() error { return errors.Join(addAddress("eth0", at), txChecksumOff("eth0")) })
}

// SetLink sets a link inside a namespace up or down: a cut cable.
func (n *Namespace) SetLink(name string, up bool) error {
	return n.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find link %s in %s: %w", name, n.Name, err)
		}
		if up {
			return netlink.LinkSetUp(l)
		}
		return netlink.LinkSetDown(l)
	})
}
