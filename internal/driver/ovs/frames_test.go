package ovs

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/driver/drivertest"
	"github.com/contiv/netplugin/v2/internal/oracle"
)

// frames is Harness.Frames.
func (r *rig) frames(t testing.TB, from []oracle.Packet, frames [][]byte, done func(map[string][][]byte) bool) map[string][][]byte {
	t.Helper()
	return drivertest.SendFrames(t, func(i int) {
		near, f := r.entry(from[i], frames[i])
		if err := r.wires[near].send(f); err != nil {
			t.Fatal(err)
		}
	}, func() map[string][][]byte {
		return drivertest.Came(r.wires, uplinkWire, (*wire).receive)
	}, len(frames), done)
}
