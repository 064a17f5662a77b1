package ebpf

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// routedNeighbours are neighbours of whom b is on another network of a's domain.
func (r *rig) routedNeighbours(t testing.TB) (pic desired.Host, a, b *desired.Port) {
	t.Helper()
	pic, a, b = r.neighbours(t)
	moved := *b
	b = &moved
	b.Network, b.IPv4, b.IPv6 = 2, netip.MustParseAddr("10.10.0.2"), netip.MustParseAddr("fd00:10::2")
	pic.Ports = pic.Ports.Set(b.IfName, b)
	for i, n := range []desired.Network{
		{Tag: 100, Subnet: netip.MustParsePrefix("10.9.0.0/16"), Subnet6: netip.MustParsePrefix("fd00:9::/64"), Gateway: netip.MustParseAddr("10.9.255.254"), Gateway6: netip.MustParseAddr("fd00:9::fe")},
		{Tag: 101, Subnet: netip.MustParsePrefix("10.10.0.0/16"), Subnet6: netip.MustParsePrefix("fd00:10::/64")},
	} {
		n.ID, n.Encap, n.Joined = model.NetworkID(i+1), model.EncapVXLAN, 5
		pic.Networks = pic.Networks.Set(n.ID, &n)
	}
	return pic, a, b
}

// through runs the program on a port on a frame and returns what has become of it;
// nil = it was dropped.
func (r *rig) through(t testing.TB, ifname string, frame []byte) []byte {
	t.Helper()
	ctx, out := make([]byte, 192), make([]byte, 2048) // struct __sk_buff, the frame
	opts := ebpf.RunOptions{Data: frame, DataOut: out, Context: ctx}
	r.thread.do(func() {
		binary.NativeEndian.PutUint32(ctx[40:], uint32(r.drv.dp.ports.indexes[ifname]))
		ret, err := r.drv.dp.obj.FromContainer.Run(&opts)
		if err != nil {
			t.Errorf("run on %x: %v", frame, err)
		}
		if ret != redirected {
			opts.DataOut = nil
		}
	})
	return opts.DataOut
}

