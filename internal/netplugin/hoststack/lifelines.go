package hoststack

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// resolvConfs name this host's name servers; systemd-resolved keeps the real ones in the
// second.
var resolvConfs = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// Lifelines are the addresses by which this host reaches others: its name servers, and the
// gateways of its default routes and of its routes to some addresses, such as netmasters'.
// What cannot be read is left out.
func Lifelines(to []netip.Addr) model.Lifelines {
	out := model.Lifelines{}
	add := func(a netip.Addr, kind model.LifelineKind, name string) {
		if a = a.Unmap().WithZone(""); a.IsValid() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() {
			out[a] = model.Lifeline{Kind: kind, Name: name}
		}
	}
	for _, file := range resolvConfs {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if words := strings.Fields(lines.Text()); len(words) >= 2 && words[0] == "nameserver" {
				if a, err := netip.ParseAddr(words[1]); err == nil {
					add(a, model.NameServerLifeline, "a name server")
				}
			}
		}
		_ = f.Close()
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return out
	}
	defer h.Close()
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := h.RouteList(nil, family)
		if err != nil {
			continue
		}
		for _, r := range routes {
			if dst, ok := prefixOf(r); !ok || dst.Bits() == 0 {
				for _, a := range gatewaysOf(r) {
					add(a, model.GatewayLifeline, "the gateway")
				}
			}
		}
	}
	for _, a := range to {
		routes, err := h.RouteGetWithOptions(a.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
		if err != nil {
			continue // it has none
		}
		for _, r := range routes {
			for _, g := range gatewaysOf(r) {
				add(g, model.GatewayLifeline, "the gateway to "+a.String())
			}
		}
	}
	return out
}

// gatewaysOf returns the gateways of a route, of which it may have several.
func gatewaysOf(r netlink.Route) (out []netip.Addr) {
	for _, hop := range append([]*netlink.NexthopInfo{{Gw: r.Gw, Via: r.Via}}, r.MultiPath...) {
		if a, ok := netip.AddrFromSlice(hop.Gw); ok {
			out = append(out, a)
		}
		if via, ok := hop.Via.(*netlink.Via); ok { // of the other family
			if a, ok := netip.AddrFromSlice(via.Addr); ok {
				out = append(out, a)
			}
		}
	}
	return out
}

// VLANs returns the VLANs of which this host itself has interfaces, in order: Contiv makes
// no such interface. What cannot be read is left out.
func VLANs() []uint16 {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil
	}
	defer h.Close()
	links, _ := h.LinkList() // of a list that is interrupted, what there is
	return vlansOf(links)
}

func vlansOf(links []netlink.Link) (out []uint16) {
	for _, l := range links {
		if v, ok := l.(*netlink.Vlan); ok && v.VlanId > 0 {
			out = append(out, uint16(v.VlanId))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Path says by which interface, gateway and own address this host reaches each of others.
func Path(to []netip.Addr) map[netip.Addr]string {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil
	}
	defer h.Close()
	out := map[netip.Addr]string{}
	for _, a := range to {
		if by, r := deviceTo(h, a); by == "" {
			out[a] = "none"
		} else {
			out[a] = fmt.Sprintf("dev %s via %s src %s", by, r.Gw, r.Src)
		}
	}
	return out
}

// DeviceTo names the interface by which this host sends to an address; empty = none.
func DeviceTo(a netip.Addr) string {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return ""
	}
	defer h.Close()
	by, _ := deviceTo(h, a)
	return by
}

// deviceTo names the interface, which has the same name after a restart of the machine, and
// returns the route.
func deviceTo(h *netlink.Handle, a netip.Addr) (string, netlink.Route) {
	routes, err := h.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 {
		return "", netlink.Route{}
	}
	by := strconv.Itoa(routes[0].LinkIndex)
	if link, err := h.LinkByIndex(routes[0].LinkIndex); err == nil {
		by = link.Attrs().Name
	}
	return by, routes[0]
}
