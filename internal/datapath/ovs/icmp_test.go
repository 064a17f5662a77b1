package ovs

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestReceiversAcceptOurAdvertisements: the answer to a question for the router's link address, solicited
// and to who looks for a duplicate, is one that a receiver takes.
func TestReceiversAcceptOurAdvertisements(t *testing.T) {
	target, asker := desired.RouterMAC.LinkLocal(), netip.MustParseAddr("fd00::2")
	group, mac := reference.SolicitedNode(target)
	for src, dst := range map[netip.Addr]netip.Addr{asker: asker, netip.IPv6Unspecified(): netip.IPv6LinkLocalAllNodes()} {
		ask := reference.Packet{
			SrcMAC: model.MAC{2, 2, 0, 0, 0, 2}, DstMAC: mac, Src: src, Dst: group, Proto: model.ProtoICMPv6,
			ICMPType: reference.NDNeighborSolicit, ND: &reference.ND{Target: target},
		}
		f := advertise(conformance.Frame(ask))
		p := conformance.ReadAnswer(f)
		if p == nil || p.SrcMAC != desired.RouterMAC || p.DstMAC != ask.SrcMAC || p.Src != target || p.Dst != dst ||
			p.ND.Target != target || p.ND.LinkAddr != desired.RouterMAC || f[21] != 255 || (f[58]&0x40 != 0) != (src == asker) {
			t.Errorf("asked by %s: %x is %+v", src, f, p)
		}
	}
}

// FuzzAnswers feeds foreign frames to what answers them: an answer is a whole packet, from whom
// it should be to who sent the frame, and is not answered itself.
func FuzzAnswers(f *testing.F) {
	n := &desired.Network{ID: 7, Joined: 1, Subnet: netip.MustParsePrefix("10.9.0.0/24"), Subnet6: netip.MustParsePrefix("fd09::/64")}
	for _, a := range [][2]string{{"10.9.0.1", "10.9.1.1"}, {"fd09::1", "fd09:1::1"}} {
		p := reference.Packet{Src: netip.MustParseAddr(a[0]), Dst: netip.MustParseAddr(a[1]), Proto: model.ProtoUDP, SrcPort: 1, DstPort: 2}
		if routerError(n, pipeline.Refusal{}, 0, conformance.Frame(p)) == nil {
			f.Errorf("no answer to %+v", p)
		}
		f.Add(conformance.Frame(p))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var asked driver.FlowEvent
		readFrame(b, &asked)
		refusal := pipeline.Refusal{V4: [2]uint8{3, 1}, V6: [2]uint8{1, 3}}
		for _, refusal.TooBig = range []bool{false, true} {
			got := routerError(n, refusal, 1450, b)
			if got == nil {
				continue
			}
			var said driver.FlowEvent
			readFrame(got, &said)
			from, six := n.Router(), said.Src.Is6()
			if six {
				from = n.Router6()
			}
			if refusal.TooBig {
				from = asked.Dst
			}
			if said.Src != from || said.Dst != asked.Src || said.DstMAC != asked.SrcMAC || said.SrcMAC != desired.RouterMAC ||
				said.ICMPType != map[bool]uint8{false: 3, true: 1}[six] || len(got) > ethernetLen+maxError6 || !six && len(got) > ethernetLen+maxError4 {
				t.Errorf("%x is answered by %x", b, got)
			}
			if h, whole := headersOf(got); !whole || !wellFormed(got, h) {
				t.Errorf("%x is answered by %x, which is damaged", b, got)
			}
			if again := routerError(n, refusal, 1450, got); again != nil {
				t.Errorf("%x is answered by %x, and that by %x", b, got, again)
			}
		}
		if got := advertise(b); got != nil {
			if h, whole := headersOf(got); !whole || !wellFormed(got, h) || model.MAC(got[:6]) != model.MAC(b[6:12]) {
				t.Errorf("%x is answered by %x", b, got)
			}
		}
	})
}