// TestRoutedFramesTakeOneHop: what a's router makes of its frames to b, on the slow path and
// on the short one, byte for byte, and what it answers.
func TestRoutedFramesTakeOneHop(t *testing.T) {
	r := newRig(t)
	pic, a, b := r.routedNeighbours(t)
	drv := r.open(t)
	defer drv.Close()
	if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	router := desired.RouterMAC
	a4, b4, a6, b6 := a.IPv4.As4(), b.IPv4.As4(), a.IPv6.As16(), b.IPv6.As16()
	nobody4, outside4 := [4]byte{10, 10, 0, 77}, [4]byte{8, 8, 8, 8}
	nobody6, outside6 := netip.MustParseAddr("fd00:10::77").As16(), netip.MustParseAddr("2001:db8::1").As16()
	hops := func(f []byte, n byte) []byte {
		f = slices.Clone(f)
		if f[12] == 0x86 {
			f[21] = n
		} else {
			f[22] = n
			summed(f[14:])
		}
		return f
	}
	to4 := func(dst [4]byte, proto byte, frag uint16, options []byte, payload ...[]byte) []byte {
		return ether(router, a.MAC, 0x0800, header4(a4, dst, proto, frag, options, payload...))
	}
	to6 := func(dst [16]byte, next byte, payload ...[]byte) []byte {
		return ether(router, a.MAC, 0x86dd, header6(a6, dst, next, payload...))
	}
	// routed is a frame as b gets it.
	routed := func(f []byte) []byte {
		at := 22
		if f[12] == 0x86 {
			at = 21
		}
		f = hops(f, f[at]-1)
		copy(f, b.MAC[:])
		copy(f[6:], router[:])
		return f
	}
	bad := to4(b4, 6, 0, nil, tcp(4000, 80, 2))
	bad[24]++
	nops := bytes.Repeat([]byte{1}, 8)
	quoted4, quoted6 := header4(b4, a4, 6, 0, nil, tcp(80, 4000, 16)), header6(b6, a6, 6, tcp(80, 4000, 16))
	web4, web6 := to4(b4, 6, 0, nil, tcp(4000, 80, 2)), to6(b6, 6, tcp(4000, 80, 2))
	for _, x := range []struct {
		name   string
		frame  []byte
		answer [2]byte // type and code of an error; zero = none
		reason string  // "" = it is routed
	}{
		{"TCP", web4, [2]byte{}, ""},
		{"again, two hops left", hops(web4, 2), [2]byte{}, ""},
		{"256 hops less one", hops(web4, 255), [2]byte{}, ""},
		{"options", to4(b4, 6, 0, nops, tcp(4001, 80, 2)), [2]byte{}, ""},
		{"IPv6", web6, [2]byte{}, ""},
		{"IPv6, two hops left", hops(web6, 2), [2]byte{}, ""},
		{"extension header", to6(b6, 0, option(6), tcp(4001, 80, 2)), [2]byte{}, ""},
		{"ping", to4(b4, 1, 0, nil, icmp(8, 0)), [2]byte{}, ""},
		{"one hop left", hops(web4, 1), [2]byte{11, 0}, driver.DropTTL},
		{"one hop left, options", hops(to4(b4, 17, 0, nops, udp(4000, 80)), 1), [2]byte{11, 0}, driver.DropTTL},
		{"one hop left, to nobody", hops(to4(nobody4, 17, 0, nil, udp(4000, 80)), 1), [2]byte{11, 0}, driver.DropTTL},
		{"no hop left", hops(web4, 0), [2]byte{}, driver.DropInvalid},
		{"IPv6, one hop left", hops(web6, 1), [2]byte{3, 0}, driver.DropTTL},
		{"IPv6, no hop left", hops(web6, 0), [2]byte{}, driver.DropInvalid},
		{"wrong checksum", bad, [2]byte{}, driver.DropInvalid},
		{"wrong checksum, one hop left", func() []byte { f := hops(web4, 1); f[24]++; return f }(), [2]byte{}, driver.DropInvalid},
		{"denied", to4(b4, 6, 0, nil, tcp(4000, 81, 2)), [2]byte{}, driver.DropPolicy},
		{"to nobody", to4(nobody4, 17, 0, nil, udp(4000, 80)), [2]byte{3, 1}, driver.DropUnknownDest},
		{"to nobody, long", to4(nobody4, 17, 0, nil, append(udp(4000, 80), make([]byte, 200)...)), [2]byte{3, 1}, driver.DropInvalid},
		{"to nobody, no UDP", to4(nobody4, 47, 0, nil, make([]byte, 200)), [2]byte{3, 1}, driver.DropUnknownDest},
		{"IPv6 to nobody", to6(nobody6, 47, make([]byte, 300)), [2]byte{1, 3}, driver.DropUnknownDest},
		{"to nobody, first fragment", to4(nobody4, 47, 0x2000, nil, make([]byte, 24)), [2]byte{3, 1}, driver.DropUnknownDest},
		{"to nobody, later fragment", to4(nobody4, 47, 0x2003, nil, make([]byte, 24)), [2]byte{}, driver.DropUnknownDest},
		{"to nobody, an error", to4(nobody4, 1, 0, nil, icmp(3, 3), quoted4), [2]byte{}, driver.DropUnknownDest},
		{"IPv6 to nobody, an error", to6(nobody6, 58, icmp(1, 4), quoted6), [2]byte{}, driver.DropUnknownDest},
		{"outside", to4(outside4, 17, 0, nil, udp(4000, 80)), [2]byte{3, 0}, driver.DropUnknownDest},
		{"IPv6 outside", to6(outside6, 47, make([]byte, 8)), [2]byte{1, 0}, driver.DropUnknownDest},
		{"to itself", to4(a4, 47, 0, nil, make([]byte, 8)), [2]byte{}, driver.DropUnknownDest},
		{"to a group", to4([4]byte{224, 0, 0, 251}, 47, 0, nil, make([]byte, 8)), [2]byte{}, driver.DropUnknownDest},
		{"by b's own MAC", ether(b.MAC, a.MAC, 0x0800, header4(a4, b4, 6, 0, nil, tcp(4000, 80, 2))), [2]byte{}, driver.DropUnknownDest},
	} {
		if x.name == "to nobody, long" { // its UDP length is the header's
			copy(x.frame[38:], []byte{0, 208})
			x.reason = driver.DropUnknownDest
		}
		before := droppedFor(t, drv, x.reason)
		got := r.through(t, a.IfName, x.frame)
		switch {
		case x.reason == "":
			if want := routed(x.frame); !bytes.Equal(got, want) {
				t.Errorf("%s: b gets %x, want %x", x.name, got, want)
			}
			continue
		case x.answer == [2]byte{}:
			if got != nil {
				t.Errorf("%s: became %x", x.name, got)
			}
		default:
			wantError(t, x.name, x.frame, got, x.answer, pic)
		}
		if n := droppedFor(t, drv, x.reason) - before; n != 1 {
			t.Errorf("%s: %d drops as %s, want 1", x.name, n, x.reason)
		}
	}
	// The fast path, there and back, for TCP that is established.
	back := ether(router, b.MAC, 0x0800, header4(b4, a4, 6, 0, nil, tcp(80, 4000, 18)))
	if r.through(t, b.IfName, back) == nil {
		t.Fatal("the answer is not routed")
	}
	data := to4(b4, 6, 0x4000, nil, tcp(4000, 80, 16), make([]byte, 100))
	for i := range 4 {
		if i == 3 && r.keepShortWays(t) == 0 {
			t.Fatal("nothing takes the fast path")
		}
		for _, n := range []byte{64, 2, 255} {
			for tos := range byte(2) {
				data[15] = tos // so that the checksum carries or does not
				f := hops(data, n)
				if got := r.through(t, a.IfName, f); !bytes.Equal(got, routed(f)) {
					t.Errorf("data, %d hops, the %d. time: b gets %x, want %x", n, i, got, routed(f))
				}
			}
		}
		wantError(t, "data with one hop left", hops(data, 1), r.through(t, a.IfName, hops(data, 1)), [2]byte{11, 0}, pic)
	}
	for i := range 1 << 16 { // every checksum that there is
		f := slices.Clone(data)
		binary.BigEndian.PutUint16(f[18:], uint16(i))
		if i%257 != 0 && i%255 != 0 {
			continue
		}
		f = hops(f, 64)
		if got := r.through(t, a.IfName, f); !bytes.Equal(got, routed(f)) {
			t.Fatalf("identification %x: b gets %x, want %x", i, got, routed(f))
		}
	}
}

