package vethpair

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// AliasPrefix begins the alias of every host side; the endpoint's key follows.
const AliasPrefix = "contiv:"

// inet6AddrGenMode is IFLA_INET6_ADDR_GEN_MODE of linux/if_link.h.
const inet6AddrGenMode = 8

// hostIfRE is the shape of compile.IfName.
var hostIfRE = regexp.MustCompile(`^cv[a-z2-7]{13}$`)

// Pair is a veth pair to be made.
type Pair struct {
	HostIf string // host side, at most 15 bytes
	Alias  string // of the host side, with AliasPrefix
	Netns  string // path of the container's namespace; empty = the container side stays in this one
	IfName string // container side
	MTU    int    // of both sides
	// Promiscuous: the host side takes every frame, and the host's own stack answers
	// no ARP on it. A switch that reads frames in user space needs both: the stack
	// gets the frames too, and has the router's address on another interface. If the
	// switch set it later, that would be another event at which it looks at all ports.
	Promiscuous bool
	// OnHost: the container side stays in this namespace, and is brought up: it is the
	// host's own interface.
	OnHost bool
}

// Create makes the pair, both sides up and silent: without any address, not even a
// link-local one. The container side is moved into the container's namespace; if it stays
// in this namespace, it is left down, unless it is the host's own (OnHost). Create returns
// the MAC of the host side. It replaces a pair that an earlier attempt left. Errors:
// model.ErrNotFound when the namespace is not there, model.ErrExists when it has an
// interface of that name.
//
// A switch looks at all its ports whenever a link of its namespace changes. So all changes
// of the host side, its carrier included, happen at once, before the switch gets the port:
// the container side is brought up first.
func Create(p Pair) (model.MAC, error) {
	var target ns.NetNS
	var peer any // namespace of the container side; nil = this one
	if p.Netns != "" {
		var err error
		if target, err = openContainerNetns(p.Netns); err != nil {
			return model.MAC{}, err
		}
		defer func() { _ = target.Close() }() // open for reading
		peer = netlink.NsFd(int(target.Fd()))
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return model.MAC{}, fmt.Errorf("create veth %s: %w", p.HostIf, err)
	}
	defer h.Close()

	var mac model.MAC        // chosen here, so that the kernel need not be asked for it
	_, _ = rand.Read(mac[:]) // it never fails
	mac[0] = mac[0]&^1 | 2   // of one device, locally administered
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: p.HostIf, MTU: p.MTU, TxQLen: -1, HardwareAddr: mac[:]},
		PeerName:      p.IfName,
		PeerTxQLen:    -1,
		PeerNamespace: peer,
	}
	err = h.LinkAdd(veth)
	if errors.Is(err, unix.EEXIST) {
		old, lookup := h.LinkByName(p.HostIf)
		if lookup != nil {
			return model.MAC{}, nameTaken(p)
		}
		if !isPair(old, p.Alias) {
			return model.MAC{}, model.Errorf(model.ErrExists, "create interface %s: this host has an interface of that name that is not netplugin's (%s, alias %q); remove it with 'ip link del %s'",
				p.HostIf, old.Type(), old.Attrs().Alias, p.HostIf)
		}
		if err = h.LinkDel(old); err == nil || isNoLink(err) {
			err = h.LinkAdd(veth)
		}
	}
	if errors.Is(err, unix.EEXIST) {
		return model.MAC{}, nameTaken(p)
	}
	if err != nil {
		return model.MAC{}, fmt.Errorf("create veth %s to %s in %s: %w", p.HostIf, p.IfName, p.Netns, err)
	}
	if err := setContainerSideUp(p, target); err != nil {
		return model.MAC{}, errors.Join(err, Delete(p.HostIf, p.Alias))
	}
	return mac, nil
}

// nameTaken says that the name of a pair's inner side is another interface's.
func nameTaken(p Pair) error {
	if p.Netns == "" {
		return model.Errorf(model.ErrExists, "create interface %s: this host already has an interface of that name", p.IfName)
	}
	return model.Errorf(model.ErrExists, "create interface %s in %s: the namespace already has an interface of that name", p.IfName, p.Netns)
}

// setContainerSideUp brings up the container side, if target is its namespace, and then the host
// side, by which both get their carrier.
func setContainerSideUp(p Pair, target ns.NetNS) error {
	// The host's own stack must not talk on this link (router solicitations,
	// multicast listener reports): the container would hear it. The kernel spins here
	// while the lock of all links is held, which is seldom the case before the switch
	// has noticed the new link.
	if _, err := writeIPv6(p.HostIf, "disable_ipv6", "1"); err != nil {
		return err
	}
	if target != nil {
		if err := target.Do(func(ns.NetNS) error { return raiseContainerSide(p.IfName) }); err != nil {
			return err
		}
	}
	if p.OnHost {
		if err := raiseContainerSide(p.IfName); err != nil {
			return err
		}
	}
	flags := uint32(unix.IFF_UP)
	if p.Promiscuous {
		flags |= unix.IFF_PROMISC | unix.IFF_NOARP
	}
	return setUp(p.HostIf, flags, nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(p.Alias)))
}

