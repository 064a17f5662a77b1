package ebpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestSegmentsAreCutIntoWholeTunnelPackets sends a TCP stream and segmented datagrams out of a host whose
// underlay has no offloads, so that the kernel cuts what the programs have put
// into tunnel packets: every packet on the wire is whole by itself, and next to
// none went through the VXLAN device.
func TestSegmentsAreCutIntoWholeTunnelPackets(t *testing.T) {
	require(t, "ethtool")
	w := newTwoHosts(t, 1550, 1500)
	run(t, "ip", "netns", "exec", w.hosts[0], "ethtool", "-K", "u0", "tx", "off", "tso", "off", "gso", "off", "tx-udp_tnl-segmentation", "off")
	wire := sniff(t, w.hosts[1], "u0", 256<<20)
	before := w.tunnelled(t, 0).TxPackets
	testDatagrams(t, w, containerIP4[1])
	const size = 8 << 20
	w.stream(t, size)
	device := w.tunnelled(t, 0).TxPackets - before
	var big, repeated int
	seen := map[uint16]bool{}
	b := make([]byte, 70_000)
	for {
		n, from, err := unix.Recvfrom(wire, b, 0)
		if err != nil {
			break
		}
		if a, ok := from.(*unix.SockaddrLinklayer); ok && a.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		id, fault := tunnelFault(b[:n])
		if fault != "" {
			t.Fatalf("%s: %x", fault, b[:min(n, 120)])
		}
		if n <= 562 { // which are never cut
			continue
		}
		big++
		if seen[id] {
			repeated++
		}
		seen[id] = true
	}
	if big < size/1500 {
		t.Fatalf("%d big packets seen, of %d bytes in all", big, size)
	}
	if device > uint64(big/10) {
		t.Errorf("%d packets of %d went through the VXLAN device: the test shows nothing", device, big)
	}
	if repeated > big/10 { // the device counts by itself
		t.Errorf("%d of %d packets have an identification that another one had", repeated, big)
	}
}

// TestMergedPacketsTakeTheFastPath has the receiving host's underlay merge what it gets, as network
// cards do, of a stream and of segmented datagrams; where there is a fast path,
// next to none of it goes through the VXLAN device.
func TestMergedPacketsTakeTheFastPath(t *testing.T) {
	require(t, "ethtool", "nstat")
	w := newTwoHosts(t, 1550, 1500)
	run(t, "ip", "netns", "exec", w.hosts[0], "ethtool", "-K", "u0", "tx", "off", "tso", "off", "gso", "off", "tx-udp_tnl-segmentation", "off")
	run(t, "ip", "netns", "exec", w.hosts[1], "ethtool", "-K", "u0", "gro", "on")
	sniffer := sniff(t, w.containers[1], "eth0", 256<<20)
	before := w.tunnelled(t, 1).RxPackets
	testDatagrams(t, w, containerIP4[1])
	const size = 8 << 20
	w.stream(t, size)
	device := w.tunnelled(t, 1).RxPackets - before
	merged, b := 0, make([]byte, 70_000)
	for {
		n, _, err := unix.Recvfrom(sniffer, b, 0)
		if err != nil {
			break
		}
		if n > 5000 {
			merged++
		}
	}
	if merged < size/70_000 {
		t.Errorf("%d frames of several segments came: the test shows nothing", merged)
	}
	if short := w.drivers[1].dp.att.way == attachTCX; short && device > uint64(merged/2) {
		t.Errorf("%d packets went through the VXLAN device, beside %d merged ones", device, merged)
	}
	for _, bad := range []string{"TcpInCsumErrors", "UdpInCsumErrors"} {
		out, err := w.in(t, 1, "nstat", "-asz", bad)
		if f := strings.Fields(out); err != nil || len(f) != 4 || f[2] != "0" {
			t.Errorf("checksums: %v: %s", err, out)
		}
	}
}

// sniff opens a socket that gets what passes an interface of a namespace, and
// holds so many bytes until they are read.
func sniff(t testing.TB, ns, ifname string, bytes int) int {
	t.Helper()
	var fd int
	var err error
	newThread(t, ns).do(func() { fd, err = packetSocket(ifname) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes); err != nil {
		t.Fatal(err)
	}
	return fd
}

// tunnelled are the counters of a host's VXLAN device.
func (w *twoHosts) tunnelled(t testing.TB, i int) (n netlink.LinkStatistics) {
	t.Helper()
	w.threads[i].do(func() {
		l, err := netlink.LinkByIndex(int(w.drivers[i].dp.settings.get().VXLAN))
		if err != nil {
			t.Error(err)
			return
		}
		n = *l.Attrs().Statistics
	})
	return n
}

// stream sends n bytes from the first container to the second, which must get
// what was sent.
func (w *twoHosts) stream(t testing.TB, n int) {
	t.Helper()
	near, far := newThread(t, w.containers[0]), newThread(t, w.containers[1])
	var l net.Listener
	var err error
	far.do(func() {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", netip.AddrPortFrom(containerIP4[1], 0).String())
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var c net.Conn
	near.do(func() {
		c, err = (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp4", l.Addr().String())
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	what := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(what) // never fails
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(what)
		sent <- errors.Join(err, c.Close())
	}()
	if err := s.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(s)
	if err := errors.Join(err, <-sent); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(got, what) {
		t.Fatalf("%d bytes of %d arrived, or others", len(got), n)
	}
}

// tunnelFault says what is wrong with a packet that two hosts exchange, as far
// as it is a tunnel packet with TCP or UDP over IPv4 in it, and returns the
// outer identification.
func tunnelFault(f []byte) (id uint16, fault string) {
	be := binary.BigEndian
	if len(f) < 14+20+8+8+14+20 || be.Uint16(f[12:]) != 0x0800 || f[23] != unix.IPPROTO_UDP || be.Uint16(f[36:]) != DefaultVXLANPort {
		return 0, ""
	}
	outer, inner := f[14:34], f[50:]
	ip := inner[14:]
	id = be.Uint16(outer[4:])
	if be.Uint16(inner[12:]) != 0x0800 || ip[9] != unix.IPPROTO_TCP && ip[9] != unix.IPPROTO_UDP {
		return id, ""
	}
	total := int(be.Uint16(ip[2:]))
	if got, want := int(be.Uint16(outer[2:])), len(f)-14; got != want {
		return id, fmt.Sprintf("outer length %d of %d", got, want)
	}
	if got, want := int(be.Uint16(f[38:])), len(f)-34; got != want || be.Uint16(f[40:]) != 0 {
		return id, fmt.Sprintf("UDP length %d of %d, checksum %x", got, want, f[40:42])
	}
	if total != len(ip) || total > 1500 {
		return id, fmt.Sprintf("inner length %d of %d", total, len(ip))
	}
	if checksum(outer) != 0 || checksum(ip[:20]) != 0 {
		return id, "an IP header's checksum is wrong"
	}
	if ip[9] == unix.IPPROTO_UDP && be.Uint16(ip[26:]) == 0 {
		return id, ""
	}
	pseudo := append(append([]byte{}, ip[12:20]...), 0, ip[9])
	pseudo = be.AppendUint16(pseudo, uint16(total-20))
	pseudo = append(pseudo, ip[20:]...)
	if len(pseudo)%2 > 0 {
		pseudo = append(pseudo, 0)
	}
	if checksum(pseudo) != 0 {
		return id, "the inner transport's checksum is wrong"
	}
	return id, ""
}
