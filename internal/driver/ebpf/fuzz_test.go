package ebpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/drivertest"
)

var update = flag.Bool("update", false, "rewrite the corpus of FuzzPacket")

// judged are two ports of one network, where b takes connections to TCP ports
// 80 and 8000 to 8079 and pings, and everything else is denied; and r, an
// endpoint of another host.
type judged struct {
	*rig
	t    testing.TB
	a, b *desired.Port
	r    *desired.Remote
	drv  driver.Driver
}

func newJudged(t testing.TB) *judged {
	t.Helper()
	r := newRig(t)
	pic, a, b := r.neighbours(t)
	far := &desired.Remote{
		Network: 1, MAC: [6]byte{2, 5, 0, 0, 0, 3}, IPv4: netip.MustParseAddr("10.9.0.3"), IPv6: netip.MustParseAddr("fd00:9::3"), Identity: 300, VTEP: vtep2,
	}
	pic.Remotes = pic.Remotes.Set(desired.RemoteKey{Network: 1, MAC: far.MAC}, far)
	r.networks[1] = 100
	j := &judged{rig: r, t: t, a: a, b: b, r: far, drv: r.open(t)}
	t.Cleanup(func() { _ = j.drv.Close() })
	if rep, err := j.drv.Apply(t.Context(), pic); err != nil || drivertest.Failed(rep) != nil {
		t.Fatal(err, drivertest.Failed(rep))
	}
	return j
}

func (j *judged) samples() map[string]sample {
	return samples(
		driver.Packet{SrcMAC: j.a.MAC, DstMAC: j.b.MAC, Src: j.a.IPv4, Dst: j.b.IPv4},
		driver.Packet{SrcMAC: j.a.MAC, DstMAC: j.b.MAC, Src: j.a.IPv6, Dst: j.b.IPv6})
}

func (j *judged) drops(t testing.TB) (n uint64) {
	t.Helper()
	s, err := j.drv.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range s.Drops {
		n += d
	}
	return n
}

// forget makes the programs forget all connections and fragments.
func (j *judged) forget(t testing.TB) {
	t.Helper()
	err := errors.Join(
		j.rig.drv.dropConns(func(connKey, conn) bool { return true }),
		sweepMap(j.rig.drv, &j.rig.drv.frags, 1, func(fragKey, frag) bool { return true }))
	if err != nil {
		t.Fatal(err)
	}
}

// try forgets and sends a frame from a, through
// the program alone or, where the kernel does not run it on such a frame, by
// the wire. It returns whether the frame went anywhere, and expects it to be
// counted as dropped otherwise.
func (j *judged) try(t testing.TB, f []byte) bool {
	t.Helper()
	j.forget(t)
	before, ret := j.drops(t), uint32(0)
	var err error
	j.thread.do(func() {
		ctx := make([]byte, 192) // struct __sk_buff
		binary.NativeEndian.PutUint32(ctx[40:], uint32(j.rig.drv.indexes[j.a.IfName]))
		ret, err = testRun(j.rig.drv.obj.FromContainer, f, ctx)
	})
	switch {
	case errors.Is(err, unix.EINVAL) && len(f) >= 14:
		return len(j.wired(t, j.a.IfName, f)) > 0
	case errors.Is(err, unix.EINVAL):
		return false // the kernel takes it for no frame at all
	case err != nil:
		t.Fatal(err)
	}
	passed := ret == redirected
	if !passed && ret != 2 {
		t.Errorf("%x: verdict %d is neither to send it on nor to drop it", f, int32(ret))
	}
	if dropped := j.drops(t) - before; !passed && dropped != 1 || passed && dropped != 0 {
		t.Errorf("%x: verdict %d, counted as %d drops", f, ret, dropped)
	}
	return passed
}

