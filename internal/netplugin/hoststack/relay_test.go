package hoststack

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// TestLoopbackReachesPublishedPorts: a process of the host reaches a published port at ::1, over TCP and UDP,
// as many at once as there is room for; the kernel's way to the port at the host's
// other addresses stays, and a port given up leads nowhere.
func TestLoopbackReachesPublishedPorts(t *testing.T) {
	s := newSite6(t)
	s.want.Endpoints = append(s.want.Endpoints, Endpoint{Addr: other6, Ports: []attach.PortBinding{
		{Proto: model.ProtoTCP, HostIP: netip.IPv6Loopback(), HostPort: 8090, ContainerPort: 80},
	}})
	s.good()
	h := Holder{most: 3, dial: func(ctx context.Context, network, to string) (c net.Conn, err error) {
		err = in(t, s.host, func() (err error) { c, err = new(net.Dialer).DialContext(ctx, network, to); return err })
		return c, err
	}}
	t.Cleanup(func() { h.Keep(nil) })
	hold := func(proto model.Protocol, at netip.Addr, port uint16, to netip.Addr, toPort uint16) {
		t.Helper()
		if err := in(t, s.host, func() error { return h.Reserve(HostPort{proto, at, port}, netip.AddrPortFrom(to, toPort)) }); err != nil {
			t.Fatal(err)
		}
	}
	all, loop := netip.IPv6Unspecified(), netip.IPv6Loopback()
	hold(model.ProtoTCP, all, 8080, web6, 80)
	hold(model.ProtoUDP, all, 8080, web6, 80)
	hold(model.ProtoTCP, loop, 8090, other6, 80)
	for _, network := range []string{"tcp", "udp"} {
		s.serve(s.conts, network, "["+web6.String()+"]:80")
	}
	s.serve(s.conts, "tcp", "["+other6.String()+"]:80")
	here := s.want.Private.Addr6.String()
	s.asks([]question{
		{"TCP", s.host, "tcp", "", "[::1]:8080", here},
		{"UDP", s.host, "udp", "", "[::1]:8080", here},
		{"published at ::1 alone", s.host, "tcp", "", "[::1]:8090", here},
		{"by the kernel", s.host, "tcp", "", "[" + near6.String() + "]:8080", near6.String()},
		{"published at ::1 alone, elsewhere", s.host, "tcp", "", "[" + near6.String() + "]:8090", ""},
		{"from the outside", s.beyond, "tcp", "", "[" + near6.String() + "]:8080", far6.String()},
	}...)

	// Both directions to their ends, which come apart.
	sink := s.listenTCP(s.conts, netip.AddrPortFrom(web6, 81))
	got := make(chan []byte, 1)
	go func() {
		c, err := sink.Accept()
		if err != nil {
			return
		}
		b, _ := io.ReadAll(c)
		_, _ = c.Write(b)
		got <- b
		_ = c.Close()
	}()
	hold(model.ProtoTCP, all, 8080, web6, 81) // it is another container's now
	c := s.dialTCP("[::1]:8080")
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = c.Write(want)
		_ = c.CloseWrite()
	}()
	back, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(back, want) || !bytes.Equal(<-got, want) {
		t.Errorf("%d of %d bytes came back, %v", len(back), len(want), err)
	}

	// No backend listens: the connection is refused, and later ones work again.
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	if err := in(t, s.host, func() error {
		c, err := dial("[::1]:8080")
		if err == nil { // the reset may be there by then
			_, err = c.Read(make([]byte, 1))
			_ = c.Close()
		}
		return err
	}); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("without a container: %v, want a reset", err)
	}

	// A third one waits until there is room, beside the sender of UDP.
	hold(model.ProtoTCP, all, 8080, web6, 82)
	many := s.listenTCP(s.conts, netip.AddrPortFrom(web6, 82))
	first, second := s.dialTCP("[::1]:8080"), s.dialTCP("[::1]:8080")
	accepted := func(within time.Duration) net.Conn {
		t.Helper()
		_ = many.SetDeadline(time.Now().Add(within))
		c, err := many.Accept()
		if err != nil {
			return nil
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	one, two := accepted(10*time.Second), accepted(10*time.Second)
	if one == nil || two == nil {
		t.Fatal("there is no room for two beside one")
	}
	s.dialTCP("[::1]:8080")
	if accepted(300*time.Millisecond) != nil {
		t.Error("there is room for three where two are the most")
	}
	for _, x := range []net.Conn{first, second, one, two} {
		_ = x.Close()
	}
	if accepted(10*time.Second) == nil {
		t.Error("where two have gone, the third one has no room")
	}

	h.Keep(nil)
	if err := in(t, s.host, func() error { _, err := dial("[::1]:8080"); return err }); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port given up: %v, want refused", err)
	}
}

// listenTCP listens in a namespace until the test ends.
func (s *site) listenTCP(ns string, at netip.AddrPort) (l *net.TCPListener) {
	s.t.Helper()
	if err := in(s.t, ns, func() (err error) { l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at)); return err }); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = l.Close() })
	return l
}

// dialTCP connects from the host until the test ends.
func (s *site) dialTCP(to string) (c *net.TCPConn) {
	s.t.Helper()
	if err := in(s.t, s.host, func() (err error) { c, err = dial(to); return err }); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// dial connects, for ten seconds.
func dial(to string) (*net.TCPConn, error) {
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(to)))
	if err == nil {
		err = c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	return c, err
}
