package ebpf

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
)

// frames is conformance.Harness.Frames.
func (r *rig) frames(t testing.TB, from []reference.Packet, frames [][]byte, done func(map[string][][]byte) bool) map[string][][]byte {
	t.Helper()
	return conformance.SendFrames(t, func(i int) {
		near, f := from[i].Port, frames[i]
		switch {
		case from[i].Uplink:
			near, f = uplinkWire, conformance.Tagged(f, from[i].VLAN)
		case from[i].VTEP.IsValid():
			near, f = underlayWire, conformance.VXLAN(r.underMAC, mac2, from[i].VTEP, vtep1, DefaultVXLANPort, r.networks[from[i].Network], f)
		}
		if err := r.wires[near].send(f); err != nil {
			t.Error(err)
		}
	}, func() map[string][][]byte {
		return conformance.Received(r.wires, uplinkWire, (*wire).receive)
	}, len(frames), done)
}
