package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// putDevices makes sure of the tunnel device and the uplink, where networks need
// them. What cannot be looked at just now stays as it was.
func (p *applyRun) putDevices() error {
	old := p.settings.have[0]
	s := old
	s.Flood, s.VXLAN, s.Uplink, s.Underlay, s.MTU, s.UplinkMTU = 0, 0, 0, 0, 0, 0
	if p.want.ArpMode == model.ArpFlood {
		s.Flood = 1
	}
	binary.BigEndian.PutUint16(s.VXLANPort[:], p.cfg.VXLANPort)
	var vxlan bool
	p.vlan = false
	for _, n := range p.networks {
		vxlan = vxlan || n.Encap == model.EncapVXLAN
		p.vlan = p.vlan || n.Encap == model.EncapVLAN
	}
	if vxlan {
		if err := p.putTunnel(&s, old); err != nil {
			p.problem("tunnel "+p.cfg.Device, err)
			p.tunnelErr = err
			if p.stays(p.cfg.Device, old.VXLAN) {
				s.VXLAN, s.MTU, s.Underlay = old.VXLAN, old.MTU, old.Underlay
				if s.Underlay != 0 {
					p.attached[p.under.name] = true
				}
			}
		}
	}
	if name, err := p.uplinkName(); p.vlan && name != "" {
		if err == nil {
			err = p.putUplink(&s, old, name)
		}
		if err != nil {
			p.problem("uplink "+name, err)
			if p.stays(name, old.Uplink) {
				s.Uplink, s.UplinkMTU = old.Uplink, old.UplinkMTU
			}
		}
	}
	if old.Uplink != 0 && old.Uplink != s.Uplink { // its link goes with all that nobody wants; a filter has no pin to be found by
		if err := p.att.detach("", int(old.Uplink)); err != nil {
			p.problem("former uplink", err)
		}
	}
	p.putHostSide(&s)
	if s.Natives = 0; len(p.listRoutedNetworks()) > 0 {
		s.Natives = 1
	}
	return p.settings.put(0, s)
}

// stays tells whether a device that was in use, and could not be made sure of,
// is still there: then it stays in use, with its program. What the kernel does
// not tell is taken to be there.
func (p *applyRun) stays(name string, index uint32) bool {
	if index == 0 {
		return false
	}
	if _, err := netlink.LinkByIndex(int(index)); errors.As(err, &netlink.LinkNotFoundError{}) {
		return false
	}
	p.attached[name] = true
	return true
}

// putTunnel makes sure of the tunnel device, its program, and the short ways.
func (p *applyRun) putTunnel(s *settings, old settings) error {
	if err := p.askDevices(); err != nil {
		return err
	}
	if err := p.under.find(p.want.VTEP); err != nil {
		return err
	}
	s.MTU = uint32(p.under.inner())
	if err := p.source.put(0, p.under.source()); err != nil {
		return err
	}
	vtep := p.want.VTEP
	p.vtep.Store(&vtep)
	index, made, err := ensureTunnel(p.cfg.Device, tunnelAlias(p.cfg.PinDir), p.cfg.VXLANPort, p.under.inner())
	if err != nil {
		return err
	}
	attached, err := p.att.attach(p.cfg.Device, index, true, p.obj.FromTunnel)
	if err != nil {
		return err
	}
	p.count(made, attached)
	p.deviceAgain(p.cfg.Device, old.VXLAN, uint32(index), attached)
	s.VXLAN, p.attached[p.cfg.Device] = uint32(index), true
	if err := p.openShortWays(s); err != nil { // packets take the long way
		p.problem("tunnel "+p.cfg.Device, err)
	}
	return nil
}

// putUplink makes sure of the program on the uplink.
func (p *applyRun) putUplink(s *settings, old settings, name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	index := uint32(l.Attrs().Index)
	attached, err := p.att.attach(name, int(index), true, p.obj.FromUplink)
	if err != nil {
		return err
	}
	p.count(attached)
	p.attachedAgain(attached && index == old.Uplink, name)
	s.Uplink, s.UplinkMTU, p.attached[name] = index, uint32(l.Attrs().MTU), true
	return nil
}

// attachedAgain tells of a program that had been taken off an interface.
func (p *applyRun) attachedAgain(was bool, name string) {
	if was {
		p.drift.Repaired(p.cfg.Log, driver.DriftProgram, name, 1)
	}
}

// deviceAgain tells of a device of ours, or its program, that had been removed.
func (p *applyRun) deviceAgain(name string, old, index uint32, attached bool) {
	switch {
	case old == 0:
	case old != index:
		p.drift.Repaired(p.cfg.Log, driver.DriftDevice, name, 1)
	default:
		p.attachedAgain(attached, name)
	}
}

// askDevices fails where a test wants the kernel's answers to fail.
func (d *Driver) askDevices() error {
	if d.deviceFault == nil {
		return nil
	}
	return d.deviceFault()
}

// tunnelAlias marks the VXLAN device as that of a pin directory's driver.
func tunnelAlias(pinDir string) string { return "contiv " + pinDir }

// ensureTunnel makes the VXLAN device, which carries every network: the
// program says the VNI and the host of each packet. It is ours by its alias.
func ensureTunnel(name, alias string, udpPort uint16, mtu int) (index int, made bool, err error) {
	l, err := netlink.LinkByName(name)
	if err == nil {
		v, ok := l.(*netlink.Vxlan)
		if !ok || l.Attrs().Alias != alias {
			return 0, false, taken(l, alias)
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

// taken explains that a device of ours has another owner.
func taken(l netlink.Link, alias string) error {
	a := l.Attrs()
	if dir, ok := strings.CutPrefix(a.Alias, tunnelAlias("")); ok {
		return otherDirError{a.Name, dir}
	}
	return model.Errorf(model.ErrConflict, "interface %s exists and is not ours (a %s whose alias is %q, not %q)", a.Name, l.Type(), a.Alias, alias)
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
	return model.Errorf(model.ErrConflict, "interface %s: UDP port %d is held by %s, which is not ours; remove it, or give every netplugin of the cluster another --vxlan-port: %w", name, udpPort, holder, err)
}
