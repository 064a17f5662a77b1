package ovs

import (
	"context"
	"fmt"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestMutationsAreNoticed seeds faults into the pipeline: for each of them, one of the
// generated policies must have another outcome than the reference's. It is the proof that
// the matrix would catch them; that with none no policy has, TestConformance shows.
func TestMutationsAreNoticed(t *testing.T) {
	for m := pipeline.NoMutation + 1; m < pipeline.NumMutations; m++ {
		t.Run(fmt.Sprint("mutation ", m), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.mutation = m
			if !r.wrong(t) {
				t.Error("no packet differs from the reference's verdict")
			}
		})
	}
}

// wrong sends requests and answers among the endpoints of blue's VXLAN network under the
// generated policies until the fate of one differs from the reference's.
func (r *rig) wrong(t *testing.T) bool {
	t.Helper()
	h := r.harness()
	d := h.Open(t)
	defer d.Close()
	top := conformance.StandardTopology()
	w, err := conformance.NewWorld(top, conformance.Case{})
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range w.Desired["h1"].Ports.All() {
		r.addWire(t, name, p.MAC)
	}
	ref := reference.New()
	sport := uint16(40000)
	for _, c := range conformance.Cases(top) {
		if err := w.Switch(c); err != nil {
			t.Fatal(err)
		}
		pic := w.Desired["h1"]
		if _, err := d.Apply(context.Background(), pic); err != nil {
			t.Fatal(err)
		}
		if _, err := ref.Apply(context.Background(), pic); err != nil {
			t.Fatal(err)
		}
		for _, p := range conformance.Probes(top) {
			from, to := top.Endpoint(p.From), top.Endpoint(p.To)
			if from.Host != "h1" || to.Host != "h1" || p.From.Network.Tenant != "blue" || p.IPv6 {
				continue
			}
			sport++
			there := reference.Packet{
				Port: compile.IfName(p.From), SrcMAC: from.MAC, DstMAC: to.MAC, Src: from.IPv4, Dst: to.IPv4, Proto: p.Proto,
			}
			if there.Proto == model.ProtoICMP {
				there.ICMPType, there.ICMPID = 8, sport
			} else {
				there.SrcPort, there.DstPort, there.TCPFlags = sport, p.Port, reference.FlagSYN
			}
			back := there
			back.Port, back.SrcMAC, back.DstMAC, back.Src, back.Dst = compile.IfName(p.To), to.MAC, from.MAC, to.IPv4, from.IPv4
			back.SrcPort, back.DstPort, back.ICMPType, back.TCPFlags = there.DstPort, there.SrcPort, 0, reference.FlagSYN|reference.FlagACK
			for _, x := range []reference.Packet{there, back} {
				if ref.Send(x).Passed() != r.inject(t, x).Passed() {
					return true
				}
			}
		}
	}
	return false
}
