package hostnet

import (
	"log/slog"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/attach"
)

// forgetGone makes the host forget connections to published ports that have gone, so
// that the connections end and nobody inherits them. last is the former wish, nil
// when it is not known.
func forgetGone(log *slog.Logger, last *Want, want Want) {
	if last == nil {
		return
	}
	type published struct {
		addr netip.Addr
		attach.PortBinding
	}
	addrs, ports := map[netip.Addr]bool{}, map[published]bool{}
	for _, e := range want.Endpoints {
		addrs[e.Addr] = true
		for _, b := range e.Ports {
			ports[published{e.Addr, b}] = true
		}
	}
	gone := map[netlink.InetFamily][]netlink.CustomConntrackFilter{}
	add := func(of netip.Addr, f *netlink.ConntrackFilter, errs ...error) {
		for _, err := range errs {
			if err != nil {
				log.Debug("a filter of connections cannot be made", "error", err)
				return
			}
		}
		family := netlink.InetFamily(unix.AF_INET)
		if of.Is6() {
			family = unix.AF_INET6
		}
		gone[family] = append(gone[family], f)
	}
	for _, e := range last.Endpoints {
		ip := net.IP(e.Addr.AsSlice())
		if !addrs[e.Addr] {
			f := &netlink.ConntrackFilter{}
			add(e.Addr, f, f.AddIP(netlink.ConntrackReplySrcIP, ip))
			continue
		}
		for _, b := range e.Ports {
			if !ports[published{e.Addr, b}] {
				f := &netlink.ConntrackFilter{}
				add(e.Addr, f, f.AddIP(netlink.ConntrackReplySrcIP, ip), f.AddProtocol(uint8(b.Proto)), f.AddPort(netlink.ConntrackOrigDstPort, b.HostPort))
			}
		}
	}
	for family, filters := range gone {
		if n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, filters...); err != nil {
			log.Debug("connections of what has gone are not forgotten", "error", err)
		} else if n > 0 {
			log.Debug("connections of what has gone are forgotten", "connections", n)
		}
	}
}
