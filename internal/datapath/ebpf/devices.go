package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// devices are the interfaces of the host that carry packets of containers: the VXLAN device,
// the underlay, the uplink, and the host's interface to its containers. Driver.mu guards
// all but vtep.
type devices struct {
	Source table[uint32, tunnelSource] `map:"tunnel_source,global,fixed"`

	cfg      Config
	obj      *objects
	att      *attacher
	settings *programSettings
	repairs  repairs

	underlay  underlay
	vlan      bool                       // there are VLAN networks, which need an uplink
	vtep      atomic.Pointer[netip.Addr] // the tunnel's address, for probes
	testFault func() error               // tests only: called before a device is read
}

// put makes sure of the tunnel device and the uplink, where networks need
// them. What cannot be looked at just now stays as it was.
func (d *devices) put(run *applyRun) error {
	old := d.settings.get()
	s := old
	s.Flood, s.VXLAN, s.Uplink, s.Underlay, s.MTU, s.UplinkMTU = 0, 0, 0, 0, 0, 0
	if run.want.ArpMode == model.ArpFlood {
		s.Flood = 1
	}
	binary.BigEndian.PutUint16(s.VXLANPort[:], d.cfg.VXLANPort)
	var vxlan bool
	d.vlan = false
	for _, n := range run.networks {
		vxlan = vxlan || n.Encap == model.EncapVXLAN
		d.vlan = d.vlan || n.Encap == model.EncapVLAN
	}
	if vxlan {
		if err := d.putTunnel(run, &s, old); err != nil {
			run.problem("tunnel "+d.cfg.Device, err)
			run.tunnelErr = err
			if d.deviceRemains(d.cfg.Device, old.VXLAN) {
				s.VXLAN, s.MTU, s.Underlay = old.VXLAN, old.MTU, old.Underlay
				if s.Underlay != 0 {
					d.att.wanted[d.underlay.name] = true
				}
			}
		}
	}
	if name, err := d.uplinkName(); d.vlan && name != "" {
		if err == nil {
			err = d.putUplink(run, &s, old, name)
		}
		if err != nil {
			run.problem("uplink "+name, err)
			if d.deviceRemains(name, old.Uplink) {
				s.Uplink, s.UplinkMTU = old.Uplink, old.UplinkMTU
			}
		}
	}
	if old.Uplink != 0 && old.Uplink != s.Uplink { // its link goes with all unwanted ones; a filter has no pin to be found by
		if err := d.att.detach("", int(old.Uplink)); err != nil {
			run.problem("former uplink", err)
		}
	}
	d.putHostSide(run, &s)
	if s.RoutedNetworks = 0; len(run.routedNetworks()) > 0 {
		s.RoutedNetworks = 1
	}
	return d.settings.put(s)
}

// deviceRemains reports whether a device that was in use, and could not be made sure of,
// is still there: then it stays in use, with its program. What the kernel does
// not tell is taken to be there.
func (d *devices) deviceRemains(name string, index uint32) bool {
	if index == 0 {
		return false
	}
	if _, err := netlink.LinkByIndex(int(index)); errors.As(err, &netlink.LinkNotFoundError{}) {
		return false
	}
	d.att.wanted[name] = true
	return true
}

// putTunnel makes sure of the tunnel device, its program, and the fast path.
func (d *devices) putTunnel(run *applyRun, s *settings, old settings) error {
	if err := d.injectFault(); err != nil {
		return err
	}
	if err := d.underlay.find(run.want.VTEP); err != nil {
		return err
	}
	s.MTU = uint32(d.underlay.innerMTU())
	if err := d.Source.put(0, d.underlay.source()); err != nil {
		return err
	}
	vtep := run.want.VTEP
	d.vtep.Store(&vtep)
	index, made, err := ensureTunnel(d.cfg.Device, tunnelAlias(d.cfg.PinDir), d.cfg.VXLANPort, d.underlay.innerMTU())
	if err != nil {
		return err
	}
	attached, err := d.att.attach(d.cfg.Device, index, true, d.obj.FromTunnel)
	if err != nil {
		return err
	}
	run.count(made, attached)
	d.noteDeviceRestored(d.cfg.Device, old.VXLAN, uint32(index), attached)
	s.VXLAN, d.att.wanted[d.cfg.Device] = uint32(index), true
	if err := d.enableFastPath(run, s); err != nil { // packets take the slow path
		run.problem("tunnel "+d.cfg.Device, err)
	}
	return nil
}

// putUplink makes sure of the program on the uplink.
func (d *devices) putUplink(run *applyRun, s *settings, old settings, name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	index := uint32(l.Attrs().Index)
	attached, err := d.att.attach(name, int(index), true, d.obj.FromUplink)
	if err != nil {
		return err
	}
	run.count(attached)
	d.repairs.program(attached && index == old.Uplink, name)
	s.Uplink, s.UplinkMTU, d.att.wanted[name] = index, uint32(l.Attrs().MTU), true
	return nil
}

