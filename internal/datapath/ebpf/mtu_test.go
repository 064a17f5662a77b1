package ebpf

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTooBigPacketsAreAnsweredWithTheSize lets the underlay shrink under two containers: a packet that is too big
// is answered with the size that fits, which its sender's kernel takes, whether it may
// be fragmented or not: no tunnel packet is, since not every host puts them together.
// TCP goes on by itself, and it all ends when the underlay is big again.
func TestTooBigPacketsAreAnsweredWithTheSize(t *testing.T) {
	w := newTwoHosts(t, 1600, 1550)
	families := []struct {
		to   netip.Addr
		size string // of a ping's payload that makes 1,550 bytes
		told string
	}{
		{containerIP4[1], "1522", "mtu = 1350"},
		{containerIP6[1], "1502", "mtu=1350"},
	}
	ping := func(to netip.Addr, how, size string) (string, error) {
		return w.in(t, 0, "ping", "-M", how, "-c", "4", "-i", "0.05", "-W", "2", "-s", size, to.String())
	}
	for _, f := range families {
		if out, err := ping(f.to, "do", f.size); err != nil {
			t.Fatalf("what fits does not get through: %v\n%s", err, out)
		}
	}
	if n := w.drops(t, 0)["too-big"]; n != 0 {
		t.Errorf("%d packets were too big", n)
	}
	forget := func() {
		for _, family := range []string{"-4", "-6"} {
			for _, ns := range w.containers {
				run(t, "ip", family, "-n", ns, "route", "flush", "cache")
			}
		}
	}
	resize := func(mtu uint32) {
		t.Helper()
		for i, ns := range w.hosts {
			run(t, "ip", "-n", ns, "link", "set", "u0", "mtu", strconv.Itoa(int(mtu)))
			timeout := time.After(patience)
			for fits := uint32(0); fits != mtu-50; fits = w.drivers[i].dp.settings.get().MTU { // the first event may be of something else
				select {
				case <-w.drivers[i].Events():
				case <-timeout:
					t.Fatal("the driver does not notice that the underlay's MTU has changed")
				}
				w.apply(t, i)
			}
		}
	}
	resize(1400)
	for _, f := range families {
		out, err := ping(f.to, "do", f.size)
		if err == nil || !strings.Contains(out, f.told) {
			t.Errorf("ping of 1,550 bytes on a path of 1,350: %v, want an error that says %q:\n%s", err, f.told, out)
		}
		if route := run(t, "ip", "-n", w.containers[0], "route", "get", f.to.String()); !strings.Contains(route, "mtu 1350") {
			t.Errorf("the container's kernel has not learnt the path's MTU: %s", route)
		}
		forget()
	}
	for _, size := range []string{"1522", "4000"} { // the second one is fragmented by the container
		before, cut := w.drops(t, 0)["too-big"], w.fragmented(t, 0)
		if out, err := ping(containerIP4[1], "dont", size); err != nil {
			t.Errorf("what may be fragmented does not get through: %v\n%s", err, out)
		}
		if w.drops(t, 0)["too-big"] == before || w.fragmented(t, 0) != cut {
			t.Errorf("%s bytes: %d tunnel packets were fragmented, want none", size, w.fragmented(t, 0)-cut)
		}
		forget()
	}
	for _, f := range families { // segments of a buffer that offload cuts later are too big as well
		before := w.drops(t, 0)["too-big"]
		w.iperf(t, f.to, "-n", "20M")
		if w.drops(t, 0)["too-big"] == before {
			t.Error("TCP never sent too big a segment: the test shows nothing")
		}
		forget()
	}
	resize(1600)
	for _, f := range families {
		if out, err := ping(f.to, "do", f.size); err != nil {
			t.Errorf("what fits again does not get through: %v\n%s", err, out)
		}
	}
}

