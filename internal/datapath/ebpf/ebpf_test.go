package ebpf

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance runs the conformance suite on the kernel with real frames, its tests
// side by side: most of their time they wait for interfaces to come and go.
func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		t.Helper()
		t.Parallel()
		return newRig(t).harness()
	})
}

// TestConformanceClsact runs what attaching may change with programs attached as
// kernels before 6.6 do; on these, TestConformance runs the whole suite so.
func TestConformanceClsact(t *testing.T) {
	conformance.RunAttached(t, 0, 2, func(t *testing.T) conformance.Harness {
		t.Helper()
		t.Parallel()
		r := newRig(t)
		r.attach = attachClsact
		return r.harness()
	})
}

// TestConformanceLasting runs that with ports that have stood for long.
func TestConformanceLasting(t *testing.T) {
	if !bpfattach.HaveTCX(alien(t, tcNext)) {
		t.Skip("TCX came with Linux 6.6")
	}
	conformance.RunAttached(t, 1, 2, func(t *testing.T) conformance.Harness {
		t.Helper()
		t.Parallel()
		r := newRig(t)
		r.lasting = true
		return r.harness()
	})
}
