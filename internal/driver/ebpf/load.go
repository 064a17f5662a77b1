package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

var errNoSpace = unix.E2BIG // what the kernel says of a full map

// requirement is a kernel feature without which the driver does not work.
type requirement struct {
	what, since string
	probe       func() error
}

func mapType(t ebpf.MapType) func() error { return func() error { return features.HaveMapType(t) } }

var requirements = []requirement{
	{"TC programs", "4.1", func() error { return features.HaveProgramType(ebpf.SchedCLS) }},
	{"longest-prefix-match maps", "4.11", mapType(ebpf.LPMTrie)},
	{"LRU hash maps", "4.10", mapType(ebpf.LRUHash)},
	{"delivery into a namespace (bpf_redirect_peer)", "5.10", helper(helperRedirectPeer)},
	{"loops (bpf_loop)", "5.17", helper(helperLoop)},
	{"the coarse clock (bpf_ktime_get_coarse_ns)", "5.11", helper(helperCoarseClock)},
}

// Probe tells whether this kernel can run the driver. The error, of kind
// model.ErrInvalid and wrapping ebpf.ErrNotSupported, names what is missing and
// the first kernel that has it.
func Probe() error {
	for _, r := range requirements {
		err := r.probe()
		if errors.Is(err, ebpf.ErrNotSupported) {
			return model.Errorf(model.ErrInvalid, "ebpf driver: this kernel has no %s, which Linux %s and later have: %w", r.what, r.since, err)
		}
		if err != nil {
			return fmt.Errorf("ebpf driver: probe %s: %w", r.what, err)
		}
	}
	return nil
}

const bpfMagic = 0xcafe4a11

// pinDirectory makes sure of the directory, on a BPF file system; the standard
// place is mounted when nobody has.
func pinDirectory(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		var st unix.Statfs_t
		err := unix.Statfs(at, &st)
		if err == nil && uint32(st.Type) == bpfMagic {
			break
		}
		if err == nil && at == standardMount {
			if err := unix.Mount("bpf", standardMount, "bpf", 0, ""); err != nil {
				return fmt.Errorf("ebpf driver: mount the BPF file system at %s: %w", standardMount, err)
			}
			break
		}
		if at == filepath.Dir(at) {
			return model.Errorf(model.ErrInvalid, "ebpf driver: pin directory %s is not on a BPF file system; mount one there, or take one below %s", dir, standardMount)
		}
	}
	for _, d := range []string{dir, filepath.Join(dir, "links"), filepath.Join(dir, "maps")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("ebpf driver: pin directory: %w", err)
		}
	}
	return nil
}

// objects are the loaded programs and the maps.
type objects struct {
	datapathObjects
}

// loadObjects loads the programs onto the pinned maps. Maps of another layout,
// or other things in their place, are replaced: nothing else may be in there.
func loadObjects(dir string, conns uint32) (*objects, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("ebpf driver: lift the memory limit: %w", err)
	}
	spec, err := loadDatapath()
	if err != nil {
		return nil, fmt.Errorf("ebpf driver: %w", err)
	}
	if conns != 0 {
		spec.Maps["conns"].MaxEntries = conns
	}
	at := filepath.Join(dir, "maps")
	for name, m := range spec.Maps {
		if m.Pinning != ebpf.PinByName {
			continue
		}
		path := filepath.Join(at, name)
		old, err := ebpf.LoadPinnedMap(path, nil)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil, m.Compatible(old) != nil:
			if err := os.RemoveAll(path); err != nil {
				return nil, fmt.Errorf("ebpf driver: remove %s: %w", path, err)
			}
		}
		if old != nil {
			_ = old.Close()
		}
	}
	var o objects
	err = spec.LoadAndAssign(&o.datapathObjects, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: at}})
	if err != nil {
		return nil, fmt.Errorf("ebpf driver: load: %w", err)
	}
	return &o, nil
}
