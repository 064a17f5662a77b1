package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// assignAddresses sees that the host has the router addresses on one interface, which it returns:
// where somebody has put the first of them, or else the data plane's interface for them,
// or an uplink. Where IPv6 is off, which is the host's own decision, it goes on without
// the IPv6 one: it takes it out of b and notes the problem. links are the networks that the
// host is on then.
func (r *Router) assignAddresses(b *model.Bgp, h *hostPrefixes, problems map[string]string) (device string, links []netip.Prefix, err error) {
	have, err := hoststack.Addresses()
	if err != nil {
		return "", nil, fmt.Errorf("read this host's addresses: %w", err)
	}
	find := func(a netip.Addr) (string, bool) {
		i := slices.IndexFunc(have, func(x hoststack.HostAddr) bool { return x.Prefix.Addr() == a })
		if i < 0 {
			return "", false
		}
		return have[i].Device, true
	}
	device, there := find(b.RouterIP.Addr())
	if ours := slices.IndexFunc(r.put, func(x hoststack.HostAddr) bool { return x.Prefix == b.RouterIP }); there && ours < 0 {
		// Somebody has given the host this address, and knows where.
	} else if device, err = r.uplink(b.RouterIP, h.device, have); err != nil {
		return "", nil, err
	}
	if b.RouterIP6.IsValid() && hoststack.IPv6Off(device) {
		problems["BGP routerip6"] = fmt.Sprintf("IPv6 is off on interface %s (net.ipv6.conf.%s.disable_ipv6): %s is not added to it, and IPv6 routes are neither announced nor used", device, device, b.RouterIP6.Addr())
		b.RouterIP6 = netip.Prefix{}
	}
	var want []hoststack.HostAddr
	for _, p := range []netip.Prefix{b.RouterIP, b.RouterIP6} {
		if !p.IsValid() {
			continue
		}
		at := hoststack.HostAddr{Device: device, Prefix: p}
		if on, there := find(p.Addr()); there && !slices.Contains(r.put, at) {
			if on != device {
				return "", nil, model.Errorf(model.ErrConflict, "%s is on interface %s, and the other router address on %s: both must be on the same interface", p.Addr(), on, device)
			}
			continue
		}
		if i := slices.IndexFunc(h.networks, p.Overlaps); i >= 0 && !slices.Contains(r.put, at) {
			return "", nil, model.Errorf(model.ErrConflict, "router address %s is on %s, a network of containers: it is not added to %s", p, h.networks[i], device)
		}
		want = append(want, at)
	}
	if err := r.withdraw(want); err != nil {
		return "", nil, err
	}
	for _, at := range want {
		if slices.Contains(have, at) {
			continue
		}
		if err := hoststack.PutAddress(at); err != nil {
			return "", nil, err
		}
	}
	for _, x := range slices.Concat(have, want) {
		links = append(links, x.Prefix.Masked())
	}
	slices.SortFunc(links, netip.Prefix.Compare)
	return device, slices.Compact(links), nil
}

// uplink is the interface that gets routerip; made is the data plane's, if it has one.
func (r *Router) uplink(ip netip.Prefix, made string, have []hoststack.HostAddr) (string, error) {
	device := made
	for _, u := range r.cfg.Uplinks {
		if device == "" && hoststack.HasInterface(u) {
			device = u
		}
	}
	if made != "" && !hoststack.HasInterface(made) {
		return "", fmt.Errorf("the switch has not made interface %s for routerip %s yet", made, ip.Addr())
	}
	if device == "" {
		return "", model.Errorf(model.ErrNotFound, "no interface of this host has routerip %s, and there is no uplink (--vlan-uplinks) that could get it", ip.Addr())
	}
	for _, x := range have {
		if x.Device != device && x.Prefix.Addr().Is4() == ip.Addr().Is4() && x.Prefix.Masked().Overlaps(ip.Masked()) {
			return "", model.Errorf(model.ErrConflict, "routerip %s is on the network of interface %s (%s), which is not %s: the address is not added", ip, x.Device, x.Prefix, device)
		}
	}
	if made != "" {
		return device, nil
	}
	if err := hoststack.SwitchPort(device); err != nil {
		return "", model.Errorf(model.ErrConflict, "%w: add routerip %s to another interface of this host (docs/how-to/bgp.md)", err, ip)
	}
	return device, nil
}

// withdraw removes addresses that are no longer wanted. It records the wanted ones before
// they are added.
func (r *Router) withdraw(want []hoststack.HostAddr) error {
	if slices.Equal(want, r.put) {
		return nil
	}
	for _, at := range r.put {
		if !slices.Contains(want, at) {
			if err := hoststack.TakeAddress(at); err != nil {
				return err
			}
		}
	}
	if len(want) == 0 {
		if err := os.Remove(r.stateFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	} else if err := durable.WriteJSON(r.stateFile(), want); err != nil {
		return fmt.Errorf("save the router's addresses: %w", err)
	}
	r.put = want
	return nil
}

// readAssigned reads which addresses an earlier process has given.
func (r *Router) readAssigned() (out []hoststack.HostAddr) {
	data, err := os.ReadFile(r.stateFile())
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.cfg.Log.Warn("the addresses that BGP has added to interfaces are unknown: they stay", "error", err)
		return nil
	}
	return out
}

// Remove takes away what Routers have made here, for a host that netplugin leaves.
func Remove(ctx context.Context, stateDir string, log *slog.Logger) error {
	r := New(Config{StateDir: stateDir, Log: log})
	r.put = r.readAssigned()
	return r.leave(ctx, true)
}

// HasLeftovers reports whether Routers have left anything here.
func HasLeftovers(stateDir string) bool {
	r := New(Config{StateDir: stateDir})
	_, err := os.Stat(r.stateFile())
	return err == nil || r.kernel.Exists()
}
