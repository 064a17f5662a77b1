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

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

var update = flag.Bool("update", false, "rewrite the corpus of FuzzPacket")

// judged are two ports of one network, where b takes connections to TCP ports
// 80 and 8000 to 8079, to UDP port 5353, and pings, and everything else is denied; and r, an
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
	set, _ := pic.PolicySets.Get(b.Policies)
	names := *set
	names.In = slices.Clone(set.In)
	names.In[0].Rules = names.In[0].Rules.Set("names", &desired.Rule{
		ID: "names", Priority: 50, Action: model.Allow, AnyPeer: true, Ports: []model.PortMatch{{Protocol: model.ProtoUDP, Lo: 5353, Hi: 5353}},
	})
	pic.PolicySets = pic.PolicySets.Set(set.ID, &names)
	j := &judged{rig: r, t: t, a: a, b: b, r: far, drv: r.open(t)}
	t.Cleanup(func() { _ = j.drv.Close() })
	if rep, err := j.drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	return j
}

func (j *judged) samples() map[string]sample {
	return samples(
		reference.Packet{SrcMAC: j.a.MAC, DstMAC: j.b.MAC, Src: j.a.IPv4, Dst: j.b.IPv4},
		reference.Packet{SrcMAC: j.a.MAC, DstMAC: j.b.MAC, Src: j.a.IPv6, Dst: j.b.IPv6})
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

// forget makes the programs forget all connections, on the fast path too, and fragments.
func (j *judged) forget(t testing.TB) {
	t.Helper()
	j.rig.drv.mu.Lock()
	epoch := j.rig.drv.dp.settings.newGeneration()
	j.rig.drv.mu.Unlock()
	err := errors.Join(epoch,
		j.rig.drv.dp.conns.sweep(func(connKey, conn) bool { return true }),
		sweepMap(j.rig.drv.dp.conntrack.frags, 1, func(fragKey, frag) bool { return true }))
	if err != nil {
		t.Fatal(err)
	}
}

// acquaint forgets, and makes the programs know a connection of TCP and one of
// UDP from a to b, both of IPv4 on the fast path, and one of IPv6.
func (j *judged) acquaint(t testing.TB) {
	t.Helper()
	j.forget(t)
	am, bm, a4, b4 := j.a.MAC, j.b.MAC, j.a.IPv4.As4(), j.b.IPv4.As4()
	there := func(flags byte) []byte {
		return ether(bm, am, 0x0800, header4(a4, b4, 6, 0, nil, tcp(4000, 80, flags)))
	}
	back := ether(am, bm, 0x0800, header4(b4, a4, 6, 0, nil, tcp(80, 4000, 18)))
	there6 := ether(bm, am, 0x86dd, header6(j.a.IPv6.As16(), j.b.IPv6.As16(), 6, tcp(4000, 80, 2)))
	ask := ether(bm, am, 0x0800, header4(a4, b4, 17, 0, nil, udp(4000, 5353)))
	answer := ether(am, bm, 0x0800, header4(b4, a4, 17, 0, nil, udp(5353, 4000)))
	for _, x := range []struct {
		from string
		f    []byte
	}{
		{j.a.IfName, there(2)},
		{j.b.IfName, back},
		{j.a.IfName, there(16)},
		{j.a.IfName, there(16)},
		{j.a.IfName, there6},
		{j.a.IfName, ask},
		{j.b.IfName, answer},
		{j.a.IfName, ask},
		{j.a.IfName, ask},
	} {
		if ret := j.from(t, x.from, x.f); len(ret) != 1 || ret[0] != redirected {
			t.Fatalf("%x: verdict %v", x.f, ret)
		}
	}
}

// related reports whether a frame of a's may pass because of what acquaint made
// known: an answer, an end, or an error about an answer.
func (j *judged) related(f []byte) bool {
	if len(f) < 34 || [6]byte(f[6:12]) != j.a.MAC || [6]byte(f[:6]) != j.b.MAC {
		return false
	}
	mine := netip.AddrFrom4([4]byte(f[26:30])) == j.a.IPv4
	if f[12] == 0x86 {
		if len(f) < 54 || f[20] != 6 && f[20] != 58 && f[20] != 44 && f[20] != 0 && f[20] != 60 && f[20] != 43 && f[20] != 51 {
			return false
		}
		return netip.AddrFrom16([16]byte(f[22:38])) == j.a.IPv6 // of which mayPass has said what it can
	}
	hl := int(f[14]&15) * 4
	if hl < 20 || len(f) < 14+hl+8 || !mine || sum16(f[14:14+hl]) != 0xffff || f[22] == 0 || f[20]&0x80 != 0 {
		return false
	}
	body := f[14+hl:]
	switch f[23] {
	case 6:
		n := int(binary.BigEndian.Uint16(f[16:])) - hl
		return len(body) >= 20 && n >= 20 && int(body[12]>>4)*4 <= n && body[12] >= 0x50 && goodFlags(body[13]) &&
			binary.BigEndian.Uint16(body) == 4000 && binary.BigEndian.Uint16(body[2:]) == 80
	case 1:
		return slices.Contains([]byte{3, 4, 5, 11, 12}, body[0])
	}
	return false
}

// try forgets and sends a frame from a.
func (j *judged) try(t testing.TB, f []byte) bool {
	t.Helper()
	j.forget(t)
	return j.send(t, f)
}

// send sends a frame from a, through
// the program alone or, where the kernel does not run it on such a frame, by
// the wire. It returns whether the frame went anywhere, and expects it to be
// counted as dropped otherwise.
func (j *judged) send(t testing.TB, f []byte) bool {
	t.Helper()
	before, ret := j.drops(t), uint32(0)
	var err error
	j.thread.do(func() {
		ctx := make([]byte, 192) // struct __sk_buff
		binary.NativeEndian.PutUint32(ctx[40:], uint32(j.rig.drv.dp.ports.indexes[j.a.IfName]))
		ret, err = testRun(j.rig.drv.dp.obj.FromContainer, f, ctx)
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
	// What says who hears multicast goes to the agent, and is no drop.
	told := j.waiting(t) || !passed && len(f) > 24 && f[0]&1 == 1 && (f[12] == 8 && f[13] == 0 && f[23] == 2 || f[12] == 0x86 && f[13] == 0xdd)
	if dropped := j.drops(t) - before; !passed && dropped != 1 && (!told || dropped != 0) || passed && dropped != 0 {
		t.Errorf("%x: verdict %d, counted as %d drops", f, ret, dropped)
	}
	return passed
}

// waiting reports whether fragments wait for the first one of their datagram, which are
// no drops.
func (j *judged) waiting(t testing.TB) (yes bool) {
	t.Helper()
	if err := eachEntry("frags", j.rig.drv.dp.obj.Frags, 1, func(_ fragKey, f frag) { yes = yes || f.Waits > 0 }); err != nil {
		t.Fatal(err)
	}
	return yes
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

// TestSamplePacketsGetTheirVerdicts sends every sample and expects exactly what it says; the reading
// that the fuzz target judges by agrees; and none of it, said to come from
// another host, which it does not, gets out of the tunnel.
func TestSamplePacketsGetTheirVerdicts(t *testing.T) {
	j := newJudged(t)
	for name, s := range j.samples() {
		if got := j.try(t, s.frame); got != s.passes {
			t.Errorf("%s (%x): passes: %v, want %v", name, s.frame, got, s.passes)
		}
		if s.frame[12] == 8 && s.frame[13] == 0 { // what may take the fast path
			j.acquaint(t)
			if got := j.send(t, s.frame); got != s.passes && (!got || !j.related(s.frame)) {
				t.Errorf("%s (%x), as part of what is known: passes: %v, want %v", name, s.frame, got, s.passes)
			}
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
		reference.Packet{SrcMAC: j.r.MAC, DstMAC: j.b.MAC, Src: j.r.IPv4, Dst: j.b.IPv4},
		reference.Packet{SrcMAC: j.r.MAC, DstMAC: j.b.MAC, Src: j.r.IPv6, Dst: j.b.IPv6})
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

// tunnelled returns what becomes of a frame out of the tunnel: the same whether a
// program takes it out of its tunnel packet or, since that is summed up, the VXLAN
// device.
func (j *judged) tunnelled(t testing.TB, f []byte) [][]byte {
	t.Helper()
	if len(f) < 14 {
		return nil
	}
	packet := conformance.VXLAN(j.underMAC, mac2, vtep2, vtep1, DefaultVXLANPort, 100, f)
	j.forget(t)
	out := j.wired(t, underlayWire, packet)
	j.forget(t)
	if device := j.wired(t, underlayWire, outerSummed(packet)); len(device) != len(out) {
		t.Errorf("%x: out of the tunnel it comes out as %x, by the VXLAN device as %x", f, out, device)
	}
	return out
}

// outerSummed gives a tunnel packet the UDP checksum that it may have.
func outerSummed(packet []byte) []byte {
	b := bytes.Clone(packet)
	u := b[34:]
	pseudo := slices.Concat(b[26:34], []byte{0, unix.IPPROTO_UDP}, u[4:6], u, make([]byte, len(u)%2))
	sum := ^sum16(pseudo)
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(u[6:], sum)
	return b
}

// TestCorpusMatchesTheSamples keeps the committed corpus in step with the samples.
func TestCorpusMatchesTheSamples(t *testing.T) {
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
			t.Errorf("%s is not what the sample is (%v); run go test -run TestCorpusMatchesTheSamples -update", path, err)
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
		j.acquaint(t)
		if j.send(t, frame) && !mayPass(frame, sender{j.a.MAC, j.a.IPv4, j.a.IPv6}, j.b.MAC) && !j.related(frame) {
			t.Errorf("%x went out by what was known", frame)
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
	return a == s.ip4 || a == s.ip6 || a == model.MAC(mac).LinkLocal()
}

// mayPass reports whether a frame, that no connection is known for, may pass at
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
		if hl < 20 || total < hl || total > len(body) || binary.BigEndian.Uint16(body[6:])&0x9fff != 0 || body[8] == 0 || sum16(body[:hl]) != 0xffff {
			return false
		}
		return from.is(netip.AddrFrom4([4]byte(body[12:16])), mac) && [6]byte(f[:6]) == to && allowed(body[9], body[hl:total], 1, int(^body[6]&0x20))
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
	if 40+length > len(body) || body[7] == 0 {
		return false
	}
	next, rest, whole := body[6], body[40:40+length], 1
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
			skip, whole = 8, int(^rest[3]&1)
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
	return from.is(src, mac) && [6]byte(f[:6]) == to && allowed(next, rest, 58, whole)
}

// goodFlags are the valid flags of a TCP segment.
func goodFlags(f byte) bool {
	switch f & 0x17 { // without PSH, URG and those of congestion
	case 2:
		return f&0x28 == 0
	case 4:
		return f&0x28 == 0
	case 16, 17, 18, 20:
		return true
	}
	return false
}

// allowed is the policy of b; whole is 0 for a fragment.
func allowed(proto byte, b []byte, ping byte, whole int) bool {
	switch proto {
	case 6:
		if len(b) < 20 || b[12] < 0x50 || int(b[12]>>4)*4 > len(b) || b[13]&4 != 0 || b[13]&18 == 18 || !goodFlags(b[13]) {
			return false
		}
		to := binary.BigEndian.Uint16(b[2:])
		return to == 80 || to >= 8000 && to < 8080
	case 17:
		if len(b) < 8 {
			return false
		}
		n := int(binary.BigEndian.Uint16(b[4:])) // in a fragment it is the whole datagram's
		return n >= 8 && (n <= len(b) || whole == 0) && binary.BigEndian.Uint16(b[2:]) == 5353
	case ping:
		return len(b) >= 8 && slices.Contains(map[byte][]byte{1: {8, 13, 15, 17}, 58: {128}}[ping], b[0])
	}
	return false
}
