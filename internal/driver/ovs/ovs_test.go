package ovs

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/driver/drivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance runs the conformance suite on a real switch with real frames.
func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		t.Helper()
		return newRig(t).harness()
	})
}