// wired sends a frame by the wire of an interface and returns what came out at
// a and b.
func (j *judged) wired(t testing.TB, near string, f []byte) (out [][]byte) {
	t.Helper()
	j.thread.do(func() {
		for _, w := range j.wires {
			w.receive()
		}
		if j.near == nil {
			fd, err := packetSocket(sentinel)
			if err != nil {
				t.Error(err)
				return
			}
			j.near = &wire{fd}
		}
		if err := j.wires[near].send(f); err != nil {
			t.Error(err)
			return
		}
		j.settle(t, j.near.fd)
	})
	return append(j.wires[j.a.IfName].receive(), j.wires[j.b.IfName].receive()...)
}

// TestPackets sends every sample and expects exactly what it says; the reading
// that the fuzz target judges by agrees; and none of it, said to come from
// another host, which it does not, gets out of the tunnel.
func TestPackets(t *testing.T) {
	j := newJudged(t)
	for name, s := range j.samples() {
		if got := j.try(t, s.frame); got != s.passes {
			t.Errorf("%s (%x): passes: %v, want %v", name, s.frame, got, s.passes)
		}
		if may := mayPass(s.frame, sender{j.a.MAC, j.a.IPv4, j.a.IPv6}, j.b.MAC); s.passes && !may {
			t.Errorf("%s (%x): the fuzz target would call this a leak", name, s.frame)
		}
		if out := j.tunnelled(t, s.frame); len(out) > 0 && name != "arp-reply-from-nobody" { // which claims no address
			t.Errorf("%s (%x): got out of the tunnel in a local endpoint's name: %x", name, s.frame, out)
		}
	}
	for name, s := range j.remoteSamples() {
		if out := j.tunnelled(t, s.frame); (len(out) > 0) != s.passes {
			t.Errorf("%s (%x) from the tunnel: came out as %x, want %v", name, s.frame, out, s.passes)
		}
	}
}

// remoteSamples are those of an endpoint of another host; its neighbour
// discovery is answered where it is.
func (j *judged) remoteSamples() map[string]sample {
	all := samples(
		driver.Packet{SrcMAC: j.r.MAC, DstMAC: j.b.MAC, Src: j.r.IPv4, Dst: j.b.IPv4},
		driver.Packet{SrcMAC: j.r.MAC, DstMAC: j.b.MAC, Src: j.r.IPv6, Dst: j.b.IPv6})
	for name, s := range all {
		if binary.BigEndian.Uint16(s.frame[12:]) == 0x0806 || len(s.frame) > 54 && s.frame[20] == 58 && s.frame[54] >= 133 {
			delete(all, name)
		}
		if bytes.Contains([]byte(name), []byte("spoofed")) || name == "to-itself" || name == "multicast-source" {
			delete(all, name) // in whose name it comes is another host's care
		}
	}
	return all
}

func (j *judged) tunnelled(t testing.TB, f []byte) [][]byte {
	t.Helper()
	if len(f) < 14 {
		return nil
	}
	j.forget(t)
	return j.wired(t, underlayWire, drivertest.VXLAN(j.underMAC, mac2, vtep2, vtep1, DefaultVXLANPort, 100, f))
}

// TestCorpus keeps the committed corpus in step with the samples.
func TestCorpus(t *testing.T) {
	j := &judged{
		a: &desired.Port{MAC: [6]byte{2, 5, 0, 0, 0, 1}, IPv4: containerIP4[0], IPv6: containerIP6[0]},
		b: &desired.Port{MAC: [6]byte{2, 5, 0, 0, 0, 2}, IPv4: containerIP4[1], IPv6: containerIP6[1]},
	}
	dir := filepath.Join("testdata", "fuzz", "FuzzPacket")
	for name, s := range j.samples() {
		path, want := filepath.Join(dir, name), fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", s.frame)
		if *update {
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, []byte(want), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not what the sample is (%v); run go test -run TestCorpus -update", path, err)
		}
	}
}

