package vethpair

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// dockerConfig is the Docker engine's configuration, which may name address pools.
const dockerConfig = "/etc/docker/daemon.json"

// Overlaps names the routes and address pools of this host that overlap with a
// prefix: routes other than default routes and the routes of the interface except,
// and the address pools that Docker is configured with.
func Overlaps(p netip.Prefix, except string) (routes, pools []string, err error) {
	if !p.IsValid() {
		return nil, nil, nil
	}
	if routes, err = overlappingRoutes(p, except, func(netip.Prefix, netlink.Route) bool { return true }); err != nil {
		return nil, nil, err
	}
	slices.Sort(routes)
	routes = slices.Compact(routes)
	data, err := os.ReadFile(dockerConfig)
	if errors.Is(err, os.ErrNotExist) {
		return routes, nil, nil
	}
	if err != nil {
		return routes, nil, fmt.Errorf("read Docker's pools: %w", err)
	}
	configured, err := dockerPools(data)
	for _, pool := range configured {
		if pool.Overlaps(p) {
			pools = append(pools, pool.String())
		}
	}
	return routes, pools, err
}

// overlappingRoutes names the routes of this host that overlap with a prefix and count, except
// default routes and the routes of an interface.
func overlappingRoutes(p netip.Prefix, except string, counts func(dst netip.Prefix, r netlink.Route) bool) (out []string, err error) {
	family := netlink.FAMILY_V4
	if p.Addr().Is6() {
		family = netlink.FAMILY_V6
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	defer h.Close()
	list, err := h.RouteList(nil, family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range list {
		if r.Dst == nil {
			continue
		}
		dst, err := netip.ParsePrefix(r.Dst.String())
		if err != nil || dst.Bits() == 0 || !dst.Overlaps(p) || !counts(dst, r) {
			continue
		}
		name := "route " + dst.String()
		if l, err := h.LinkByIndex(r.LinkIndex); err == nil {
			if l.Attrs().Name == except {
				continue
			}
			name += " on " + l.Attrs().Name
		}
		out = append(out, name)
	}
	return out, nil
}

func dockerPools(data []byte) ([]netip.Prefix, error) {
	var c struct {
		BIP   string `json:"bip"`
		Pools []struct {
			Base string `json:"base"`
		} `json:"default-address-pools"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("read Docker's pools: %w", err)
	}
	texts := []string{c.BIP}
	for _, p := range c.Pools {
		texts = append(texts, p.Base)
	}
	var out []netip.Prefix
	for _, s := range texts {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out, nil
}
