package hoststack

import (
	"log/slog"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// published is a published port of a container, which has an address.
type published struct {
	addr netip.Addr
	attach.PortBinding
}

func publishedBy(want Config) map[published]bool {
	all := map[published]bool{}
	for _, e := range want.Endpoints {
		for _, b := range e.Ports {
			all[published{e.Addr, b}] = true
		}
	}
	return all
}

// forgetSuperseded makes the host forget connections by UDP to published ports that do not
// lead to the container: they began before the port was published, and who goes on sending
// would never be led there. Ports that last had already, nil when it is not known, are
// passed over.
func forgetSuperseded(log *slog.Logger, last *Config, want Config) {
	leads := map[service][]published{} // by protocol and port
	had := map[published]bool{}
	if last != nil {
		had = publishedBy(*last)
	}
	for p := range publishedBy(want) {
		if p.Proto == model.ProtoUDP && !had[p] {
			at := service{proto: p.Proto, port: p.HostPort}
			leads[at] = append(leads[at], p)
		}
	}
	if len(leads) == 0 {
		return
	}
	own := map[netip.Addr]bool{}
	for _, a := range ownAddrs() {
		own[a] = true
	}
	var superseded []conntrackRecord
	look := func(t trackedConnection) bool {
		for _, p := range leads[service{proto: t.to.proto, port: t.to.port}] {
			if p.addr.Is4() != t.to.addr.Is4() || t.from == netip.AddrPortFrom(p.addr, p.ContainerPort) {
				continue
			}
			all := !p.HostIP.IsValid() || p.HostIP.IsUnspecified()
			if p.HostIP == t.to.addr || all && (own[t.to.addr] || t.to.addr.IsLoopback()) {
				superseded = append(superseded, t.record.clone())
				break
			}
		}
		return true
	}
	var places []FrontendAddr
	for at := range leads {
		places = append(places, FrontendAddr{netip.IPv4Unspecified(), at.proto, at.port}, FrontendAddr{netip.IPv6Unspecified(), at.proto, at.port})
	}
	err := eachTrackedAt(places, look)
	if err == nil {
		err = forget(superseded)
	}
	if err != nil {
		log.Warn("clients that were sending before a port was published do not reach its container", "error", err)
	}
}

// forgetGone deletes the host's connection tracking entries of published ports that are
// gone, so that the connections end and no later port inherits them. last is the previous
// desired state, nil when it is not known.
func forgetGone(log *slog.Logger, last *Config, want Config) {
	if last == nil {
		return
	}
	addrs, ports := map[netip.Addr]bool{}, publishedBy(want)
	for _, e := range want.Endpoints {
		addrs[e.Addr] = true
	}
	gone := map[netlink.InetFamily][]netlink.CustomConntrackFilter{}
	add := func(of netip.Addr, f *netlink.ConntrackFilter, errs ...error) {
		for _, err := range errs {
			if err != nil {
				log.Debug("a filter for connections cannot be created", "error", err)
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
			log.Debug("connections of deleted endpoints and services cannot be forgotten", "error", err)
		} else if n > 0 {
			log.Debug("connections of deleted endpoints and services are forgotten", "connections", n)
		}
	}
}
