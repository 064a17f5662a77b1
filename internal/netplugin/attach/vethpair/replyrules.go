package vethpair

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// The routing policy of interfaces beside the one that has the default route. Each has
// a table of its own, by its number; tables up to 65535 are what people use, and the
// rules come before the main table's (32766).
const (
	replyRulePriority = 30000
	replyTables       = 0x63760000 // "cv": + the interface's number
)

// routeReplies routes packets from an interface's addresses by that interface's gateway, in a
// namespace whose default route belongs to another interface. Without it, the answer to a
// client in another subnet would leave by the other interface, under the other's policy and
// from an address that it does not have. Kernels without policy routing
// (CONFIG_IP_MULTIPLE_TABLES) are left as they are.
func routeReplies(h *netlink.Handle, index int, addresses []netip.Prefix, gw netip.Addr) error {
	family := netlink.FAMILY_V6
	if gw.Is4() {
		family = netlink.FAMILY_V4
	}
	table := replyTables + index
	if err := sweepRules(h, family, index); err != nil {
		return noPolicyRouting(err)
	}
	way := defaultRouteBy(index, addresses, gw)
	way.Table = table
	var routes []*netlink.Route
	for _, p := range addresses {
		if p.Addr().Is4() == gw.Is4() && !p.Addr().IsLinkLocalUnicast() {
			routes = append(routes, &netlink.Route{LinkIndex: index, Dst: ipNet(p.Masked()), Scope: netlink.SCOPE_LINK, Table: table})
		}
	}
	for _, r := range append(routes, way) {
		if err := h.RouteReplace(r); err != nil {
			return fmt.Errorf("add route %s to the interface's table: %w", r.Dst, err)
		}
	}
	for _, p := range addresses {
		if p.Addr().Is4() != gw.Is4() || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		rule := netlink.NewRule()
		rule.Family, rule.Priority, rule.Table = family, replyRulePriority, table
		rule.Src = ipNet(netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
		if err := h.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
			return noPolicyRouting(fmt.Errorf("add a routing rule for packets from %s: %w", p.Addr(), err))
		}
	}
	return nil
}

// SweepReplyRoutes deletes from a namespace the rules of interfaces that are gone. A namespace
// that is gone has none.
func SweepReplyRoutes(path string) error {
	err := within(path, func(h *netlink.Handle) error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			if err := noPolicyRouting(sweepRules(h, family, 0)); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, model.ErrNotFound) || errors.Is(err, model.ErrInvalid) { // or something else has its path
		return nil
	}
	return err
}

// sweepRules deletes the rules of an interface, and of deleted interfaces: with an
// interface the kernel deletes its routes, but not its rules.
func sweepRules(h *netlink.Handle, family, index int) error {
	rules, err := h.RuleList(family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("list routing rules: %w", err)
	}
	for _, r := range rules {
		if r.Priority != replyRulePriority || r.Table&^0xffff != replyTables {
			continue
		}
		if of := r.Table - replyTables; of != index {
			if _, err := h.LinkByIndex(of); !isNoLink(err) {
				continue // it exists, or it is unknown whether it does
			}
		}
		if err := h.RuleDel(&r); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete a routing rule: %w", err)
		}
	}
	return nil
}

// noPolicyRouting passes over what a kernel without policy routing answers.
func noPolicyRouting(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil
	}
	return err
}