// noteDeviceRestored tells of a device of ours, or its program, that had been removed.
func (d *devices) noteDeviceRestored(name string, old, index uint32, attached bool) {
	switch {
	case old == 0:
	case old != index:
		d.repairs.note(driver.DriftDevice, name, 1)
	default:
		d.repairs.program(attached, name)
	}
}

// injectFault fails where a test wants the kernel's answers to fail.
func (d *devices) injectFault() error {
	if d.testFault == nil {
		return nil
	}
	return d.testFault()
}

// tunnelAlias marks the VXLAN device as belonging to a pin directory's driver.
func tunnelAlias(pinDir string) string { return "contiv " + pinDir }

// ensureTunnel makes the VXLAN device, which carries every network: the
// program says the VNI and the host of each packet. It is ours by its alias.
func ensureTunnel(name, alias string, udpPort uint16, mtu int) (index int, made bool, err error) {
	l, err := netlink.LinkByName(name)
	if err == nil {
		v, ok := l.(*netlink.Vxlan)
		if !ok || l.Attrs().Alias != alias {
			return 0, false, ownedByOther(l, alias)
		}
		if v.FlowBased && v.Port == int(udpPort) {
			if l.Attrs().MTU != mtu {
				if err := netlink.LinkSetMTU(l, mtu); err != nil {
					return 0, false, fmt.Errorf("interface %s: set MTU %d: %w", name, mtu, err)
				}
				made = true
			}
			if l.Attrs().Flags&1 == 0 {
				err = netlink.LinkSetUp(l)
			}
			return l.Attrs().Index, made, err
		}
		if err := netlink.LinkDel(l); err != nil {
			return 0, false, fmt.Errorf("interface %s: replace: %w", name, err)
		}
	} else if !errors.As(err, &netlink.LinkNotFoundError{}) {
		return 0, false, fmt.Errorf("interface %s: %w", name, err)
	}
	v := &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu}, FlowBased: true, Port: int(udpPort)}
	if err := netlink.LinkAdd(v); err != nil {
		return 0, false, portTaken(name, udpPort, err)
	}
	if l, err = netlink.LinkByName(name); err == nil {
		if err = netlink.LinkSetAlias(l, alias); err == nil {
			err = netlink.LinkSetUp(l)
		}
	}
	if err != nil {
		return 0, false, errors.Join(portTaken(name, udpPort, err), netlink.LinkDel(v))
	}
	return l.Attrs().Index, true, nil
}

// ownedByOther explains that a device of ours has another owner.
func ownedByOther(l netlink.Link, alias string) error {
	a := l.Attrs()
	if dir, ok := strings.CutPrefix(a.Alias, tunnelAlias("")); ok {
		return otherDirError{a.Name, dir}
	}
	return model.Errorf(model.ErrConflict, "interface %s exists and is not Contiv's (a %s whose alias is %q, not %q)", a.Name, l.Type(), a.Alias, alias)
}

// portTaken explains why the VXLAN device cannot be made or brought up.
func portTaken(name string, udpPort uint16, err error) error {
	if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	holder := "a socket of this host (ss -ulnp)"
	if all, err := netlink.LinkList(); err == nil {
		for _, l := range all {
			if v, ok := l.(*netlink.Vxlan); ok && v.Port == int(udpPort) && v.Name != name {
				holder = fmt.Sprintf("VXLAN device %s (VNI %d)", v.Name, v.VxlanId)
			}
		}
	}
	return model.Errorf(model.ErrConflict, "interface %s: UDP port %d is in use by %s, which is not Contiv's; remove it, or give every netplugin of the cluster another --vxlan-port: %w", name, udpPort, holder, err)
}

// resized reports whether an interface's change concerns what fits the tunnel or
// the uplink.
func (d *devices) resized(index, mtu int, gone bool) bool {
	if index == d.underlay.index && (gone || mtu != d.underlay.mtu) {
		d.underlay.index = 0
		return true
	}
	s := d.settings.get()
	return s.Uplink == uint32(index) && !gone && s.UplinkMTU != uint32(mtu)
}

// uplinkName is the first uplink that exists; an error comes with the one that
// could not be looked for.
func (d *devices) uplinkName() (string, error) {
	for _, name := range d.cfg.Uplinks {
		i, err := ifindex(name)
		if err == nil {
			err = d.injectFault()
		}
		if err != nil {
			return name, err
		}
		if i != 0 {
			return name, nil
		}
	}
	return "", nil
}

// interfaces returns the indexes of the devices that have programs, by name.
func (d *devices) interfaces() map[string]int {
	s := d.settings.get()
	out := map[string]int{d.cfg.Device: int(s.VXLAN), d.underlay.name: d.underlay.index}
	if name, err := d.uplinkName(); err == nil && s.Uplink != 0 {
		out[name] = int(s.Uplink)
	}
	return out
}
