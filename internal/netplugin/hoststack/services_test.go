package hoststack

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestVirtualAddressesGetRoutes: virtual addresses get routes to the data plane and source addresses that
// other hosts can tell apart. The routes go with their services. Addresses that the host
// reaches by another route get none.
func TestVirtualAddressesGetRoutes(t *testing.T) {
	s := newSite6(t)
	iptables := func(args ...string) {
		run(t, append([]string{"ip", "netns", "exec", s.host, "iptables-nft"}, args...)...)
	}
	iptables("-P", "FORWARD", "DROP")
	vip, vip6 := netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:96::10")
	for _, a := range []string{vip.String() + "/32", vip6.String() + "/128"} {
		run(t, "ip", "-n", s.conts, "addr", "add", a, "dev", "c0")
	}
	run(t, "ip", "-n", s.beyond, "route", "add", vip.String(), "via", near.String())
	run(t, "ip", "-n", s.beyond, "route", "add", vip6.String(), "via", near6.String())
	run(t, "ip", "-n", s.host, "-6", "route", "add", "default", "via", far6.String())
	s.want.Services = []Service{{Name: "default:shop", Addr: vip}, {Name: "default:shop", Addr: vip6}}
	s.want.Source, s.want.ServiceMTU = near, 1400
	s.good()
	s.serve(s.conts, "tcp", vip.String()+":80")
	s.serve(s.conts, "udp", vip.String()+":80")
	s.serve(s.conts, "tcp", "["+vip6.String()+"]:80")
	// A port of the host that is led there, as others may lead it.
	iptables("-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-d", "127.0.0.1", "--dport", "30080", "-j", "DNAT", "--to", vip.String()+":80")
	iptables("-t", "nat", "-A", "PREROUTING", "-p", "tcp", "-d", near.String(), "--dport", "30080", "-j", "DNAT", "--to", vip.String()+":80")
	private, private6 := s.want.Private.Addr.String(), s.want.Private.Addr6.String()
	s.asks([]question{
		{"the host", s.host, "tcp", "", vip.String() + ":80", near.String()},
		{"the host, UDP", s.host, "udp", "", vip.String() + ":80", near.String()},
		{"the host by its private address", s.host, "tcp", private, vip.String() + ":80", near.String()},
		{"the host, IPv6", s.host, "tcp", "", "[" + vip6.String() + "]:80", near6.String()},
		{"the host by its private address, IPv6", s.host, "tcp", private6, "[" + vip6.String() + "]:80", near6.String()},
		{"outside", s.beyond, "tcp", "", vip.String() + ":80", far.String()},
		{"outside, UDP", s.beyond, "udp", "", vip.String() + ":80", far.String()},
		{"outside, IPv6", s.beyond, "tcp", "", "[" + vip6.String() + "]:80", far6.String()},
		{"the host's loopback, by a port", s.host, "tcp", "", "127.0.0.1:30080", near.String()},
		{"outside, by a port", s.beyond, "tcp", "", near.String() + ":30080", far.String()},
		{"a container's private address is still closed", s.beyond, "tcp", "", web.String() + ":80", ""},
	}...)
	routes := func() string {
		return run(t, "ip", "-n", s.host, "route") + run(t, "ip", "-n", s.host, "-6", "route")
	}
	for _, x := range []struct{ containers, tunnel, want int }{{1450, 0, 1450}, {1500, 1400, 1400}, {1300, 1400, 1300}, {0, 1400, 1400}} {
		s.want.MTU, s.want.ServiceMTU = x.containers, x.tunnel
		s.good()
		seen := 0
		for line := range strings.Lines(routes()) {
			if strings.HasPrefix(line, vip.String()) || strings.HasPrefix(line, vip6.String()) {
				if seen++; !strings.Contains(line, fmt.Sprintf("mtu %d", x.want)) {
					t.Errorf("containers' MTU %d, tunnel's %d: %s", x.containers, x.tunnel, line)
				}
			}
		}
		if seen != 2 {
			t.Errorf("%d routes to services", seen)
		}
	}
	run(t, "ip", "-n", s.host, "route", "del", vip.String())
	s.good()
	if !strings.Contains(routes(), vip.String()) {
		t.Error("a route that somebody took away did not come back")
	}
	s.restartsAsItWas()

	s.want.Services[0].Addr = far.Next() // of up0's subnet
	problems := s.apply()
	if err := problems["service default:shop"]; err == nil || !strings.Contains(err.Error(), "198.51.100.0/24 on up0") || len(problems) != 1 {
		t.Errorf("a virtual address of the host's own network: %v", problems)
	}
	if all := routes(); strings.Contains(all, vip.String()) || strings.Contains(all, far.Next().String()) || !strings.Contains(all, vip6.String()) {
		t.Errorf("routes:\n%s", all)
	}
	// A machine of the cluster's, which the host reaches by its default route.
	s.want.Services[0].Addr, s.want.Machines = vip, []netip.Addr{vip, near, vip6}
	problems = s.apply()
	if err := problems["service default:shop"]; err == nil || !strings.Contains(err.Error(), "of the cluster") || len(problems) != 1 {
		t.Errorf("a virtual address of a netmaster: %v", problems)
	}
	if all := routes(); strings.Contains(all, vip.String()) || strings.Contains(all, vip6.String()) {
		t.Errorf("a netmaster is led to as if it were a service:\n%s", all)
	}
	s.want.Services, s.want.Machines = nil, nil
	s.good()
	if all := routes(); strings.Contains(all, vip6.String()) || !strings.Contains(all, model.PvtSubnet6.String()) {
		t.Errorf("routes without services:\n%s", all)
	}
	s.asks(question{"a service that is gone", s.beyond, "tcp", "", vip.String() + ":80", ""})
}

