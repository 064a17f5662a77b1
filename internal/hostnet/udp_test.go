package hostnet

import (
	"net"
	"net/netip"
	"testing"
	"time"
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

// eachFamily runs a test of the way out on a site of its own for each family, with
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
			s.want.Natives, s.want.Source = []netip.Prefix{subnet}, near
			s.good()
			test(t, s, one, one.Next(), a.far)
		})
	}
}
