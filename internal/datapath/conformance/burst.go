package conformance

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Burst sends n datagrams of 1,000 bytes marked for ECN (01) to an address, as fast as it
// can, and returns how many arrive, how long sending took, in which a limit lets more pass,
// and the classes (RFC 2474, with ECN) that they have.
// from and to do something in the network namespaces of who sends and who has the address.
func Burst(t testing.TB, n int, from, to func(do func() error) error, addr netip.Addr) (arrived int, took time.Duration, classes []int) {
	t.Helper()
	network, level, recv, class := "udp4", unix.IPPROTO_IP, unix.IP_RECVTOS, unix.IP_TOS
	if addr.Is6() {
		network, level, recv, class = "udp6", unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, unix.IPV6_TCLASS
	}
	var in, out *net.UDPConn
	err := to(func() (err error) { in, err = net.ListenUDP(network, &net.UDPAddr{}); return err })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	err = from(func() (err error) {
		out, err = net.DialUDP(network, nil, &net.UDPAddr{IP: addr.AsSlice(), Port: in.LocalAddr().(*net.UDPAddr).Port})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	set := func(c *net.UDPConn, level, opt, v int) {
		t.Helper()
		raw, err := c.SyscallConn()
		var err2 error
		if err == nil {
			err = raw.Control(func(fd uintptr) { err2 = unix.SetsockoptInt(int(fd), level, opt, v) })
		}
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
	}
	set(in, level, recv, 1)
	set(in, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	set(out, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20)
	set(out, level, class, 1)
	began := time.Now()
	for range n {
		if _, err := out.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	took = time.Since(began)
	// A last one follows the burst. It is sent until it arrives, but not before the queue is
	// empty, where it would take a place. It may overtake others: they may wait for the
	// neighbor's address or for another processor. So reading ends after a silence.
	buf, oob := make([]byte, 2000), make([]byte, 100)
	ended := false
	for again, deadline := true, time.Now().Add(time.Minute); ; {
		if again {
			if ended {
				return arrived, took, classes
			}
			if _, err := out.Write([]byte("end")); err != nil || time.Now().After(deadline) {
				t.Fatalf("nothing came to the end of the burst: %d of it, %v", arrived, err)
			}
		}
		if err := in.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		size, on, _, _, err := in.ReadMsgUDP(buf, oob)
		if again = err != nil; again {
			continue
		}
		if size < 1000 {
			ended = true
			continue
		}
		arrived++
		cmsgs, err := unix.ParseSocketControlMessage(oob[:on])
		if err != nil || len(cmsgs) != 1 {
			t.Fatalf("%v, %v", cmsgs, err)
		}
		if class := int(cmsgs[0].Data[0]); !slices.Contains(classes, class) {
			classes = append(classes, class)
		}
	}
}
