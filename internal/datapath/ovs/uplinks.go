package ovs

import (
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// refuseUnusableUplinks refuses uplinks that would take an address from the host's stack, unless
// they are in the bridge already.
func refuseUnusableUplinks(cfg Config, db *database) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, name := range cfg.Uplinks {
		if db.port(name).port != nil {
			continue
		}
		if err := whyNotUplink(uplinkPort(name)); err != nil {
			return err
		}
	}
	return nil
}

func uplinkPort(name string) newPort {
	return newPort{name: name, externalIDs: map[string]string{markKey: markUplink}}
}

// whyNotUplink returns why an interface may not become an uplink: it has an address of the
// host's. A port of Open vSwitch is the switch's, and the host would lose its network.
func whyNotUplink(p newPort) error {
	if p.externalIDs[markKey] != markUplink {
		return nil
	}
	link, err := netlink.LinkByName(p.name)
	if err != nil {
		return nil //nolint:nilerr // it may come later, and the status tells meanwhile
	}
	have, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil //nolint:nilerr // likewise
	}
	i := slices.IndexFunc(have, func(a netlink.Addr) bool { // what router advertisements give any interface does not count
		return a.Scope == unix.RT_SCOPE_UNIVERSE && (a.IP.To4() != nil || a.Flags&unix.IFA_F_PERMANENT != 0)
	})
	if i < 0 {
		return nil
	}
	return model.InvalidField("vlan-uplinks", p.name, "it carries the host's own address "+have[i].IP.String()+
		", and the host would lose its network when Open vSwitch takes the interface; name an interface without an address, or use driver ebpf, which leaves it to the host")
}
