package plumb

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

// dockerConfig is where a Docker engine is told of address pools.
const dockerConfig = "/etc/docker/daemon.json"

// Overlaps names the networks of this host that overlap with a prefix: routes
// other than the default one, and address pools that Docker is configured with.
func Overlaps(p netip.Prefix) ([]string, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	defer h.Close()
	routes, err := h.RouteList(nil, netlink.FAMILY_V4)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var found []string
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		dst, err := netip.ParsePrefix(r.Dst.String())
		if err != nil || dst.Bits() == 0 || !dst.Overlaps(p) {
			continue
		}
		name := "route " + dst.String()
		if l, err := h.LinkByIndex(r.LinkIndex); err == nil {
			name += " on " + l.Attrs().Name
		}
		found = append(found, name)
	}
	data, err := os.ReadFile(dockerConfig)
	if errors.Is(err, os.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return found, fmt.Errorf("read Docker's pools: %w", err)
	}
	pools, err := dockerPools(data)
	for _, pool := range pools {
		if pool.Overlaps(p) {
			found = append(found, "Docker's address pool "+pool.String())
		}
	}
	slices.Sort(found)
	return slices.Compact(found), err
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
