package ebpf

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestKnownConnectionIsTakenFromItsHostOnly sends packets of a known connection, which
// take the fast path, in tunnel packets of other hosts: of one on the same link, of one
// beyond a router, and where no program is on the underlay's interface.
func TestKnownConnectionIsTakenFromItsHostOnly(t *testing.T) {
	for _, attach := range []string{attachTCX, attachClsact} {
		t.Run(attach, func(t *testing.T) {
			if attach == attachTCX && !haveTCXHere(t) {
				t.Skip("TCX came with Linux 6.6")
			}
			r, _, pic := driftRig(t, attach)
			a, _ := pic.Ports.Get("cvna")
			there := reference.Packet{
				Port: a.IfName, SrcMAC: a.MAC, DstMAC: model.MAC{2, 5, 0, 0, 0, 3}, Src: a.IPv4, Dst: netip.MustParseAddr("10.9.0.3"),
				Proto: model.ProtoUDP, SrcPort: 5000, DstPort: 5000,
			}
			back := reference.Packet{
				VTEP: vtep2, Network: 1, SrcMAC: there.DstMAC, DstMAC: a.MAC, Src: there.Dst, Dst: a.IPv4,
				Proto: model.ProtoUDP, SrcPort: 5000, DstPort: 5000,
			}
			for range 4 {
				if got := r.inject(t, there); len(got.VTEPs) != 1 {
					t.Fatalf("to the other host: %v", got)
				}
				if got := r.inject(t, back); len(got.Ports) != 1 {
					t.Fatalf("from its host: %v", got)
				}
			}
			for _, from := range []string{"192.168.7.77", "192.168.99.9"} {
				forged := back
				forged.VTEP = netip.MustParseAddr(from)
				if got := r.inject(t, forged); got.Passed() {
					t.Errorf("from %s: %v, want it dropped", from, got)
				}
			}
			if got := r.inject(t, back); len(got.Ports) != 1 {
				t.Errorf("from its host, afterwards: %v", got)
			}
		})
	}
}
