package ovs

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
)

// frames is Harness.Frames.
func (r *rig) frames(t testing.TB, from []reference.Packet, frames [][]byte, done func(map[string][][]byte) bool) map[string][][]byte {
	t.Helper()
	return conformance.SendFrames(t, func(i int) {
		near, f := r.entry(from[i], frames[i])
		if err := r.wires[near].send(f); err != nil {
			t.Fatal(err)
		}
	}, func() map[string][][]byte {
		return conformance.Received(r.wires, uplinkWire, (*wire).receive)
	}, len(frames), done)
}