// raiseContainerSide brings up an interface in the namespace of the calling
// thread. It gets no link-local address: that is made of the MAC, which comes
// with the other addresses.
func raiseContainerSide(ifName string) error {
	there, err := writeIPv6(ifName, "accept_ra", "0")
	if err != nil {
		return err
	}
	var spec []*nl.RtAttr
	if there { // the kernel has IPv6, and the interface's MTU is large enough for it
		af := nl.NewRtAttr(unix.IFLA_AF_SPEC|unix.NLA_F_NESTED, nil)
		af.AddRtAttr(unix.AF_INET6, nil).AddRtAttr(inet6AddrGenMode, nl.Uint8Attr(nl.IN6_ADDR_GEN_MODE_NONE))
		spec = append(spec, af)
	}
	return setUp(ifName, unix.IFF_UP, spec...)
}

// setUp brings a link up, with its other settings, by one message: each message is
// an event for every process that watches links.
func setUp(ifName string, flags uint32, attrs ...*nl.RtAttr) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Change, msg.Flags = flags, flags
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(ifName)))
	for _, a := range attrs {
		req.AddData(a)
	}
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("bring up %s: %w", ifName, err)
	}
	return nil
}

// Delete removes a pair by the name of its host side and the alias that Create gave
// it; an absent pair is fine. An interface of that name with another alias belongs
// to somebody else and stays: then our pair is absent. An interface without an alias
// is ours: the process that made it died before setting the alias.
func Delete(hostIf, alias string) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("delete veth %s: %w", hostIf, err)
	}
	defer h.Close()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: hostIf}}
	found, err := h.LinkByName(hostIf)
	if isNoLink(err) || err == nil && !isPair(found, alias) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find veth %s: %w", hostIf, err)
	}
	link.Index = found.Attrs().Index
	if err := h.LinkDel(link); err != nil && !isNoLink(err) {
		return fmt.Errorf("delete veth %s: %w", hostIf, err)
	}
	return nil
}

// isPair reports whether an interface is the host side that Create makes with an
// alias.
func isPair(l netlink.Link, alias string) bool {
	a := l.Attrs().Alias
	return l.Type() == "veth" && (a == "" || a == alias)
}

// Exists reports whether the host side of a pair is there.
func Exists(hostIf string) (bool, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return false, fmt.Errorf("find veth %s: %w", hostIf, err)
	}
	defer h.Close()
	_, err = h.LinkByName(hostIf)
	if isNoLink(err) {
		return false, nil
	}
	return err == nil, err
}

// CurrentName returns the name of the host side to which Create gave this name and alias: somebody
// may have renamed it; "" = it is not there.
func CurrentName(hostIf, alias string) (string, error) {
	if there, err := Exists(hostIf); there || err != nil {
		return hostIf, err
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return "", fmt.Errorf("find veth %s: %w", hostIf, err)
	}
	defer h.Close()
	l, err := h.LinkByAlias(alias)
	if isNoLink(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find veth %s: %w", hostIf, err)
	}
	return l.Attrs().Name, nil
}

// Veth is the host side of a pair that Create made.
type Veth struct {
	Name  string
	Alias string // empty when the process that made it died before setting it
}

// List returns the host sides of our pairs in this namespace: veths named as
// compile.IfName does it, whose alias is ours or missing.
func List() ([]Veth, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("list veths: %w", err)
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list veths: %w", err)
	}
	var out []Veth
	for _, l := range links {
		a := l.Attrs()
		if l.Type() != "veth" || !hostIfRE.MatchString(a.Name) {
			continue
		}
		if a.Alias == "" || strings.HasPrefix(a.Alias, AliasPrefix) {
			out = append(out, Veth{a.Name, a.Alias})
		}
	}
	return out, nil
}

func isNoLink(err error) bool {
	var nf netlink.LinkNotFoundError
	return errors.As(err, &nf) || errors.Is(err, unix.ENODEV)
}

// ownNetns reports whether a namespace is the one that this thread is in.
func ownNetns(n ns.NetNS) bool {
	var own, there unix.Stat_t
	return unix.Stat("/proc/thread-self/ns/net", &own) == nil && unix.Fstat(int(n.Fd()), &there) == nil &&
		own.Dev == there.Dev && own.Ino == there.Ino
}

