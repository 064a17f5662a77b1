package hoststack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/checksum"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

const flagFIN, flagSYN, flagACK = 1, 2, 16

// tcpPacket is an IP packet with a TCP segment.
func tcpPacket(from, to netip.AddrPort, seq uint32, flags byte) []byte {
	tcp := make([]byte, 20)
	binary.BigEndian.PutUint16(tcp, from.Port())
	binary.BigEndian.PutUint16(tcp[2:], to.Port())
	binary.BigEndian.PutUint32(tcp[4:], seq)
	binary.BigEndian.PutUint32(tcp[8:], 1)
	tcp[12], tcp[13] = 5<<4, flags
	binary.BigEndian.PutUint16(tcp[14:], 1000)
	src, dst := from.Addr().AsSlice(), to.Addr().AsSlice()
	binary.BigEndian.PutUint16(tcp[16:], ^checksum.Upper(unix.IPPROTO_TCP, slices.Concat(src, dst), tcp))
	if from.Addr().Is6() {
		return slices.Concat([]byte{6 << 4, 0, 0, 0, 0, 20, unix.IPPROTO_TCP, 64}, src, dst, tcp)
	}
	head := slices.Concat([]byte{4<<4 | 5, 0, 0, 40, 0, 1, 0, 0, 64, unix.IPPROTO_TCP, 0, 0}, src, dst)
	binary.BigEndian.PutUint16(head[10:], ^checksum.Sum(0, head))
	return append(head, tcp...)
}

// forge sends a packet from a namespace, which need not have its source address.
func (s *site) forge(ns string, packet []byte, to netip.Addr) {
	s.t.Helper()
	if err := in(s.t, ns, func() error {
		family, at := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte(to.AsSlice())})
		if to.Is6() {
			family, at = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.As16()}
		}
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		return errors.Join(unix.Sendto(fd, packet, 0, at), unix.Close(fd))
	}); err != nil {
		s.t.Fatal(err)
	}
}

// counted counts what a namespace's firewall has seen by rules that match.
func (s *site) counted(ns string, v6 bool, match ...string) func() string {
	s.t.Helper()
	tool := "iptables-nft"
	if v6 {
		tool = "ip6tables-nft"
	}
	name := fmt.Sprint("counter-", count.Add(1))
	run(s.t, slices.Concat([]string{"ip", "netns", "exec", ns, tool, "-t", "raw", "-A", "PREROUTING", "-m", "comment", "--comment", name}, match)...)
	return func() string {
		s.t.Helper()
		for line := range strings.Lines(run(s.t, "ip", "netns", "exec", ns, tool, "-t", "raw", "-L", "PREROUTING", "-v", "-n", "-x")) {
			if strings.Contains(line, "/* "+name+" */") {
				return strings.Fields(line)[0]
			}
		}
		return "no rule and no"
	}
}

// talk connects to a place, by which a server that listens elsewhere is reached, and
// tells whether the connection lives: client and seen are the client's address as it and
// the server know it.
func (s *site) talk(ns, serverNS string, server, at netip.AddrPort) (client, seen netip.AddrPort, alive func() bool) {
	s.t.Helper()
	var l net.Listener
	var c net.Conn
	if err := errors.Join(in(s.t, serverNS, func() (err error) {
		l, err = new(net.ListenConfig).Listen(s.t.Context(), "tcp", server.String())
		return err
	}), in(s.t, ns, func() (err error) {
		c, err = new(net.Dialer).DialContext(s.t.Context(), "tcp", at.String())
		return err
	})); err != nil {
		s.t.Fatal(err)
	}
	p, err := l.Accept()
	if err = errors.Join(err, l.Close()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _, _ = c.Close(), p.Close() })
	return c.LocalAddr().(*net.TCPAddr).AddrPort(), p.RemoteAddr().(*net.TCPAddr).AddrPort(), func() bool {
		_, err := c.Write([]byte("?"))
		n, err2 := p.Read(make([]byte, 1))
		return err == nil && err2 == nil && n == 1
	}
}

