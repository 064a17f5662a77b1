package vethpair

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ifaTargetNetnsID is IFA_TARGET_NETNSID of linux/if_addr.h (Linux 5.0). It selects
// the namespace whose addresses are asked for, by the number that the asking
// namespace has for it, so that no file of the other namespace is needed.
const ifaTargetNetnsID = 10

// Configured reports whether the container's side of a pair has an address other than
// a link-local one, in whatever namespace it is: then somebody has configured it.
// It is false when there is no such pair.
func Configured(hostIf string) (bool, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return false, fmt.Errorf("look into %s: %w", hostIf, err)
	}
	defer h.Close()
	l, err := h.LinkByName(hostIf)
	if isNoLink(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look into %s: %w", hostIf, err)
	}
	sock, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return false, fmt.Errorf("look into %s: %w", hostIf, err)
	}
	defer sock.Close()
	// Else the kernel ignores which namespace is asked for.
	if err := unix.SetsockoptInt(sock.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		return false, fmt.Errorf("look into %s: %w", hostIf, err)
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: sock}}
	msg := nl.NewIfAddrmsg(unix.AF_UNSPEC)
	msg.Index = uint32(l.Attrs().ParentIndex)
	req.AddData(msg)
	if id := l.Attrs().NetNsID; id >= 0 {
		req.AddData(nl.NewRtAttr(ifaTargetNetnsID, nl.Uint32Attr(uint32(id))))
	}
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
	if err != nil {
		return false, fmt.Errorf("list addresses behind %s: %w", hostIf, err)
	}
	return slices.ContainsFunc(answers, func(m []byte) bool {
		a := nl.DeserializeIfAddrmsg(m)
		return int(a.Index) == l.Attrs().ParentIndex && a.Scope == unix.RT_SCOPE_UNIVERSE
	}), nil
}
