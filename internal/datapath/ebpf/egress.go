package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// peerDevice is the other end of the host's side. Nothing ever gets there, as a
// program takes every frame before: a pair is what every kernel with containers
// has, a device with one end (dummy) is not.
const peerDevice = "contivh1"

// setPeerUp brings it up, silent.
func setPeerUp() error {
	l, err := netlink.LinkByName(peerDevice)
	if err != nil {
		return fmt.Errorf("interface %s: %w", peerDevice, err)
	}
	err = os.WriteFile("/proc/sys/net/ipv6/conf/"+peerDevice+"/disable_ipv6", []byte("1"), 0)
	if errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
		err = nil
	}
	return errors.Join(err, netlink.LinkSetUp(l))
}

// hostMTU is the MTU of the host's side: whatever a container may send fits,
// and the route to containers says what fits into them.
const hostMTU = 65535

// ipv4Word is an IPv4 address as the programs compare it: in network order; 0 = none.
func ipv4Word(a netip.Addr) uint32 {
	if !a.Is4() {
		return 0
	}
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

func maskWord(p netip.Prefix) uint32 {
	if !p.IsValid() || !p.Addr().Is4() {
		return 0
	}
	return binary.NativeEndian.Uint32(net.CIDRMask(p.Bits(), 32))
}

// putHostSide makes sure of the host's own side of egress: a device of
// which nothing but the program on it ever takes a frame.
func (d *devices) putHostSide(run *applyRun, s *settings) {
	old := *s
	s.Host, s.HostIP, s.PrivateNet, s.PrivateMask, s.Private6, s.Router = 0, 0, 0, 0, addr{}, desired.RouterMAC
	w := run.want.HostNAT
	if w == nil {
		return
	}
	index, made, attached, err := 0, false, false, d.injectFault()
	if err == nil {
		index, made, err = ensureHostSide(w, tunnelAlias(d.cfg.PinDir))
	}
	if err == nil {
		attached, err = d.att.attach(w.Interface, index, false, d.obj.FromHost)
		run.count(made, attached)
	}
	if err != nil {
		run.problem("interface "+w.Interface, err)
		if d.deviceRemains(w.Interface, old.Host) {
			s.Host, s.HostIP, s.PrivateNet, s.PrivateMask, s.Private6 = old.Host, old.HostIP, old.PrivateNet, old.PrivateMask, old.Private6
		}
		return
	}
	d.noteDeviceRestored(w.Interface, old.Host, uint32(index), attached)
	if made && old.Host == uint32(index) {
		d.repairs.note(driver.DriftDevice, w.Interface, 1)
	}
	d.att.wanted[w.Interface] = true
	s.Host, s.HostIP = uint32(index), ipv4Word(w.Addr)
	s.PrivateNet, s.PrivateMask = ipv4Word(w.Subnet.Addr()), maskWord(w.Subnet)
	s.Private6 = toAddr(w.Subnet6.Addr())
}

// sweepPrivates deletes the private addresses that no port has.
func (p *ports) sweepPrivates(*applyRun) error {
	p.private = nil
	return p.Privates.sweep()
}

// checkPrivate refuses a port whose private address cannot be, or is another's.
func (p *ports) checkPrivate(run *applyRun, o *desired.Port) error {
	number := o.PrivateNumber()
	if run.want.HostNAT == nil || !number.IsValid() {
		return nil
	}
	if err := run.want.HostNAT.Check(o); err != nil {
		return err
	}
	if other := p.private[number]; other != "" && other != o.IfName {
		return model.Errorf(model.ErrExists, "private address %s belongs to port %s", number, other)
	}
	p.private[number] = o.IfName
	return nil
}

// putEgress writes a port's part of egress into its entry, and who has its
// private address.
func (p *ports) putEgress(run *applyRun, index uint32, o *desired.Port, n *desired.Network, entry *port) error {
	number := o.PrivateNumber()
	if run.want.HostNAT == nil || !number.IsValid() {
		return nil
	}
	if o.Private.IsValid() {
		entry.PrivateIP = ipv4Word(o.Private)
		if !n.Router().IsValid() {
			entry.Diverts = 1
		}
	}
	if o.Private6.IsValid() {
		entry.Private6 = toAddr(o.Private6)
		if !n.Router6().IsValid() {
			entry.Diverts6 = 1
		}
	}
	return p.Privates.put(ipv4Word(number), index)
}

// ensureHostSide makes the device; it is ours by its alias.
func ensureHostSide(w *desired.HostNAT, alias string) (index int, made bool, err error) {
	name := w.Interface
	l, err := netlink.LinkByName(name)
	switch {
	case errors.As(err, &netlink.LinkNotFoundError{}):
		made = true
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.HardwareAddr = name, hostMTU, net.HardwareAddr(w.RouterMAC[:])
		if err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peerDevice, PeerMTU: hostMTU}); err != nil {
			return 0, false, fmt.Errorf("interface %s: create: %w", name, err)
		}
		if l, err = netlink.LinkByName(name); err == nil {
			err = errors.Join(netlink.LinkSetAlias(l, alias), setPeerUp())
		}
	case err == nil && (l.Type() != "veth" || l.Attrs().Alias != alias):
		return 0, false, ownedByOther(l, alias)
	case err == nil && l.Attrs().HardwareAddr.String() != w.RouterMAC.String():
		made = true
		err = netlink.LinkSetHardwareAddr(l, w.RouterMAC[:])
	}
	if err == nil && l.Attrs().Flags&net.FlagUp == 0 {
		made = true
		err = errors.Join(netlink.LinkSetARPOff(l), netlink.LinkSetUp(l))
	}
	if err != nil {
		return 0, false, fmt.Errorf("interface %s: %w", name, err)
	}
	return l.Attrs().Index, made, nil
}

// removeHostSide removes the device when there is no egress any more.
func (d *devices) removeHostSide(run *applyRun) error {
	if run.want.HostNAT != nil {
		return nil
	}
	l, err := ourDevice(desired.HostInterface, tunnelAlias(d.cfg.PinDir))
	if err == nil && l != nil {
		err = netlink.LinkDel(l)
		run.count(true)
	}
	if err != nil {
		run.problem("interface "+desired.HostInterface, err)
	}
	return nil
}

// ourDevice finds a device by its name and alias; nil when it does not exist or
// is not ours.
func ourDevice(name, alias string) (netlink.Link, error) {
	l, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	if l.Attrs().Alias != alias {
		return nil, nil
	}
	return l, nil
}
