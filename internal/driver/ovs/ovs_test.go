package ovs

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/driver/drivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance runs the conformance suite on a real switch with real frames, its tests
// side by side: most of their time they wait for the switch, and for interfaces to go.
func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		t.Helper()
		t.Parallel()
		return newRig(t).harness()
	})
}
