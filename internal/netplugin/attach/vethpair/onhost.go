package vethpair

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The container's side of a pair may be the host's own interface. Then its network must not
// be able to send by the host's stack to other destinations, past all policy. So the host
// accepts from there only packets to the host itself, whether the host forwards or not. A
// routing rule does this for both families, behind the local table's rule (0) and before
// all others.
const (
	ownPriority = 1
	ownProtocol = 0xcf // marks our rules; people and routing daemons have others
)

// RestrictToOwnRoutes has the host's stack take by its interfaces of these names only what is sent to the
// host, and answer there for no address of another interface. Rules for other interfaces,
// which have gone, go. An interface that is not there is fine.
func RestrictToOwnRoutes(names []string) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("make routing rules: %w", err)
	}
	defer h.Close()
	var errs []error
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		errs = append(errs, noPolicyRouting(ownRules(h, family, names)))
	}
	for _, name := range names {
		for setting, value := range map[string]string{"arp_ignore": "1", "arp_announce": "2"} {
			err := writeSetting("/proc/sys/net/ipv4/conf/"+name+"/"+setting, value)
			if err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("set %s of %s: %w", setting, name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func ownRules(h *netlink.Handle, family int, names []string) error {
	all, err := h.RuleList(family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("list routing rules: %w", err)
	}
	there := map[string]bool{}
	for _, r := range all {
		if r.Priority != ownPriority || r.Protocol != ownProtocol {
			continue
		}
		if slices.Contains(names, r.IifName) && !there[r.IifName] {
			there[r.IifName] = true
			continue
		}
		r.Family = family
		if err := h.RuleDel(&r); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete a routing rule: %w", err)
		}
	}
	for _, name := range names {
		if there[name] {
			continue
		}
		r := netlink.NewRule()
		r.Family, r.Priority, r.IifName, r.Type, r.Protocol = family, ownPriority, name, unix.RTN_BLACKHOLE, ownProtocol
		if err := h.RuleAdd(r); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add a routing rule for packets that arrive by %s: %w", name, err)
		}
	}
	return nil
}

// ConflictingRoutes names the routes of this host that would be in the way of a route to one of
// these prefixes, invalid ones apart, or that in theirs: those to a part of it, and those
// to neighbours. Routes of the interface except, default routes, and wider ones by a
// gateway, do not count.
func ConflictingRoutes(except string, prefixes ...netip.Prefix) (out []string, err error) {
	for _, p := range prefixes {
		if !p.IsValid() {
			continue
		}
		routes, err := overlappingRoutes(p, except, func(dst netip.Prefix, r netlink.Route) bool {
			return dst.Bits() >= p.Bits() || r.Gw == nil && len(r.MultiPath) == 0
		})
		if err != nil {
			return nil, err
		}
		out = append(out, routes...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// SetUp takes an interface of the host up or down; without it its routes are gone.
func SetUp(name string, up bool) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	if up {
		err = h.LinkSetUp(l)
	} else {
		err = h.LinkSetDown(l)
	}
	if err != nil {
		return fmt.Errorf("set interface %s up or down: %w", name, err)
	}
	return nil
}
