package ovs

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// In user space the tunnel leaves by a bridge of Open vSwitch: the host's address
// lies on the bridge's own interface, which stays up whatever becomes of the
// cables in the bridge. So the driver looks at the cables.

// underlay is the network below tunnels and uplinks: MTUs, the route of the tunnel, cables
// and neighbours. Driver.mu guards all but the MTUs.
type underlay struct {
	*env
	conns  *connections
	bridge *bridge
	links  *netlink.Handle

	tunnelMTU    atomic.Uint32
	wireMTU      atomic.Uint32                 // of the uplinks
	measure      atomic.Pointer[func() uint16] // measureMTU, but in tests
	widest       map[model.Encap]uint16        // the biggest MTU of containers, by their networks' encapsulation
	noSubnet     bool                          // the tunnel's address has no subnet
	route        netip.Prefix                  // the tunnel's link, to which the switch has been given a route; zero = it has none
	routeSeen    time.Time                     // when the host's addresses were last looked at for it
	under        string                        // the bridge that has the tunnel's address; "" = none, or not known yet
	disconnected bool                          // no cable in that bridge has a link, as reported
	asked        map[netip.Addr]time.Time      // tunnel endpoints, and when they were last asked for
}

// findUnderlay returns the bridge whose interface has the tunnel's address; ""
// when none has.
func (u *underlay) findUnderlay() string {
	if u.cfg.Datapath != "netdev" || !u.cfg.VTEP.IsValid() {
		return ""
	}
	for _, name := range u.conns.db.bridgeNames() {
		link, err := netlink.LinkByName(name)
		if err != nil {
			continue // a bridge that has just come or gone
		}
		have, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err == nil && slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.IP.String() == u.cfg.VTEP.String() }) {
			return name
		}
	}
	return ""
}

// vtepLink is the interface that has the tunnel's address, the loopback only if no other
// has it; nil when none has, or it cannot be seen.
func (u *underlay) vtepLink() (link netlink.Link) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil || !u.cfg.VTEP.IsValid() {
		return nil
	}
	for _, a := range all {
		if ip, ok := netip.AddrFromSlice(a.IP); !ok || ip.Unmap() != u.cfg.VTEP {
			continue
		}
		if l, err := netlink.LinkByIndex(a.LinkIndex); err == nil && (link == nil || l.Attrs().Flags&unix.IFF_LOOPBACK == 0) {
			link = l
		}
	}
	return link
}

// mtu is the biggest packet that tunnels carry whole, as watchMTU last measured it.
func (u *underlay) mtu() uint16 { return uint16(u.tunnelMTU.Load()) } //nolint:gosec // 16 bits wide

// watchMTU follows the MTU of the interface that has the tunnel's address.
func (d *Driver) watchMTU(ctx context.Context) {
	tick := time.NewTicker(mtuInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if d.underlay.noteMTU() {
			d.replay(ctx, "the MTU of the tunnel's interface or of an uplink has changed")
		}
	}
}

// mtuInterval is how often the tunnel's interface is looked at.
const mtuInterval = time.Second

// noteMTU measures the MTUs of tunnel and uplinks and reports whether one has changed.
func (u *underlay) noteMTU() bool {
	tunnel, wire := uint32((*u.measure.Load())()), uint32(u.measureUplinks())
	was, wired := u.tunnelMTU.Swap(tunnel), u.wireMTU.Swap(wire)
	return was != tunnel || wired != wire
}

// uplinkMTU is the biggest packet that all uplinks carry whole.
func (u *underlay) uplinkMTU() uint16 { return uint16(u.wireMTU.Load()) } //nolint:gosec // 16 bits wide

// measureUplinks looks at the uplinks that exist; without any, nothing is too big.
func (u *underlay) measureUplinks() uint16 {
	least := 65535 - ethernetLen
	for _, name := range u.cfg.Uplinks {
		if l, err := netlink.LinkByName(name); err == nil {
			least = min(least, l.Attrs().MTU)
		}
	}
	return uint16(least) //nolint:gosec // within bounds
}

