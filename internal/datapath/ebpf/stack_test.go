package ebpf

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// unpinned is the data plane without a pin directory.
func unpinned(t *testing.T) *ebpf.CollectionSpec {
	t.Helper()
	require(t)
	spec, err := loadDatapath()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	return spec
}

// TestStackDepthIsWithinTheKernelsLimit adds up the stack of every chain of calls as kernels before
// 6.8 do, in steps of 32 bytes: here they may fit, and be refused there.
func TestStackDepthIsWithinTheKernelsLimit(t *testing.T) {
	spec := unpinned(t)
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	for name, p := range all.Programs {
		depths := regexp.MustCompile(`stack depth ([0-9+]+)`).FindStringSubmatch(p.VerifierLog)
		if depths == nil {
			t.Fatalf("%s: the verifier does not tell the stack's depth:\n%s", name, p.VerifierLog)
		}
		frames, calls, at := map[string]int{}, map[string][]string{}, ""
		sizes := strings.Split(depths[1], "+")
		for _, ins := range spec.Programs[name].Instructions {
			if s := ins.Symbol(); s != "" {
				at = s
				n, err := strconv.Atoi(sizes[len(frames)])
				if err != nil {
					t.Fatal(err)
				}
				frames[s] = (max(n, 1) + 31) / 32 * 32
			}
			if ins.IsFunctionReference() {
				calls[at] = append(calls[at], ins.Reference())
			}
		}
		if len(frames) != len(sizes) {
			t.Fatalf("%s: %d functions, %d frames", name, len(frames), len(sizes))
		}
		if chain, depth := deepest(name, frames, calls); depth > 512 {
			t.Errorf("%s: the calls %s take %d bytes of stack, of 512", name, strings.Join(chain, " > "), depth)
		} else {
			t.Logf("%s: %d bytes by %s; the verifier %s instructions", name, depth, strings.Join(chain, " > "), regexp.MustCompile(`processed \d+`).FindString(p.VerifierLog))
		}
	}
}

// TestMapKeysAndValuesLieInTheCallersMemory looks for what Linux 6.1 refuses and this kernel may
// not: a map's key or value in memory that a global function was given by pointer. It looks at
// the program that has all of them.
func TestMapKeysAndValuesLieInTheCallersMemory(t *testing.T) {
	spec := unpinned(t)
	const name = "from_container"
	spec.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelInstruction, LogSizeStart: 64 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	argument := regexp.MustCompile(`\bR([23])(?:_w)?=([a-z_]+)`)
	at, calls := map[string]string{}, 0
	for line := range strings.Lines(all.Programs[name].VerifierLog) {
		lookup, update := strings.Contains(line, "call bpf_map_lookup_elem#") || strings.Contains(line, "call bpf_map_delete_elem#"), strings.Contains(line, "call bpf_map_update_elem#")
		if lookup || update {
			if calls++; at["2"] == "mem" || update && at["3"] == "mem" {
				t.Error(line)
			}
		}
		for _, m := range argument.FindAllStringSubmatch(line, -1) {
			at[m[1]] = m[2]
		}
	}
	if calls == 0 {
		t.Error("no use of a map is seen in what the verifier tells")
	}
}

func deepest(fn string, frames map[string]int, calls map[string][]string) (chain []string, depth int) {
	for _, next := range calls[fn] {
		if c, d := deepest(next, frames, calls); d > depth {
			chain, depth = c, d
		}
	}
	return slices.Concat([]string{fn}, chain), depth + frames[fn]
}
