package hostsync

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// Underlay is what carries this host's networks: the interface with the tunnel's
// address, and the uplinks of VLAN networks.
type Underlay struct {
	VTEP    netip.Addr
	MTU     int      // 0 = the MTU of the interface that holds VTEP, else 1500
	Uplinks []string // the first one that exists is used

	mtu    underlayMTU
	tunnel tunnelWatch
	vlans  vlans
}

// TunnelMTU is what the underlay leaves in tunnels.
func (u *Underlay) TunnelMTU() int {
	return min(u.carries()-desired.TunnelOverhead(u.VTEP), 65535)
}

// UplinkMTU is what the uplink in use leaves on VLAN networks.
func (u *Underlay) UplinkMTU() int { return min(uplinkMTU(u.Uplinks, u.carries()), 65535) }

func (u *Underlay) carries() int {
	if u.MTU != 0 {
		return u.MTU
	}
	return u.mtu.get(u.VTEP)
}

// Of returns the MTU of a container's interface.
func (u *Underlay) Of(n model.Network, asked int) (int, error) {
	limit := u.TunnelMTU()
	if n.Encap == model.EncapVLAN {
		if why := u.noUplink(); why != "" {
			return 0, model.Errorf(model.ErrUnavailable, "network %s is a VLAN network, and %s", n.Key, why)
		}
		limit = u.UplinkMTU()
	}
	switch {
	case asked == 0:
		return limit, nil
	case asked < 576 || asked > limit:
		return 0, model.InvalidField("mtu", asked, fmt.Sprintf("must be between 576 and %d, what the underlay leaves on %s networks", limit, n.Encap))
	case asked < 1280 && n.Subnet6.IsValid():
		return 0, model.InvalidField("mtu", asked, "must be at least 1280 on a network with IPv6 (RFC 8200 section 5)")
	}
	return asked, nil
}

// noUplink says why this host carries no VLAN network; "" = it does.
func (u *Underlay) noUplink() string {
	for _, name := range u.Uplinks {
		if _, err := vethpair.InterfaceMTU(name); err == nil {
			return ""
		}
	}
	if len(u.Uplinks) == 0 {
		return "this host has no uplink for those: start netplugin with --vlan-uplinks INTERFACE"
	}
	return "this host has no interface " + strings.Join(u.Uplinks, " or ") + ": make it, or give --vlan-uplinks another"
}

// Problems tells of the VLAN networks that have containers here and no uplink.
func (u *Underlay) Problems(pic desired.Host) (problems []compile.Problem) {
	networks := u.vlans.follow(pic)
	if len(networks) == 0 {
		return nil
	}
	why := u.noUplink()
	if why == "" {
		return nil
	}
	for _, n := range networks {
		problems = append(problems, compile.Problem{Object: "uplink of network " + n.String(), Text: "its containers here reach nobody beyond this host: " + why})
	}
	return problems
}

// UplinkProblem tells of an uplink that carries nothing: the first that exists is
// used, whether it is up or not.
func (u *Underlay) UplinkProblem() error {
	for _, name := range u.Uplinks {
		l, err := vethpair.LinkNamed(name)
		if err != nil {
			continue
		}
		if !l.Up {
			return fmt.Errorf("interface %s, the uplink of VLAN networks (--vlan-uplinks), is down or has no link: their containers here cannot reach anything beyond this host", name)
		}
		return nil
	}
	return nil // Problems has said so
}

// vlans are the VLAN networks of the last desired state. Only the runner's goroutine
// uses it.
type vlans struct {
	seen desired.Map[model.NetworkID, *desired.Network]
	keys map[model.NetworkID]model.NetworkKey
}

// follow returns the VLAN networks of a desired state, at the cost of what has changed
// since the last.
func (v *vlans) follow(pic desired.Host) map[model.NetworkID]model.NetworkKey {
	for c := range pic.Networks.Diff(v.seen) {
		if c.Has && c.New.Encap == model.EncapVLAN {
			if v.keys == nil {
				v.keys = map[model.NetworkID]model.NetworkKey{}
			}
			v.keys[c.Key] = c.New.Key
		} else {
			delete(v.keys, c.Key)
		}
	}
	v.seen = pic.Networks
	return v.keys
}

// uplinkMTU is the MTU of the first uplink that exists, otherwise the underlay's.
func uplinkMTU(uplinks []string, underlay int) int {
	for _, name := range uplinks {
		if mtu, err := vethpair.InterfaceMTU(name); err == nil {
			return mtu
		}
	}
	return underlay
}

// underlayMTU remembers the MTU of the interface that holds the VTEP: finding
// it costs a look at every interface, and it hardly ever changes.
type underlayMTU struct {
	mu  sync.Mutex
	at  time.Time
	mtu int
}

// underlayCacheTime is how long that MTU is remembered.
const underlayCacheTime = 10 * time.Second

func (u *underlayMTU) get(vtep netip.Addr) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mtu == 0 || time.Since(u.at) > underlayCacheTime {
		u.at, u.mtu = time.Now(), 1500 // Ethernet's, when no interface holds the address
		if v, err := vethpair.LinkMTU(vtep.String()); err == nil {
			u.mtu = v
		}
	}
	return u.mtu
}

// tunnelWatch looks at the interface that has the tunnel's address. It says nothing
// before an interface has had it: the start checks that.
type tunnelWatch struct {
	mu   sync.Mutex
	name string
}

// TunnelProblem tells of an interface with the tunnel's address that carries
// nothing, or has gone.
func (u *Underlay) TunnelProblem() error { return u.tunnel.problem(u.VTEP) }

func (w *tunnelWatch) problem(vtep netip.Addr) error {
	if !vtep.IsValid() {
		return nil
	}
	l, err := vethpair.LinkOf(vtep)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case errors.Is(err, model.ErrNotFound) && w.name != "":
		return fmt.Errorf("interface %s had the tunnel's address %s (--vtep-ip), and no interface has it now: containers cannot reach other hosts", w.name, vtep)
	case err != nil:
		return nil // what cannot be seen is not judged
	}
	w.name = l.Name
	if !l.Up {
		return fmt.Errorf("interface %s, which has the tunnel's address %s, is down or has no link: containers cannot reach other hosts", l.Name, vtep)
	}
	return nil
}
