package ebpf

import (
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// BenchmarkStart measures how long netplugin waits for its data plane when it
// starts again on a host that has one.
func BenchmarkStart(b *testing.B) {
	r := newRig(b)
	r.sizes = map[string]uint32{"conns": 16384} // so that it is lent no programs
	for b.Loop() {
		drv := r.open(b)
		if err := drv.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestRefusedProgramsAreNamed has the kernel refuse two of the programs: both are
// named, and what was loaded besides is closed.
func TestRefusedProgramsAreNamed(t *testing.T) {
	spec := unpinned(t)
	before := openObjects(t)
	for _, name := range []string{"from_host", "from_uplink"} {
		spec.Programs[name].Instructions = asm.Instructions{asm.Return()} // without a result
	}
	all, err := loadAll(spec, "")
	if err == nil {
		all.Close()
		t.Fatal("programs without a result were loaded")
	}
	for _, name := range []string{"from_host", "from_uplink"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("not told of %s: %v", name, err)
		}
	}
	if after := openObjects(t); after != before {
		t.Errorf("%d maps and programs open before, %d after", before, after)
	}
}

// openObjects counts what this process holds open of the kernel's BPF objects.
func openObjects(t *testing.T) (n int) {
	t.Helper()
	const dir = "/proc/self/fd/"
	fds, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, err := os.Readlink(dir + fd.Name())
		if err == nil && (strings.HasPrefix(to, "anon_inode:bpf-map") || strings.HasPrefix(to, "anon_inode:bpf-prog")) {
			n++
		}
	}
	return n
}