func droppedFor(t testing.TB, drv driver.Driver, reason string) uint64 {
	t.Helper()
	s, err := drv.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.Drops[reason]
}

// wantError checks an ICMP error of the router of a's network about a frame.
func wantError(t testing.TB, name string, about, got []byte, kind [2]byte, pic desired.Host) {
	t.Helper()
	n, _ := pic.Networks.Get(1)
	six := about[12] == 0x86
	at, proto, quote, by := 34, byte(1), 68, n.Router().AsSlice()
	if six {
		at, proto, quote, by = 54, 58, 128, n.Router6().AsSlice()
	}
	packet := about[14:]
	packet = packet[:min(len(packet), quote)]
	if len(got) != at+8+len(packet) || !bytes.Equal(got[:6], about[6:12]) || !bytes.Equal(got[6:12], desired.RouterMAC[:]) ||
		got[at] != kind[0] || got[at+1] != kind[1] || !bytes.Equal(got[at+4:at+8], make([]byte, 4)) || !bytes.Equal(got[at+8:], packet) {
		t.Errorf("%s: answered %x, want %v about %x", name, got, kind, packet)
		return
	}
	sum := uint32(0)
	if six {
		sum = uint32(sum16(got[22:54])) + uint32(len(got)-54) + 58
		if got[20] != proto || !bytes.Equal(got[22:38], by) || !bytes.Equal(got[38:54], about[22:38]) || int(binary.BigEndian.Uint16(got[18:])) != len(got)-54 {
			t.Errorf("%s: header %x", name, got[14:54])
		}
	} else if got[23] != proto || !bytes.Equal(got[26:30], by) || !bytes.Equal(got[30:34], about[26:30]) || int(binary.BigEndian.Uint16(got[16:])) != len(got)-14 || sum16(got[14:34]) != 0xffff {
		t.Errorf("%s: header %x", name, got[14:34])
	}
	body := got[at:]
	if len(body)%2 == 1 {
		body = append(slices.Clone(body), 0)
	}
	sum += uint32(sum16(body))
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	if sum != 0xffff {
		t.Errorf("%s: the error's checksum is wrong", name)
	}
}

// TestRouterAnswersAreBounded: a port that has errors made gets so many a second.
func TestRouterAnswersAreBounded(t *testing.T) {
	r := newRig(t)
	pic, a, _ := r.routedNeighbours(t)
	drv := r.open(t)
	defer drv.Close()
	if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	f := ether(desired.RouterMAC, a.MAC, 0x0800, header4(a.IPv4.As4(), [4]byte{10, 10, 0, 77}, 17, 0, nil, udp(4000, 80)))
	frames := slices.Repeat([][]byte{f}, 20000)
	began, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	answered := 0
	for _, ret := range r.from(t, a.IfName, frames...) {
		if ret == redirected {
			answered++
		}
	}
	now, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	seconds := int(now/1e9-began/1e9) + 1 // that began meanwhile
	// The packets may move to another processor, which counts by itself.
	if most := 1000 * seconds * runtime.NumCPU(); answered < 1000 || answered > most {
		t.Errorf("%d of %d packets were answered in %d seconds, want 1000 to %d", answered, len(frames), seconds, most)
	}
}
