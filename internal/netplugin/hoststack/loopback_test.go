package hoststack

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// TestNeighboursReachNothingPublishedAtLoopback: a neighbour on the link that sends to the
// host's MAC and a loopback address reaches no port that is published there, by us or by
// a rule of somebody else.
func TestNeighboursReachNothingPublishedAtLoopback(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		s := newSite6(t)
		at, loopback, container, from := near, netip.MustParseAddr("127.0.0.1"), web, far
		if v6 {
			at, loopback, container, from = near6, netip.IPv6Loopback(), web6, far6
		}
		s.want.Endpoints = append(s.want.Endpoints, Endpoint{Addr: container, Ports: []attach.PortBinding{{Proto: model.ProtoTCP, HostIP: loopback, HostPort: 9000, ContainerPort: 80}}})
		s.good()
		tool, to := "iptables-nft", container.String()+":80"
		if v6 {
			tool, to = "ip6tables-nft", "["+container.String()+"]:80"
		}
		run(t, "ip", "netns", "exec", s.host, tool, "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "--dport", "9001", "-j", "DNAT", "--to", to)
		arrived := func(port string) func() string {
			return s.counted(s.conts, v6, "-p", "tcp", "--dport", "80", "--sport", port)
		}
		stranger, known := arrived("4000:4001"), arrived("4002")
		for i, x := range []struct {
			to   netip.Addr
			port uint16
		}{{loopback, 9000}, {loopback, 9001}, {at, 8080}} {
			s.sendFrame(tcpPacket(netip.AddrPortFrom(from, uint16(4000+i)), netip.AddrPortFrom(x.to, x.port), 1, flagSYN))
		}
		s.serve(s.conts, "tcp", to)
		if s.ask(s.beyond, "tcp", "", netip.AddrPortFrom(at, 8080).String()) == "" || known() != "1" { // it comes after them
			t.Errorf("%v: %s packets to a port published at all addresses arrive, want 1", container, known())
		}
		if n := stranger(); n != "0" {
			t.Errorf("%v: %s packets to %v arrive from a neighbour", container, n, loopback)
		}
	}
}

// sendFrame sends an IP packet from the one beyond to the host's MAC.
func (s *site) sendFrame(packet []byte) {
	s.t.Helper()
	mac, err := net.ParseMAC(strings.TrimSpace(run(s.t, "ip", "netns", "exec", s.host, "cat", "/sys/class/net/up0/address")))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := in(s.t, s.beyond, func() error {
		link, err := net.InterfaceByName("o0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		proto := uint16(unix.ETH_P_IP)
		if packet[0]>>4 == 6 {
			proto = unix.ETH_P_IPV6
		}
		to := &unix.SockaddrLinklayer{Protocol: proto<<8 | proto>>8, Ifindex: link.Index, Halen: 6}
		copy(to.Addr[:], mac)
		return errors.Join(unix.Sendto(fd, packet, 0, to), unix.Close(fd))
	}); err != nil {
		s.t.Fatal(err)
	}
}
