package ebpf

import (
	"errors"
	"os"
	"strings"
	"sync"
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

// TestProbeLeavesNoThread: the process's first thread, by whose network namespace
// others know the process, is in its own again whichever thread a probe took.
func TestProbeLeavesNoThread(t *testing.T) {
	require(t)
	const self = "/proc/self/ns/net"
	own, err := os.Readlink(self)
	if err != nil {
		t.Fatal(err)
	}
	// All of the process's threads at once, the first among them.
	var probes sync.WaitGroup
	var inside sync.WaitGroup
	const threads = 100
	inside.Add(threads)
	for range threads {
		probes.Go(func() {
			if err := inNamespace(func() error {
				inside.Done()
				inside.Wait()
				in, err := os.Readlink("/proc/thread-self/ns/net")
				if err == nil && in == own {
					err = errors.New("not in a namespace of its own")
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	probes.Wait()
	if now, err := os.Readlink(self); err != nil || now != own {
		t.Errorf("the process is in %s, and was in %s: %v", now, own, err)
	}
}
