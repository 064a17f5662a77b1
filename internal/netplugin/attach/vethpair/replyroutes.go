package vethpair

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// RouteReplies routes packets from the addresses of one of a container's interfaces by that
// interface's gateways, at most one per family. It is for containers whose interfaces
// Docker configures, which chooses the default route. The interface's gateways become
// default routes too, behind all others: they count when the preferred interface is gone.
// hostIf is the host side of the pair. It is idempotent, and deletes what deleted
// interfaces have left. Errors: model.ErrNotFound when there is no pair, when its other
// side is still on the host, or when its namespace has no user.
func RouteReplies(hostIf string, addresses []netip.Prefix, gateways []netip.Addr) error {
	err := inPeerNamespace(hostIf, func(h *netlink.Handle, index int) error {
		for _, gw := range gateways {
			if err := routeReplies(h, index, addresses, gw); err != nil {
				return err
			}
			last := defaultRouteBy(index, addresses, gw)
			last.Priority = replyRulePriority + index
			if err := h.RouteReplace(last); err != nil {
				return fmt.Errorf("add default route by %s behind the others: %w", gw, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("set up source routing in the container behind %s: %w", hostIf, err)
	}
	return nil
}

// RemoveReplyRoutes deletes the rules that RouteReplies made, before the interface leaves its
// namespace; its routes go with it. A pair or a namespace that is gone has none.
func RemoveReplyRoutes(hostIf string) error {
	err := inPeerNamespace(hostIf, func(h *netlink.Handle, index int) error {
		return errors.Join(noPolicyRouting(sweepRules(h, netlink.FAMILY_V4, index)), noPolicyRouting(sweepRules(h, netlink.FAMILY_V6, index)))
	})
	if err != nil && !errors.Is(err, model.ErrNotFound) {
		return fmt.Errorf("delete the routing rules behind %s: %w", hostIf, err)
	}
	return nil
}

// inPeerNamespace works in the namespace of a pair's other side, with that side's number there.
func inPeerNamespace(hostIf string, work func(h *netlink.Handle, index int) error) error {
	here, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer here.Close()
	l, err := here.LinkByName(hostIf)
	if isNoLink(err) {
		return model.Errorf(model.ErrNotFound, "there is no interface %s", hostIf)
	}
	if err != nil {
		return err
	}
	id, index := l.Attrs().NetNsID, l.Attrs().ParentIndex
	if id < 0 {
		return model.Errorf(model.ErrNotFound, "its other side is still on the host")
	}
	for _, path := range namespaces(nil) {
		n, err := ns.GetNS(path)
		if err != nil { // it has ended meanwhile
			continue
		}
		of, err := here.GetNetNsIdByFd(int(n.Fd()))
		if err != nil || of != id {
			_ = n.Close() // open for reading
			continue
		}
		err = n.Do(func(ns.NetNS) error {
			h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer h.Close()
			return work(h, index)
		})
		_ = n.Close() // open for reading
		return err
	}
	return model.Errorf(model.ErrNotFound, "nobody holds its network namespace")
}
