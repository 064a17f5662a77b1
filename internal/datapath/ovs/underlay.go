package ovs

import (
	"context"
	"net/netip"
	"slices"
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

// findUnderlay returns the bridge whose interface has the tunnel's address; ""
// when none has.
func (d *Driver) findUnderlay() string {
	if d.cfg.Datapath != "netdev" || !d.cfg.VTEP.IsValid() {
		return ""
	}
	for _, name := range d.db.bridgeNames() {
		link, err := netlink.LinkByName(name)
		if err != nil {
			continue // a bridge that has just come or gone
		}
		have, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err == nil && slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.IP.String() == d.cfg.VTEP.String() }) {
			return name
		}
	}
	return ""
}

// vtepLink is the interface that has the tunnel's address, the loopback only if no other
// has it; nil when none has, or it cannot be seen.
func (d *Driver) vtepLink() (link netlink.Link) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil || !d.cfg.VTEP.IsValid() {
		return nil
	}
	for _, a := range all {
		if ip, ok := netip.AddrFromSlice(a.IP); !ok || ip.Unmap() != d.cfg.VTEP {
			continue
		}
		if l, err := netlink.LinkByIndex(a.LinkIndex); err == nil && (link == nil || l.Attrs().Flags&unix.IFF_LOOPBACK == 0) {
			link = l
		}
	}
	return link
}

// mtu is the biggest packet that tunnels carry whole, as watchMTU last measured it.
func (d *Driver) mtu() uint16 { return uint16(d.tunnelMTU.Load()) } //nolint:gosec // 16 bits wide

// watchMTU follows the MTU of the interface that has the tunnel's address.
func (d *Driver) watchMTU(ctx context.Context) {
	defer d.wg.Done()
	tick := time.NewTicker(mtuLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if d.noteMTU() {
			d.replay(ctx, "the MTU of the tunnel's interface or of an uplink has changed")
		}
	}
}

// mtuLook is how often the tunnel's interface is looked at.
const mtuLook = time.Second

// noteMTU measures the MTUs of tunnel and uplinks and reports whether one has changed.
func (d *Driver) noteMTU() bool {
	tunnel, wire := uint32((*d.measure.Load())()), uint32(d.measureUplinks())
	was, wired := d.tunnelMTU.Swap(tunnel), d.wireMTU.Swap(wire)
	return was != tunnel || wired != wire
}

// uplinkMTU is the biggest packet that all uplinks carry whole.
func (d *Driver) uplinkMTU() uint16 { return uint16(d.wireMTU.Load()) } //nolint:gosec // 16 bits wide

// measureUplinks looks at the uplinks that exist; without any, nothing is too big.
func (d *Driver) measureUplinks() uint16 {
	least := 65535 - ethernetLen
	for _, name := range d.cfg.Uplinks {
		if l, err := netlink.LinkByName(name); err == nil {
			least = min(least, l.Attrs().MTU)
		}
	}
	return uint16(least) //nolint:gosec // within bounds
}

// noteWidest follows the biggest MTU that a container may have: what their interfaces have
// when the driver starts, and what tunnels and uplinks carried since. d.mu is held.
func (d *Driver) noteWidest(want desired.Host) {
	if d.widest == nil {
		d.widest = map[model.Encap]uint16{}
		links, _ := netlink.LinkList() // none that is not seen now is taken for too big later
		for _, l := range links {
			p, _ := want.Ports.Get(l.Attrs().Name)
			if p == nil {
				continue
			}
			if n, _ := want.Networks.Get(p.Network); n != nil {
				d.widest[n.Encap] = max(d.widest[n.Encap], uint16(min(l.Attrs().MTU, 65535))) //nolint:gosec // within bounds
			}
		}
	}
	d.widest[model.EncapVXLAN] = max(d.widest[model.EncapVXLAN], d.mtu())
	if d.uplinkMTU() < 65535-ethernetLen {
		d.widest[model.EncapVLAN] = max(d.widest[model.EncapVLAN], d.uplinkMTU())
	}
}

// measureMTU looks at the interface that has the tunnel's address; if none has, Ethernet's
// MTU is taken.
func (d *Driver) measureMTU() uint16 {
	under, over := 1500, desired.TunnelOverhead(d.cfg.VTEP)
	if l := d.vtepLink(); l != nil && l.Attrs().Flags&unix.IFF_LOOPBACK == 0 {
		under = l.Attrs().MTU
	}
	return uint16(min(max(under-over, 68), 65535-ethernetLen)) //nolint:gosec // within bounds
}

// isCut tells whether the underlay's bridge has cables, and none of them a link;
// d.db.mu is held.
func (d *Driver) isCut() bool {
	b := d.db.bridge(d.under)
	if b == nil {
		return false
	}
	cables := 0
	for _, id := range b.Ports {
		p := d.db.ports[id]
		if p == nil {
			continue
		}
		s := d.db.port(p.called())
		if s.iface == nil || s.iface.Type != "" && s.iface.Type != "system" || p.Name == b.Name {
			continue
		}
		if s.up() || s.untold() && !d.cut {
			return false
		}
		cables++
	}
	return cables > 0
}

// underlayProblems tells when the tunnel leads nowhere.
func (d *Driver) underlayProblems() []driver.Problem {
	if d.under == "" {
		d.under = d.findUnderlay()
	}
	beside := d.besideSwitch()
	d.db.mu.Lock()
	defer d.db.mu.Unlock()
	if d.cut = d.isCut(); !d.cut {
		if beside != "" && d.db.port(beside).port == nil {
			return []driver.Problem{{Object: "tunnel underlay", Err: model.Errorf(model.ErrUnavailable,
				"the tunnel's address %s (--vtep-ip) lies on interface %s, which is not of Open vSwitch: in user space tunnels leave by its bridges alone, so containers reach nobody on other hosts; put the interface into a bridge and the address on that (ovs-vsctl add-br, add-port), or give --vtep-ip an address of one", d.cfg.VTEP, beside)}}
		}
		if d.alone {
			return []driver.Problem{{Object: "tunnel underlay", Err: model.Errorf(model.ErrUnavailable,
				"the tunnel's address %s (--vtep-ip) has no subnet (/%d), and Open vSwitch in user space finds no way to other hosts from such an address: containers reach nobody there; give it the prefix of its link, or use driver ebpf", d.cfg.VTEP, d.cfg.VTEP.BitLen())}}
		}
		return nil
	}
	return []driver.Problem{{Object: "tunnel underlay", Err: model.Errorf(model.ErrUnavailable,
		"no interface in bridge %s, which has the tunnel's address %s, has a link: containers reach nobody on other hosts", d.under, d.cfg.VTEP)}}
}

// besideSwitch returns the interface that has the tunnel's address, in user space, where no
// bridge has it; "" where it cannot be seen.
func (d *Driver) besideSwitch() string {
	if d.under != "" || d.cfg.Datapath != "netdev" || !d.cfg.VTEP.IsValid() {
		return ""
	}
	if l := d.vtepLink(); l != nil {
		return l.Attrs().Name
	}
	return ""
}
