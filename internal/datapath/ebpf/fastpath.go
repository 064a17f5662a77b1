package ebpf

import (
	"github.com/vishvananda/netlink"
)

// belowPinDir ends the name of the link on the underlay's interface, which may be
// an uplink as well.
const belowPinDir = "under"

func underPin(ifname string) string { return ifname + ":" + belowPinDir }

// enableFastPath lets packets of established connections take the fast path to
// and from other hosts, on the interface that has the tunnel address. Without
// them (no TCX, an IPv6 address, no Ethernet, IPsec policies, which they would
// bypass) packets take the way through the host's stack, as the first ones of
// every connection do.
func (d *devices) enableFastPath(run *applyRun, s *settings) error {
	name := d.underlay.name
	if d.att.way != attachTCX || !run.want.VTEP.Is4() || name == "" {
		return nil
	}
	if _, err := d.att.link(underPin(name), name, d.underlay.index, true, d.obj.FromUnderlay); err != nil {
		return err
	}
	d.att.wanted[name] = true
	policies, err := netlink.XfrmPolicyList(netlink.FAMILY_ALL)
	if err != nil || len(policies) > 0 {
		return nil //nolint:nilerr // a kernel that does not tell is taken for one that has some
	}
	s.Underlay, s.VTEP, s.VTEPMask = uint32(d.underlay.index), run.want.VTEP.As4(), d.underlay.mask
	return nil
}
