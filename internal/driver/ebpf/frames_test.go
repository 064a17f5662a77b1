package ebpf

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/driver/drivertest"
	"github.com/contiv/netplugin/v2/internal/oracle"
)

// frames is drivertest.Harness.Frames.
func (r *rig) frames(t testing.TB, from []oracle.Packet, frames [][]byte, done func(map[string][][]byte) bool) map[string][][]byte {
	t.Helper()
	return drivertest.SendFrames(t, func(i int) {
		near, f := from[i].Port, frames[i]
		switch {
		case from[i].Uplink:
			near, f = uplinkWire, drivertest.Tagged(f, from[i].VLAN)
		case from[i].VTEP.IsValid():
			near, f = underlayWire, drivertest.VXLAN(r.underMAC, mac2, from[i].VTEP, vtep1, DefaultVXLANPort, r.networks[from[i].Network], f)
		}
		if err := r.wires[near].send(f); err != nil {
			t.Error(err)
		}
	}, func() map[string][][]byte {
		return drivertest.Came(r.wires, uplinkWire, (*wire).receive)
	}, len(frames), done)
}