// TestPrivateSourcesFromBeyondAreDropped: who sends from a private address and is none of the host's
// containers reaches neither services nor published ports; once translated it would
// be taken for the host.
func TestPrivateSourcesFromBeyondAreDropped(t *testing.T) {
	eachFamily(t, func(t *testing.T, s *site, web, other, far netip.Addr) {
		t.Helper()
		vip, from, bits := netip.MustParseAddr("10.96.0.10"), other.Next(), "/32"
		via := near
		if other.Is6() {
			vip, bits, via = netip.MustParseAddr("fd00:96::10"), "/128", near6
		}
		run(t, "ip", "-n", s.conts, "addr", "add", vip.String()+bits, "dev", "c0")
		run(t, "ip", "-n", s.beyond, "route", "add", vip.String(), "via", via.String())
		run(t, "ip", "-n", s.beyond, "addr", "add", from.String()+bits, "dev", "o0", "nodad")
		s.want.Services = []Service{{Name: "default:shop", Addr: vip}}
		s.want.Source, s.want.ServiceMTU = near, 1400
		s.good()
		first := func(to, at netip.AddrPort, want netip.Addr) {
			t.Helper()
			socket := s.listenUDP(s.conts, at)
			defer socket.Close()
			for _, src := range []netip.Addr{from, far} { // in this order, so that the test waits for no missing packet
				if err := in(t, s.beyond, func() error {
					c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(src, 0)), net.UDPAddrFromAddrPort(to))
					if err == nil {
						_, err = c.Write([]byte(src.String()))
						err = errors.Join(err, c.Close())
					}
					return err
				}); err != nil {
					t.Fatal(err)
				}
			}
			said := make([]byte, 100)
			_ = socket.SetReadDeadline(time.Now().Add(time.Minute))
			n, seen, err := socket.ReadFromUDPAddrPort(said)
			if err != nil || string(said[:n]) != want.String() {
				t.Errorf("%s was first reached from %q, seen as %v, %v; want %v", to, said[:n], seen, err, want)
			}
		}
		service, published := netip.AddrPortFrom(vip, 81), netip.AddrPortFrom(via, 8080)
		first(service, service, far)
		first(published, netip.AddrPortFrom(web, 80), far)
		// A network of the host's own, Docker's for one, may lie in the private subnet.
		run(t, "ip", "-n", s.host, "route", "add", from.String()+bits, "dev", "up0")
		first(published, netip.AddrPortFrom(web, 80), from)
	})
}