// noteWidest follows the biggest MTU that a container may have: what their interfaces have
// when the driver starts, and what tunnels and uplinks carried since. Driver.mu is held.
func (u *underlay) noteWidest(want desired.Host) {
	if u.widest == nil {
		u.widest = map[model.Encap]uint16{}
		links, _ := netlink.LinkList() // none that is not seen now is taken for too big later
		for _, l := range links {
			p, _ := want.Ports.Get(l.Attrs().Name)
			if p == nil {
				continue
			}
			if n, _ := want.Networks.Get(p.Network); n != nil {
				u.widest[n.Encap] = max(u.widest[n.Encap], uint16(min(l.Attrs().MTU, 65535))) //nolint:gosec // within bounds
			}
		}
	}
	u.widest[model.EncapVXLAN] = max(u.widest[model.EncapVXLAN], u.mtu())
	if u.uplinkMTU() < 65535-ethernetLen {
		u.widest[model.EncapVLAN] = max(u.widest[model.EncapVLAN], u.uplinkMTU())
	}
}

// measureMTU looks at the interface that has the tunnel's address; if none has, Ethernet's
// MTU is taken.
func (u *underlay) measureMTU() uint16 {
	under, over := 1500, desired.TunnelOverhead(u.cfg.VTEP)
	if l := u.vtepLink(); l != nil && l.Attrs().Flags&unix.IFF_LOOPBACK == 0 {
		under = l.Attrs().MTU
	}
	return uint16(min(max(under-over, 68), 65535-ethernetLen)) //nolint:gosec // within bounds
}

// isDisconnected reports whether the underlay's bridge has cables, and none of them a link;
// d.db.mu is held.
func (u *underlay) isDisconnected() bool {
	b := u.conns.db.bridge(u.under)
	if b == nil {
		return false
	}
	cables := 0
	for _, id := range b.Ports {
		p := u.conns.db.ports[id]
		if p == nil {
			continue
		}
		s := u.conns.db.port(p.portName())
		if s.iface == nil || s.iface.Type != "" && s.iface.Type != "system" || p.Name == b.Name {
			continue
		}
		if s.up() || s.isUnreported() && !u.disconnected {
			return false
		}
		cables++
	}
	return cables > 0
}

// underlayProblems tells when the tunnel leads nowhere.
func (u *underlay) underlayProblems() []driver.Problem {
	if u.under == "" {
		u.under = u.findUnderlay()
	}
	beside := u.interfaceOutsideSwitch()
	u.conns.db.mu.Lock()
	defer u.conns.db.mu.Unlock()
	if u.disconnected = u.isDisconnected(); !u.disconnected {
		if beside != "" && u.conns.db.port(beside).port == nil {
			return []driver.Problem{{Object: "tunnel underlay", Err: model.Errorf(model.ErrUnavailable,
				"the tunnel's address %s (--vtep-ip) lies on interface %s, which is not of Open vSwitch: in user space tunnels leave by its bridges only, so containers cannot reach other hosts; put the interface into a bridge and the address on that (ovs-vsctl add-br, add-port), or give --vtep-ip an address of one", u.cfg.VTEP, beside)}}
		}
		if u.noSubnet {
			return []driver.Problem{{Object: "tunnel underlay", Err: model.Errorf(model.ErrUnavailable,
				"the tunnel's address %s (--vtep-ip) has no subnet (/%d), and Open vSwitch in user space has no route to other hosts from such an address: containers cannot reach them; give it the prefix of its link, or use driver ebpf", u.cfg.VTEP, u.cfg.VTEP.BitLen())}}
		}
		return nil
	}
	return []driver.Problem{{Object: "tunnel underlay", Err: model.Errorf(model.ErrUnavailable,
		"no interface in bridge %s, which has the tunnel's address %s, has a link: containers cannot reach other hosts", u.under, u.cfg.VTEP)}}
}

// interfaceOutsideSwitch returns the interface that has the tunnel's address, in user space, where no
// bridge has it; "" where it cannot be seen.
func (u *underlay) interfaceOutsideSwitch() string {
	if u.under != "" || u.cfg.Datapath != "netdev" || !u.cfg.VTEP.IsValid() {
		return ""
	}
	if l := u.vtepLink(); l != nil {
		return l.Attrs().Name
	}
	return ""
}
