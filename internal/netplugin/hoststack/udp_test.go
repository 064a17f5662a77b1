package hoststack

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// listenUDP opens a socket in a namespace until the test ends.
func (s *site) listenUDP(ns string, at netip.AddrPort) (socket *net.UDPConn) {
	s.t.Helper()
	if err := in(s.t, ns, func() (err error) {
		socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = socket.Close() })
	return socket
}

// dialUDP opens a socket of a container towards a port of the one beyond, until
// the test ends.
func (s *site) dialUDP(from netip.Addr, port uint16) (conn *net.UDPConn) {
	s.t.Helper()
	to := far
	if from.Is6() {
		to = far6
	}
	if err := in(s.t, s.conts, func() (err error) {
		conn, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, port)))
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// answers asks over a socket, and tells whether it is answered in time.
func (s *site) answers(c net.Conn, wait time.Duration) bool {
	s.t.Helper()
	if _, err := c.Write([]byte("?")); err != nil {
		s.t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	_, err := c.Read(make([]byte, 100))
	return err == nil
}

// eachFamily runs a test of egress on a site of its own for each family, with
// two containers and the one beyond.
func eachFamily(t *testing.T, test func(t *testing.T, s *site, web, other, far netip.Addr)) {
	t.Helper()
	for name, a := range map[string][3]netip.Addr{"IPv4": {web, other, far}, "IPv6": {web6, other6, far6}} {
		t.Run(name, func(t *testing.T) {
			s := newSite6(t)
			s.good()
			test(t, s, a[0], a[1], a[2])
		})
	}
}

// eachNative is eachFamily with containers of a native network, which the host knows by
// their own addresses.
func eachNative(t *testing.T, test func(t *testing.T, s *site, web, other, far netip.Addr)) {
	t.Helper()
	for name, a := range map[string]struct {
		subnet string
		far    netip.Addr
	}{"native, IPv4": {"10.244.0.0/16", far}, "native, IPv6": {"fd00:244::/64", far6}} {
		t.Run(name, func(t *testing.T) {
			s := newSite6(t)
			subnet := netip.MustParsePrefix(a.subnet)
			one := subnet.Addr().Next()
			for _, x := range []netip.Addr{one, one.Next()} {
				run(t, "ip", "-n", s.conts, "addr", "add", netip.PrefixFrom(x, x.BitLen()).String(), "dev", "c0", "nodad")
			}
			s.want.Routed, s.want.Source = []netip.Prefix{subnet}, near
			s.good()
			test(t, s, one, one.Next(), a.far)
		})
	}
}

// TestPublishedPortLeadsWhoWasSendingBefore: who sends to a port by UDP is led to its
// container as soon as it is published, also when he was sending before, and to the one
// that comes in its place; when netplugin was away meanwhile, too.
func TestPublishedPortLeadsWhoWasSendingBefore(t *testing.T) {
	eachFamily(t, func(t *testing.T, s *site, web, other, far netip.Addr) {
		t.Helper()
		at := near
		if far.Is6() {
			at = near6
		}
		unpublished := s.want.Endpoints
		publish := func(a netip.Addr) {
			t.Helper()
			s.want.Endpoints = append(slices.Clone(unpublished), Endpoint{Addr: a, Ports: []attach.PortBinding{{Proto: model.ProtoUDP, HostPort: 9000, ContainerPort: 90}}})
			s.good()
		}
		servers := map[netip.Addr]*net.UDPConn{}
		for _, a := range []netip.Addr{web, other} {
			servers[a] = s.listenUDP(s.conts, netip.AddrPortFrom(a, 90))
		}
		elsewhere := s.listenUDP(s.beyond, netip.AddrPortFrom(far, 9000))
		senders := map[string]net.Conn{}
		for _, x := range []struct {
			name, ns string
			to       netip.Addr
		}{{"beyond", s.beyond, at}, {"the host", s.host, at}, {"the host's loopback", s.host, netip.MustParseAddr("127.0.0.1")}} {
			if at.Is6() && x.to.Is4() { // ::1 is passed on by netplugin
				continue
			}
			if err := in(t, x.ns, func() (err error) {
				senders[x.name], err = new(net.Dialer).DialContext(t.Context(), "udp", netip.AddrPortFrom(x.to, 9000).String())
				return err
			}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = senders[x.name].Close() })
		}
		send := func(from, text string) {
			t.Helper()
			_, err := senders[from].Write([]byte(text))
			if errors.Is(err, unix.ECONNREFUSED) { // of the one before
				_, err = senders[from].Write([]byte(text))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		arrives := func(when string, to netip.Addr) {
			t.Helper()
			for from := range senders {
				send(from, when+from)
				b := make([]byte, 100)
				_ = servers[to].SetReadDeadline(time.Now().Add(10 * time.Second))
				if n, err := servers[to].Read(b); err != nil || string(b[:n]) != when+from {
					t.Errorf("%s from %s: %q, %v", when, from, b[:n], err)
				}
			}
		}
		early := func() {
			t.Helper()
			for from := range senders {
				send(from, "early")
			}
		}
		early()
		// A container's own connection to the same port elsewhere is left alone.
		out := s.dialUDP(web, 9000)
		if _, err := out.Write([]byte("out")); err != nil {
			t.Fatal(err)
		}
		_, masked, err := elsewhere.ReadFromUDPAddrPort(make([]byte, 10))
		if err != nil {
			t.Fatal(err)
		}
		publish(web)
		arrives("published", web)
		s.want.Endpoints = unpublished
		s.good()
		early()
		publish(other)
		arrives("replaced", other)
		s.want.Endpoints = unpublished
		s.good()
		early()
		s.restart(true)
		publish(web)
		arrives("after a restart", web)
		if _, err := elsewhere.WriteToUDPAddrPort([]byte("back"), masked); err != nil {
			t.Fatal(err)
		}
		_ = out.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := out.Read(make([]byte, 10)); err != nil {
			t.Errorf("a connection of a container to that port elsewhere was forgotten: %v", err)
		}
	})
}
