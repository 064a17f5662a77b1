package ovs

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver/drivertest"
	"github.com/contiv/netplugin/v2/internal/driver/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/oracle"
)

// TestAdvertise: the answer to a question for the router's link address, solicited
// and to who looks for a duplicate, is one that a receiver takes.
func TestAdvertise(t *testing.T) {
	target, asker := desired.RouterMAC.LinkLocal(), netip.MustParseAddr("fd00::2")
	group, mac := oracle.SolicitedNode(target)
	for src, dst := range map[netip.Addr]netip.Addr{asker: asker, netip.IPv6Unspecified(): netip.IPv6LinkLocalAllNodes()} {
		ask := oracle.Packet{
			SrcMAC: model.MAC{2, 2, 0, 0, 0, 2}, DstMAC: mac, Src: src, Dst: group, Proto: model.ProtoICMPv6,
			ICMPType: oracle.NDNeighborSolicit, ND: &oracle.ND{Target: target},
		}
		f := advertise(drivertest.Frame(ask))
		p := drivertest.ReadAnswer(f)
		if p == nil || p.SrcMAC != desired.RouterMAC || p.DstMAC != ask.SrcMAC || p.Src != target || p.Dst != dst ||
			p.ND.Target != target || p.ND.LinkAddr != desired.RouterMAC || f[21] != 255 || (f[58]&0x40 != 0) != (src == asker) {
			t.Errorf("asked by %s: %x is %+v", src, f, p)
		}
	}
}

// FuzzAnswers feeds foreign frames to what answers them: it must not panic, and
// answers nothing but whole packets of the network.
func FuzzAnswers(f *testing.F) {
	n := &desired.Network{ID: 7, Joined: 1, Subnet: netip.MustParsePrefix("10.9.0.0/24"), Subnet6: netip.MustParsePrefix("fd09::/64")}
	for _, a := range [][2]string{{"10.9.0.1", "10.9.1.1"}, {"fd09::1", "fd09:1::1"}} {
		p := oracle.Packet{Src: netip.MustParseAddr(a[0]), Dst: netip.MustParseAddr(a[1]), Proto: model.ProtoUDP, SrcPort: 1, DstPort: 2}
		if refuse(n, pipeline.Refusal{}, 0, drivertest.Frame(p)) == nil {
			f.Errorf("no answer to %+v", p)
		}
		f.Add(drivertest.Frame(p))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		advertise(b)
		refusal := pipeline.Refusal{V4: [2]uint8{3, 1}, V6: [2]uint8{1, 3}}
		if got := refuse(n, refusal, 0, b); got != nil && (len(got) < ethernetLen+ipv4Len+icmpLen || len(got) > ethernetLen+maxError6) {
			t.Errorf("%x is answered by %x", b, got)
		}
	})
}
