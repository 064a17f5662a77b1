package ebpf

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestTranslationKeepsDamage: whatever is done to a packet for a service, what comes out is
// the backend's, or an answer to who sent it, and as whole as it was: no checksum that
// was right becomes wrong.
func TestTranslationKeepsDamage(t *testing.T) {
	j := newJudged(t)
	pic := j.rig.drv.dp.applied.host
	n, _ := pic.Networks.Get(j.a.Network)
	with := *n
	with.Subnet, with.Subnet6 = netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("fd00:9::/64")
	pic.Networks = pic.Networks.Set(n.ID, &with)
	vips := [2]netip.Addr{netip.MustParseAddr("10.9.0.200"), netip.MustParseAddr("fd00:9::200")}
	s := desired.Service{
		Key: model.ServiceKey{Tenant: "t", Name: "s"}, Network: n.ID, IPv4: vips[0], IPv6: vips[1],
		Ports: []desired.ServicePort{
			{Protocol: model.ProtoTCP, Port: 8, Backend: 80}, {Protocol: model.ProtoUDP, Port: 9, Backend: 5353}, {Protocol: model.ProtoSCTP, Port: 10, Backend: 80},
		},
	}
	s.Backends = s.Backends.Set(model.EndpointKey{Network: model.NetworkKey{Tenant: "t", Name: "n"}, ID: "r"},
		&desired.Backend{Network: n.ID, IPv4: j.r.IPv4, IPv6: j.r.IPv6, Identity: j.r.Identity, VTEP: vtep2})
	pic.Services = pic.Services.Set(s.Key, &s)
	if rep, err := j.drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	send := func(f []byte) (ret uint32, out []byte) {
		t.Helper()
		ctx := make([]byte, 192) // struct __sk_buff
		out = make([]byte, 4096)
		j.thread.do(func() {
			binary.NativeEndian.PutUint32(ctx[40:], uint32(j.rig.drv.dp.ports.indexes[j.a.IfName]))
			o := &ebpf.RunOptions{Data: f, DataOut: out, Context: ctx}
			var err error
			if ret, err = j.rig.drv.dp.obj.FromContainer.Run(o); err != nil {
				t.Errorf("run: %v", err)
			}
			out = o.DataOut
		})
		return ret, out
	}
	var frames [][]byte
	for i, vip := range vips {
		src, icmp := j.a.IPv4, reference.Packet{Proto: model.ProtoICMP, ICMPType: 3, ICMPCode: 4}
		if i == 1 {
			src, icmp = j.a.IPv6, reference.Packet{Proto: model.ProtoICMPv6, ICMPType: 1, ICMPCode: 4}
		}
		base := reference.Packet{SrcMAC: j.a.MAC, DstMAC: desired.RouterMAC, Src: src, Dst: vip, SrcPort: 4000, TCPFlags: reference.FlagSYN}
		for _, x := range []struct {
			proto model.Protocol
			port  uint16
		}{{model.ProtoTCP, 8}, {model.ProtoTCP, 81}, {model.ProtoUDP, 9}, {model.ProtoUDP, 91}, {model.ProtoSCTP, 10}} {
			p := base
			p.Proto, p.DstPort = x.proto, x.port
			frames = append(frames, conformance.Frame(p))
		}
		first := base
		first.Proto, first.DstPort, first.Frag = model.ProtoUDP, 9, &reference.Fragment{ID: 77, More: true}
		last := first
		last.SrcPort, last.DstPort, last.Frag = 0, 0, &reference.Fragment{ID: 77, Offset: 1400}
		icmp.SrcMAC, icmp.DstMAC, icmp.Src, icmp.Dst = base.SrcMAC, base.DstMAC, src, vip
		icmp.Inner = &reference.Packet{Src: vip, Dst: src, Proto: model.ProtoUDP, SrcPort: 9, DstPort: 4000}
		frames = append(frames, conformance.Frame(first), conformance.Frame(last), conformance.Frame(icmp))
	}
	translated, answered, runs := 0, 0, 0
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 1500 {
		for _, f := range frames {
			g := bytes.Clone(f)
			if round > 0 {
				for range 1 + rnd.IntN(3) {
					g[12+rnd.IntN(len(g)-12)] = byte(rnd.Uint32())
				}
			}
			in, inErr := conformance.ReadPacket(g)
			ret, out := send(g)
			runs++
			if ret != redirected || in == nil || in.Dst != vips[0] && in.Dst != vips[1] {
				continue
			}
			if _, _, inner, tunnelled := conformance.Unwrap(out, DefaultVXLANPort); tunnelled { // by the fast path
				out = inner
			}
			got, err := conformance.ReadPacket(out)
			switch {
			case inErr != nil: // it was damaged before
			case err != nil || got == nil:
				t.Errorf("%x became %x: %v", g, out, err)
			case got.DstMAC == j.a.MAC && got.Src == in.Dst && got.Dst == in.Src:
				answered++
			case got.DstMAC != j.r.MAC || got.SrcMAC != j.a.MAC || got.Src != in.Src || got.Dst != j.r.IPv4 && got.Dst != j.r.IPv6:
				t.Errorf("%x became %x", g, out)
			default:
				translated++
			}
		}
	}
	if translated < len(frames) || answered < 4 {
		t.Errorf("of %d packets %d were translated and %d answered", runs, translated, answered)
	}
	t.Logf("%d packets, %d of them whole and translated, %d whole and answered", runs, translated, answered)
}