// CheckNetns fails with model.ErrNotFound where nothing is at a path, and with
// model.ErrInvalid where it is no network namespace, or the host's own.
func CheckNetns(path string) error {
	n, err := openContainerNetns(path)
	if err == nil {
		_ = n.Close() // nothing was read
	}
	return err
}

func openContainerNetns(path string) (ns.NetNS, error) {
	n, err := openNetns(path)
	if err == nil && ownNetns(n) {
		_ = n.Close() // nothing was read
		return nil, model.InvalidField("netns", path, "is the host's own network namespace, and an interface there would be the host's; name the container's or process's namespace")
	}
	return n, err
}

func openNetns(path string) (ns.NetNS, error) {
	if path == "" {
		return nil, model.InvalidField("netns", path, "must be the path of the container's network namespace")
	}
	n, err := ns.GetNS(path)
	var missing ns.NSPathNotExistErr
	var notNS ns.NSPathNotNSErr
	switch {
	case errors.As(err, &missing):
		return nil, model.Errorf(model.ErrNotFound, "open network namespace %s: it does not exist", path)
	case errors.As(err, &notNS):
		return nil, model.InvalidField("netns", path, "must be a network namespace")
	case err != nil:
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	if kind, err := unix.IoctlRetInt(int(n.Fd()), unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		_ = n.Close() // nothing was read
		return nil, model.InvalidField("netns", path, "must be a network namespace")
	}
	return n, nil
}

// writeIPv6 sets a per-interface setting of IPv6 in the namespace of the calling
// thread, and tells whether the setting exists: it does not on a kernel without
// IPv6, nor for an interface whose MTU is too small for IPv6. A setting that has the
// value already is not written: for disable_ipv6 the kernel would spin for the lock
// of all links, which is held a lot while containers start in parallel.
func writeIPv6(ifName, setting, value string) (bool, error) {
	path := "/proc/sys/net/ipv6/conf/" + ifName + "/" + setting
	switch err := writeSetting(path, value); {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("set %s of %s: %w", setting, ifName, err)
	}
	return true, nil
}

// writeSetting goes without os.File, which enters every file in the runtime's
// poller: a tenth of what a container's interface costs, with six settings.
func writeSetting(path, value string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	readOnly := errors.Is(err, unix.EROFS)
	if readOnly { // it may be set already
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // the write has told
	var now [16]byte
	n, err := unix.Pread(fd, now[:], 0)
	switch {
	case err != nil || strings.TrimSpace(string(now[:n])) == value:
		return err
	case readOnly:
		return unix.EROFS
	}
	_, err = unix.Pwrite(fd, []byte(value), 0)
	return err
}

// InterfaceMTU returns the MTU of an interface of this namespace.
func InterfaceMTU(name string) (int, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("find interface %s: %w", name, err)
	}
	return l.Attrs().MTU, nil
}

// Holder is the interface that has the address, or the name, that was asked for.
type Holder struct {
	Name string
	Up   bool // and with a link
}

func holder(l netlink.Link) Holder {
	const up = unix.IFF_UP | unix.IFF_RUNNING
	return Holder{l.Attrs().Name, l.Attrs().RawFlags&up == up}
}

// LinkNamed finds an interface of this host.
func LinkNamed(name string) (Holder, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return Holder{}, fmt.Errorf("find interface %s: %w", name, err)
	}
	return holder(l), nil
}

// LinkOf finds the interface of this host that has an address; ErrNotFound: none
// has.
func LinkOf(addr netip.Addr) (Holder, error) {
	family := netlink.FAMILY_V4
	if addr.Is6() {
		family = netlink.FAMILY_V6
	}
	all, err := netlink.AddrList(nil, family)
	if err != nil {
		return Holder{}, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range all {
		if a.IP.String() != addr.String() {
			continue
		}
		l, err := netlink.LinkByIndex(a.LinkIndex)
		if err != nil {
			return Holder{}, fmt.Errorf("find interface %d: %w", a.LinkIndex, err)
		}
		return holder(l), nil
	}
	return Holder{}, model.Errorf(model.ErrNotFound, "no interface of this host has the address %s", addr)
}

// LinkMTU returns the MTU of the interface that holds an address; the loopback
// interface does not count, since nothing leaves the host by it.
func LinkMTU(addr string) (int, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return 0, fmt.Errorf("list interfaces: %w", err)
	}
	for _, i := range ifs {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went away meanwhile
		}
		for _, a := range addrs {
			if p, ok := a.(*net.IPNet); ok && p.IP.String() == addr {
				return i.MTU, nil
			}
		}
	}
	return 0, model.Errorf(model.ErrNotFound, "no interface of this host has the address %s", addr)
}
