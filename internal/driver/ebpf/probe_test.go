package ebpf

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestProbeNamesWhatIsMissing gives the probe a helper that no kernel has, and
// map types and programs that all have.
func TestProbeNamesWhatIsMissing(t *testing.T) {
	require(t)
	if err := Probe(); err != nil {
		t.Fatal(err)
	}
	all := append([]requirement{}, requirements...)
	for i, r := range all {
		if r.since == "5.17" {
			all[i].probe = helper(asm.BuiltinFunc(100_000))
		}
	}
	err := probe(all)
	if !errors.Is(err, model.ErrInvalid) || !errors.Is(err, ebpf.ErrNotSupported) {
		t.Fatalf("probe() = %v, want kind %v and %v", err, model.ErrInvalid, ebpf.ErrNotSupported)
	}
	if want := "this kernel lacks loops (bpf_loop), which Linux 5.17 and later have"; !strings.Contains(err.Error(), want) {
		t.Errorf("probe() = %q, want %q in it", err, want)
	}
}

// TestProbeOfKernelWithoutModules runs where tools/test-kernel.sh has booted a
// kernel and not loaded the modules that CONTIV_WITHOUT names.
func TestProbeOfKernelWithoutModules(t *testing.T) {
	without := os.Getenv("CONTIV_WITHOUT")
	if without == "" {
		t.Skip("make test-kernel runs this, on a kernel without modules")
	}
	err := Probe()
	if !errors.Is(err, model.ErrInvalid) || !errors.Is(err, ebpf.ErrNotSupported) {
		t.Fatalf("Probe() = %v, want kind %v and %v", err, model.ErrInvalid, ebpf.ErrNotSupported)
	}
	t.Log(err)
	for _, want := range []string{"module " + without, "and later have"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Probe() = %q, want %q in it", err, want)
		}
	}
}