// FuzzPacket sends any frame from a port: whatever passes must be in its
// sender's own name and allowed by policy as an independent reading sees it;
// whatever does not is counted once. The same frame, out of the tunnel, comes
// out only in an endpoint's name that is on another host.
func FuzzPacket(f *testing.F) {
	j := newJudged(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) > 1500 {
			t.Skip("longer than the interface takes")
		}
		if j.try(t, frame) && !mayPass(frame, sender{j.a.MAC, j.a.IPv4, j.a.IPv6}, j.b.MAC) {
			t.Errorf("%x went out", frame)
		}
		for _, out := range j.tunnelled(t, frame) {
			if !mayPass(frame, sender{ip4: j.r.IPv4, ip6: j.r.IPv6}, j.b.MAC) {
				t.Errorf("%x came out of the tunnel as %x", frame, out)
			}
		}
	})
}

// sender is in whose name a frame may be; no MAC = any.
type sender struct {
	mac      [6]byte
	ip4, ip6 netip.Addr
}

func (s sender) is(a netip.Addr, mac [6]byte) bool {
	return a == s.ip4 || a == s.ip6 || a == driver.LinkLocal(mac)
}

// mayPass tells whether a frame, that no connection is known for, may pass at
// all. It is generous: what it refuses is a leak if it passes.
func mayPass(f []byte, from sender, to [6]byte) bool {
	if len(f) < 14 {
		return false
	}
	mac := [6]byte(f[6:12])
	if from.mac != [6]byte{} && mac != from.mac {
		return false
	}
	body := f[14:]
	switch binary.BigEndian.Uint16(f[12:]) {
	case 0x0806:
		return len(body) >= 28 && ([6]byte(body[8:14]) == mac || from.mac == [6]byte{}) &&
			(from.is(netip.AddrFrom4([4]byte(body[14:18])), mac) || binary.BigEndian.Uint32(body[14:]) == 0)
	case 0x0800:
		if len(body) < 20 || body[0]>>4 != 4 {
			return false
		}
		hl, total := int(body[0]&15)*4, int(binary.BigEndian.Uint16(body[2:]))
		if hl < 20 || total < hl || total > len(body) || binary.BigEndian.Uint16(body[6:])&0x1fff != 0 {
			return false
		}
		return from.is(netip.AddrFrom4([4]byte(body[12:16])), mac) && [6]byte(f[:6]) == to && allowed(body[9], body[hl:total], 1)
	case 0x86dd:
		return mayPass6(f, body, from, to)
	}
	return false
}

func mayPass6(f, body []byte, from sender, to [6]byte) bool {
	if len(body) < 40 || body[0]>>4 != 6 {
		return false
	}
	mac, length := [6]byte(f[6:12]), int(binary.BigEndian.Uint16(body[4:]))
	src := netip.AddrFrom16([16]byte(body[8:24]))
	if 40+length > len(body) {
		return false
	}
	next, rest := body[6], body[40:40+length]
	for slices.Contains([]byte{0, 43, 44, 51, 60}, next) {
		if len(rest) < 8 {
			return false
		}
		skip := (int(rest[1]) + 1) * 8
		switch next {
		case 44:
			if binary.BigEndian.Uint16(rest[2:])&0xfff8 != 0 {
				return false
			}
			skip = 8
		case 51:
			skip = (int(rest[1]) + 2) * 4
		}
		if next = rest[0]; skip > len(rest) {
			return false
		}
		rest = rest[skip:]
	}
	if next == 58 && len(rest) >= 8 && (rest[0] == 133 || rest[0] == 135 || rest[0] == 136) {
		return from.is(src, mac) || src.IsUnspecified() && rest[0] != 136 // neighbour discovery
	}
	return from.is(src, mac) && [6]byte(f[:6]) == to && allowed(next, rest, 58)
}

// allowed is the policy of b.
func allowed(proto byte, b []byte, ping byte) bool {
	switch proto {
	case 6:
		if len(b) < 20 || b[12] < 0x50 || b[13]&4 != 0 || b[13]&18 == 18 {
			return false
		}
		to := binary.BigEndian.Uint16(b[2:])
		return to == 80 || to >= 8000 && to < 8080
	case ping:
		return len(b) >= 8 && slices.Contains(map[byte][]byte{1: {8, 13, 15, 17}, 58: {128}}[ping], b[0])
	}
	return false
}