// outOfWindow sends segments of a connection from beyond, of which one at least is outside of
// its window.
func (s *site) outOfWindow(from, to netip.AddrPort) {
	s.t.Helper()
	for _, seq := range []uint32{0, 1 << 31} {
		s.forge(s.beyond, tcpPacket(from, to, seq, flagACK), to.Addr())
	}
}

// TestSegmentsOutsideTheWindowResetNothing: a late duplicate of a translated connection's
// segment, which conntrack calls invalid, gets no answer by the host, whose reset would end
// the connection: of one that a container has begun, and of one to a published port. Nor
// does a container's segment without a connection leave by its private address.
func TestSegmentsOutsideTheWindowResetNothing(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		s := newSite6(t)
		s.good()
		web, far, near := web, far, near
		if v6 {
			web, far, near = web6, far6, near6
		}
		resets := s.counted(s.beyond, v6, "-p", "tcp", "--tcp-flags", "RST", "RST")
		server := netip.AddrPortFrom(far, 81)
		_, seen, alive := s.talk(s.conts, s.beyond, server, server)
		s.outOfWindow(server, seen)
		if !alive() {
			t.Errorf("%v: a connection of a container ended by a late segment", far)
		}
		client, _, alive := s.talk(s.beyond, s.conts, netip.AddrPortFrom(web, 80), netip.AddrPortFrom(near, 8080))
		s.outOfWindow(client, netip.AddrPortFrom(near, 8080))
		if !alive() {
			t.Errorf("%v: a connection to a published port ended by a late segment", far)
		}
		// A packet that the host answers is the last: it comes after all resets.
		s.serve(s.host, "tcp", netip.AddrPortFrom(near, 22).String())
		if s.ask(s.beyond, "tcp", "", netip.AddrPortFrom(near, 22).String()) == "" {
			t.Errorf("%v: the host does not answer", far)
		}
		if n := resets(); n != "0" {
			t.Errorf("%v: late segments are answered by %s resets", far, n)
		}

		private := s.counted(s.beyond, v6, "-s", web.String())
		s.forge(s.conts, tcpPacket(netip.AddrPortFrom(web, 4000), server, 7, flagFIN|flagACK), far)
		s.ask(s.conts, "tcp", web.String(), netip.AddrPortFrom(far, 82).String()) // refused, after it
		if private() != "0" {
			t.Errorf("%v: a segment without a connection left by the private address %v", far, web)
		}
	}
}

// TestSegmentsOutsideTheWindowResetNoServices is the same for connections to services, at
// their addresses and by ports of the host.
func TestSegmentsOutsideTheWindowResetNoServices(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		beyond := netip.AddrPortFrom(s.far, 99)
		for port, to := range map[uint16]Target{80: s.pod(0), 81: {beyond, External}} {
			s.frontends.Set(FrontendAddr{s.vip, model.ProtoTCP, port}, frontendOf(to))
			s.frontends.Set(FrontendAddr{desired.AnyNode(s.vip), model.ProtoTCP, 30000 + port}, frontendOf(to))
		}
		s.lead()
		resets := s.counted(s.beyond, s.far.Is6(), "-p", "tcp", "--tcp-flags", "RST", "RST")
		for _, port := range []uint16{80, 81} {
			serverNS, server := s.conts, s.pod(0).AddrPort
			if port == 81 {
				serverNS, server = s.beyond, beyond
			}
			for _, at := range []netip.AddrPort{netip.AddrPortFrom(s.vip, port), netip.AddrPortFrom(s.near, 30000+port)} {
				client, seen, alive := s.talk(s.beyond, serverNS, server, at)
				s.outOfWindow(client, at)
				if port == 81 {
					s.outOfWindow(server, seen) // what a backend sends comes by the host's address
				}
				if !alive() {
					t.Errorf("a connection to %v ended by a late segment", at)
				}
			}
		}
		s.serve(s.host, "tcp", netip.AddrPortFrom(s.near, 22).String())
		if s.ask(s.beyond, "tcp", "", netip.AddrPortFrom(s.near, 22).String()) == "" {
			t.Error("the host does not answer")
		}
		if n := resets(); n != "0" {
			t.Errorf("late segments are answered by %s resets", n)
		}
	})
}
