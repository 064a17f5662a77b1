package ebpf

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestFirstPacketsPassTheDevice: between hosts of one link the first packets to a
// destination bypass the VXLAN devices too, if the tunnel carries them whole.
func TestFirstPacketsPassTheDevice(t *testing.T) {
	w := newTwoHosts(t, 1600, 1500)
	if w.drivers[0].dp.att.way != attachTCX {
		t.Skip("no fast path between hosts")
	}
	device := func() (n uint64) {
		for i := range w.hosts {
			s := w.tunnelled(t, i)
			n += s.RxPackets + s.TxPackets
		}
		return n
	}
	w.in(t, 0, "ping", "-c", "1", "-W", "2", containerIP4[1].String()) //nolint:errcheck // the hosts find each other
	before := device()
	run(t, "ip", "netns", "exec", w.containers[0], "ping", "-c", "3", "-i", "0.05", "-W", "2", containerIP4[1].String())
	w.stream(t, 100)
	if n := device() - before; n > 0 {
		t.Errorf("%d packets went through the VXLAN devices", n)
	}
	run(t, "ip", "netns", "exec", w.containers[0], "ping", "-c", "1", "-W", "2", "-s", "4000", "-M", "dont", containerIP4[1].String())
	run(t, "ip", "netns", "exec", w.containers[0], "ping", "-c", "1", "-W", "2", containerIP6[1].String())
	if device() == before {
		t.Error("the VXLAN devices count nothing: the test shows nothing")
	}
}

// TestOnlyWholeTunnelPacketsAreDecapsulated sends tunnel packets with an echo request to a host, whole ones and others. A
// packet that differs from the program's expectation goes to the host's stack and the VXLAN
// device, or is dropped, and decapsulated packets are judged.
func TestOnlyWholeTunnelPacketsAreDecapsulated(t *testing.T) {
	w := newTwoHosts(t, 1600, 1500)
	if w.drivers[1].dp.att.way != attachTCX {
		t.Skip("no fast path between hosts")
	}
	mac := func(i int) (m model.MAC) {
		m, err := model.ParseMAC(strings.Fields(run(t, "ip", "-n", w.hosts[i], "-br", "link", "show", "u0"))[2])
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	near, far := mac(0), mac(1)
	for _, c := range w.containers { // or they report what they listen to, which drop counters show
		run(t, "ip", "netns", "exec", c, "sysctl", "-q", "-w", "net.ipv6.conf.eth0.disable_ipv6=1")
	}
	wire, inside := sniff(t, w.hosts[0], "u0", 1<<20), sniff(t, w.containers[1], "eth0", 1<<20)
	macs := [2]model.MAC{{2, 5, 0, 0, 0, 1}, {2, 5, 0, 0, 0, 2}}
	echo := func(id byte) []byte {
		b := icmp(8, 0)
		b[5] = id
		binary.BigEndian.PutUint16(b[2:], ^sum16(b))
		return ether(macs[1], macs[0], 0x0800, header4(containerIP4[0].As4(), containerIP4[1].As4(), 1, 0, nil, b))
	}
	// An answer tells that what came before it has arrived or never will.
	arrived := func(id byte) bool {
		b := make([]byte, 2000)
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(inside), Events: unix.POLLIN}}, 100); err != nil && !errors.Is(err, unix.EINTR) {
				t.Fatal(err)
			}
			for {
				n, from, err := unix.Recvfrom(inside, b, 0)
				if err != nil {
					break
				}
				if a, ok := from.(*unix.SockaddrLinklayer); !ok || a.Pkttype == unix.PACKET_OUTGOING || n < 42 || b[23] != unix.IPPROTO_ICMP {
					continue
				}
				switch b[39] {
				case id:
					return true
				case 0xff:
					return false
				}
			}
		}
		t.Fatal("not even a packet in order arrives")
		return false
	}
	send := func(f []byte) {
		if err := unix.Send(wire, f, 0); err != nil {
			t.Fatal(err)
		}
	}
	byDevice := func() uint64 { return w.tunnelled(t, 1).RxPackets }
	for i, x := range []struct {
		name            string
		from            netip.Addr
		change          func(f []byte) []byte // of the tunnel packet
		arrives, device bool
		drop            string
	}{
		{name: "in order", arrives: true},
		{name: "with a checksum of its own", change: outerSummed, arrives: true, device: true},
		{name: "congested on its way", change: func(f []byte) []byte { f[15] = 3; f[50+15] = 2; summed(f[14:]); summed(f[64:]); return f }, arrives: true, device: true},
		{name: "with options", change: func(f []byte) []byte {
			f = slices.Insert(f, 34, 1, 1, 1, 0)
			f[14]++
			binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
			summed(f[14:])
			return f
		}, arrives: true, device: true},
		{name: "its header's checksum is wrong", change: func(f []byte) []byte { f[24] ^= 1; return f }},
		{name: "for another machine", change: func(f []byte) []byte { f[0] ^= 2; return f }},
		{name: "to another port", change: func(f []byte) []byte { f[37]++; return f }},
		{name: "of another network", change: func(f []byte) []byte { f[48]++; return f }, device: true, drop: driver.DropNetwork},
		{name: "from no host", from: netip.MustParseAddr("192.168.7.9"), drop: driver.DropUnknownSource},
		{name: "from no host, of another link", from: netip.MustParseAddr("10.77.0.9"), device: true, drop: driver.DropUnknownSource},
		{name: "damaged inside", change: func(f []byte) []byte { f[50+14+10] ^= 1; return f }, drop: driver.DropInvalid},
		{name: "to nobody", change: func(f []byte) []byte { f[55]++; return f }, drop: driver.DropUnknownDest},
	} {
		id := byte(i + 1)
		from := x.from
		if !from.IsValid() {
			from = vtep1
		}
		f := conformance.VXLAN(far, near, from, vtep2, DefaultVXLANPort, 100, echo(id))
		if x.change != nil {
			f = x.change(f)
		}
		device, drops := byDevice(), w.drops(t, 1)
		send(f)
		send(outerSummed(conformance.VXLAN(far, near, vtep1, vtep2, DefaultVXLANPort, 100, echo(0xff)))) // through the device, which is slower
		if x.arrives {
			if !arrived(id) {
				t.Errorf("%s: it does not arrive", x.name)
			}
			arrived(0xff)
		} else if arrived(id) {
			t.Errorf("%s: it arrives", x.name)
		}
		if n := byDevice() - device - 1; (n == 1) != x.device || n > 1 {
			t.Errorf("%s: the VXLAN device has seen %d of it, want %v", x.name, n, x.device)
		}
		for reason, n := range w.drops(t, 1) {
			want := uint64(0)
			if reason == x.drop {
				want = 1
			}
			if n-drops[reason] != want {
				t.Errorf("%s: %d dropped as %s, want %d", x.name, n-drops[reason], reason, want)
			}
		}
	}
}