// fragmented is how many packets a host's stack has fragmented.
func (w *twoHosts) fragmented(t *testing.T, i int) int {
	t.Helper()
	lines := strings.Split(run(t, "ip", "netns", "exec", w.hosts[i], "grep", "^Ip:", "/proc/net/snmp"), "\n")
	at := slices.Index(strings.Fields(lines[0]), "FragOKs")
	n, err := strconv.Atoi(strings.Fields(lines[1])[at])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOffloadedBuffersArriveWhole sends what leaves checksums and segmentation to the device, and
// looks at the receiving container: buffers come whole, datagrams of one
// segmented send come as they were meant, without and with checksums; and no
// interface's features have changed.
func TestOffloadedBuffersArriveWhole(t *testing.T) {
	require(t, "ethtool")
	w := newTwoHosts(t, 1600, 1500)
	features := func() string {
		var all []string
		for i, ns := range w.hosts {
			for _, at := range [][2]string{{ns, containerPort}, {ns, "u0"}, {w.containers[i], "eth0"}} {
				all = append(all, run(t, "ip", "netns", "exec", at[0], "ethtool", "-k", at[1]))
			}
		}
		return strings.Join(all, "")
	}
	fresh := namespace(t, "Ec") // an interface that no driver has ever seen
	run(t, "ip", "-n", fresh, "link", "add", "eth0", "type", "veth", "peer", "name", containerPort)
	untouched := run(t, "ip", "netns", "exec", fresh, "ethtool", "-k", containerPort)
	if got := run(t, "ip", "netns", "exec", w.hosts[0], "ethtool", "-k", containerPort); !sameFeatures(got, untouched) {
		t.Errorf("features of a port:\n%s\nof an interface that is none:\n%s", got, untouched)
	}
	before := features()

	sniffer := sniff(t, w.containers[1], "eth0", 64<<20)
	for _, to := range []netip.Addr{containerIP4[1], containerIP6[1]} {
		w.iperf(t, to, "-n", "20M")
		biggest, b := 0, make([]byte, 70_000)
		for {
			n, _, err := unix.Recvfrom(sniffer, b, 0)
			if err != nil {
				break
			}
			biggest = max(biggest, n)
		}
		if biggest < 5000 {
			t.Errorf("to %s: the biggest TCP frame that arrived has %d bytes: segmentation was not left to the end", to, biggest)
		}
		testDatagrams(t, w, to)
	}
	if after := features(); after != before {
		t.Errorf("features before:\n%s\nafter:\n%s", before, after)
	}
}

func sameFeatures(a, b string) bool {
	_, a, _ = strings.Cut(a, "\n") // the interface's name
	_, b, _ = strings.Cut(b, "\n")
	return a == b
}

// testDatagrams sends three segments in one call, then a datagram without a
// checksum over IPv4.
func testDatagrams(t *testing.T, w *twoHosts, to netip.Addr) {
	t.Helper()
	near, far := newThread(t, w.containers[0]), newThread(t, w.containers[1])
	var server *net.UDPConn
	var err error
	far.do(func() { server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 0))) })
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var client *net.UDPConn
	near.do(func() { client, err = net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr)) })
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	raw, err := client.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want ...int) {
		t.Helper()
		b := make([]byte, 4096)
		for _, n := range want {
			if err := server.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if got, _, err := server.ReadFrom(b); err != nil || got != n {
				t.Fatalf("to %s: datagram of %d bytes, %v; want %d", to, got, err, n)
			}
		}
	}
	segmented := binary.NativeEndian.AppendUint16(nil, 1000)
	oob := make([]byte, unix.CmsgSpace(2))
	h := unix.Cmsghdr{Level: unix.SOL_UDP, Type: unix.UDP_SEGMENT}
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint64(oob, h.Len)
	binary.NativeEndian.PutUint32(oob[8:], uint32(h.Level))
	binary.NativeEndian.PutUint32(oob[12:], uint32(h.Type))
	copy(oob[unix.CmsgLen(0):], segmented)
	for range 4 { // the first ones go the slow path
		if _, _, err := client.WriteMsgUDP(make([]byte, 2500), oob, nil); err != nil {
			t.Fatal(err)
		}
		expect(1000, 1000, 500)
	}
	if !to.Is4() {
		return // RFC 8200 section 8.1 forbids it
	}
	if err := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write(make([]byte, 300)); err != nil {
		t.Fatal(err)
	}
	expect(300)
}

// TestErrorsReachTheConnectionTheyQuote has a container send to a closed port: its kernel gets the
// other's refusal, by the rule that allowed the datagram; an error about a packet that was
// never sent is dropped.
func TestErrorsReachTheConnectionTheyQuote(t *testing.T) {
	w := newTwoHosts(t, 1600, 1500)
	near, far := newThread(t, w.containers[0]), newThread(t, w.containers[1])
	for _, to := range []netip.Addr{containerIP4[1], containerIP6[1]} {
		var client net.Conn
		var err error
		near.do(func() {
			client, err = (&net.Dialer{}).DialContext(t.Context(), "udp", netip.AddrPortFrom(to, 9).String())
		})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := client.Write([]byte("anybody?")); err != nil {
			t.Fatal(err)
		}
		if err := client.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("to %s: read = %v, want %v", to, err, unix.ECONNREFUSED)
		}
	}

	// Port unreachable, quoting a datagram from the first container's port 777
	// to the second's 888.
	four := append([]byte{3, 3, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0}, containerIP4[0].AsSlice()...)
	four = append(append(four, containerIP4[1].AsSlice()...), 3, 9, 3, 0x78, 0, 16, 0, 0)
	six := append([]byte{1, 4, 0, 0, 0, 0, 0, 0, 0x60, 0, 0, 0, 0, 16, 17, 64}, containerIP6[0].AsSlice()...)
	six = append(append(six, containerIP6[1].AsSlice()...), 3, 9, 3, 0x78, 0, 16, 0, 0)
	binary.BigEndian.PutUint16(four[2:], checksum(four))
	before := w.drops(t, 1)["invalid"]
	far.do(func() {
		for network, packet := range map[string][]byte{"ip4:icmp": four, "ip6:ipv6-icmp": six} {
			to := containerIP4[0]
			if network == "ip6:ipv6-icmp" {
				to = containerIP6[0]
			}
			c, err := (&net.Dialer{}).DialContext(t.Context(), network, to.String())
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := c.Write(packet); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			c.Close()
		}
	})
	for deadline := time.Now().Add(patience); w.drops(t, 1)["invalid"] != before+2; {
		if time.Now().After(deadline) {
			t.Fatalf("drops %v, want %d more invalid than %d", w.drops(t, 1), 2, before)
		}
	}
}

// checksum is RFC 1071's.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
