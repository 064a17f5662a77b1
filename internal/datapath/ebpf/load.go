package ebpf

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/model"
)

// isFull recognises what the kernel says of a full map: hashes and tries differ.
func isFull(err error) bool { return errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) }

// format is what pins and the packets between hosts are made like: raised when
// an older netplugin could not work with them. A directory beside the pins, whose
// name ends with the number, tells it, since a BPF file system has no plain
// files; without one it is 1.
const (
	format    = 1
	formatDir = "format-"
)

// checkFormat refuses pins of a newer format; those of older ones are taken over.
func checkFormat(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("ebpf driver: pin directory: %w", err)
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), formatDir)
		if n, err := strconv.Atoi(number); ok && err == nil && n > format {
			return model.Errorf(model.ErrConflict,
				"ebpf driver: what is pinned in %s is of format %d, made by a newer netplugin, and this one knows up to %d: start the newer one again, or end all containers and take it off this host with its --uninstall",
				dir, n, format)
		}
	}
	return nil
}

// pinDirectory makes sure of the directory, on a BPF file system; it mounts the standard
// place if needed.
func pinDirectory(dir string) error {
	if err := bpfattach.OnBPFFS(dir); err != nil {
		return fmt.Errorf("ebpf driver: %w", err)
	}
	if err := checkFormat(dir); err != nil {
		return err
	}
	for _, d := range []string{dir, filepath.Join(dir, "links"), filepath.Join(dir, "maps"), filepath.Join(dir, programsDir), filepath.Join(dir, formatDir+strconv.Itoa(format))} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("ebpf driver: pin directory: %w", err)
		}
	}
	return nil
}

// objects are the loaded programs and the maps.
type objects struct {
	datapathObjects                      // without its variables, if the programs are reused
	pinned          map[string]*ebpf.Map // maps in the directory of maps, by name
	reusable        map[string]pinned    // programs, and maps that belong to them, by pin
}

// loadObjects returns the programs that an earlier process pinned, if they are what
// would be loaded, and loads programs otherwise.
func loadObjects(dir string, sizes map[string]uint32) (*objects, error) {
	if err := CheckSizes(sizes); err != nil {
		return nil, err
	}
	scale, err := scaleOf(sizes)
	if err != nil {
		return nil, err
	}
	if o := reuseObjects(dir, scale); o != nil {
		return o, nil
	}
	return loadNew(dir, scale)
}

// loadNew loads the programs onto the pinned maps. Maps of another layout,
// or other things in their place, are replaced: nothing else may be in there.
// A map that has only changed its size keeps what it holds.
func loadNew(dir string, scale scale) (*objects, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("ebpf driver: lift the memory limit: %w", err)
	}
	spec, err := loadDatapath()
	if err != nil {
		return nil, fmt.Errorf("ebpf driver: %w", err)
	}
	if err := resize(spec, scale); err != nil {
		return nil, err
	}
	at := filepath.Join(dir, "maps")
	if err := removeOthers(spec, at); err != nil {
		return nil, fmt.Errorf("ebpf driver: %w", err)
	}
	whole := true
	for name, m := range spec.Maps {
		if m.Pinning != ebpf.PinByName {
			continue
		}
		kept, err := replaceStalePin(m, filepath.Join(at, name))
		if err != nil {
			return nil, fmt.Errorf("ebpf driver: %w", err)
		}
		whole = whole && (kept || !slices.Contains(policyMaps, name))
	}
	for _, name := range policyMaps {
		if whole {
			break
		}
		if err := os.RemoveAll(filepath.Join(at, name)); err != nil {
			return nil, fmt.Errorf("ebpf driver: %w", err)
		}
	}
	var o objects
	all, err := loadAll(spec, at)
	if err != nil {
		return nil, fmt.Errorf("ebpf driver: load: %w", err)
	}
	defer all.Close() // what is not assigned
	sections := maps.Clone(all.Maps)
	maps.DeleteFunc(sections, func(name string, _ *ebpf.Map) bool { return !isSection(name) })
	if err := all.Assign(&o.datapathObjects); err != nil {
		return nil, fmt.Errorf("ebpf driver: load: %w", err)
	}
	o.pinned = map[string]*ebpf.Map{}
	for name, m := range fieldsOf[*ebpf.Map](&o.datapathMaps) {
		if (*m).IsPinned() {
			o.pinned[name] = *m
		}
	}
	if err := o.pinReusable(dir, scale, sections); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return &o, nil
}

// loadAll makes the maps, and then loads all programs at the same time: nearly
// all of a start is the kernel's verifier, which uses one processor a program.
func loadAll(spec *ebpf.CollectionSpec, pins string) (*ebpf.Collection, error) {
	programs := spec.Programs
	spec.Programs = nil
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: pins}})
	if err != nil {
		return nil, err
	}
	var (
		mu   sync.Mutex // of what follows, and all.Programs
		errs []error
		wg   sync.WaitGroup
	)
	for name, p := range programs {
		one := &ebpf.CollectionSpec{Maps: spec.Maps, Programs: map[string]*ebpf.ProgramSpec{name: p}, Types: spec.Types, ByteOrder: spec.ByteOrder}
		wg.Go(func() {
			loaded, err := ebpf.NewCollectionWithOptions(one, ebpf.CollectionOptions{MapReplacements: all.Maps})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			all.Programs[name] = loaded.DetachProgram(name)
			loaded.Close() // its clones of the maps
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		all.Close()
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// removeOthers takes out pins of maps that there are no more, of another version.
func removeOthers(spec *ebpf.CollectionSpec, at string) error {
	entries, err := os.ReadDir(at)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if m := spec.Maps[e.Name()]; m == nil || m.Pinning != ebpf.PinByName {
			if err := os.RemoveAll(filepath.Join(at, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckSizes reports whether sizes of maps, by name, may be asked for.
func CheckSizes(sizes map[string]uint32) error {
	for name, n := range sizes {
		if names := sizable(); !slices.Contains(names, name) {
			return model.InvalidField("map", name, "must be one of "+strings.Join(names, ", "))
		}
		if n < 1 || n > maxEntries {
			return model.InvalidField("size of map "+name, n, fmt.Sprintf("must be between 1 and %d", maxEntries))
		}
	}
	return nil
}

// maxEntries bounds the kernel's memory that a slip of the keyboard takes.
const maxEntries = 1 << 24

// scale is all that is set in the object before it is loaded, but for the seed.
type scale struct {
	Sizes         map[string]uint32 // that were asked for
	Conns         uint32
	CPUs          int
	FlowCacheBits map[string]uint32
	Ticks         uint32
}

// scaleOf returns the scale of this machine.
func scaleOf(sizes map[string]uint32) (s scale, err error) {
	memory, err := machineMemory()
	if err != nil {
		return s, err
	}
	s.Sizes, s.Conns = sizes, connectionCapacity(memory)
	if s.CPUs, err = ebpf.PossibleCPU(); err != nil {
		return s, fmt.Errorf("ebpf driver: count the processors: %w", err)
	}
	s.FlowCacheBits = fastPathSizes(memory, s.CPUs)
	s.Ticks, err = fastTicks()
	return s, err
}

func resize(spec *ebpf.CollectionSpec, s scale) error {
	spec.Maps["conns"].MaxEntries = s.Conns
	for name, n := range s.Sizes {
		spec.Maps[name].MaxEntries = n
		switch name {
		case "ports":
			spec.Maps["port_counters"].MaxEntries = n
		case "halfopen":
			spec.Maps["slots"].MaxEntries = n
		}
	}
	for name, bits := range s.FlowCacheBits {
		spec.Maps[name].MaxEntries = uint32(s.CPUs) << bits //nolint:gosec // some thousand processors at most
	}
	half, open := spec.Maps["halfopen"].MaxEntries, spec.Maps["conns"].MaxEntries
	spec.Maps["translations"].MaxEntries = 2*(half+open) + spareTranslations
	for name, n := range map[string]uint32{
		"half_slots": half, "half_pressure": nearlyFullAt(half), "conns_pressure": nearlyFullAt(open), "conns_share": max(1, open/16),
		"forward_bits": s.FlowCacheBits["forward_cache"], "verdict_bits": s.FlowCacheBits["verdict_cache"], "nat_bits": s.FlowCacheBits["nat_cache"],
		"fast_ticks": s.Ticks,
	} {
		if err := spec.Variables[name].Set(n); err != nil {
			return fmt.Errorf("ebpf driver: set %s: %w", name, err)
		}
	}
	if err := spec.Variables["owner_seed"].Set(rand.Uint64()); err != nil {
		return fmt.Errorf("ebpf driver: set owner_seed: %w", err)
	}
	return nil
}

// spareTranslations is the room for translations whose connections have ended since
// they were last looked through.
const spareTranslations = 131072

// perCPU reports whether an entry has a value for each processor.
func perCPU(t ebpf.MapType) bool {
	return t == ebpf.PerCPUArray || t == ebpf.PerCPUHash || t == ebpf.LRUCPUHash
}

// evictingMaps are the sizable maps that may become too small for what they hold:
// packets fill them, or the next Apply does, which tells what does not fit.
var evictingMaps = slices.Concat(packetMaps, policyMaps)

// policyMaps make sense together only: a set's entry stands for its rules.
// While there is none, its ports let nothing through.
var policyMaps = []string{"sets", "rules"}

// replaceStalePin removes what is pinned in a map's place and is not that map; a map
// of another size is copied into a new one first. It returns whether all that
// the map held is still there. A size that what was programmed does not fit
// into is refused, and changes nothing: it would cut containers off.
func replaceStalePin(spec *ebpf.MapSpec, path string) (kept bool, err error) {
	if at, err := os.Lstat(path); err == nil && at.Mode()&os.ModeSymlink != 0 {
		return false, os.Remove(path) // it may lead to somebody else's
	}
	old, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil { // nothing, or no map
		return false, os.RemoveAll(path)
	}
	defer func() { err = errors.Join(err, old.Close()) }()
	if spec.Compatible(old) == nil {
		return true, nil
	}
	same := spec.Copy()
	same.MaxEntries = old.MaxEntries()
	if same.Compatible(old) != nil {
		return false, os.RemoveAll(path)
	}
	same.MaxEntries, same.Pinning = spec.MaxEntries, ebpf.PinNone // it is pinned when it is full
	renewed, err := ebpf.NewMap(same)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, renewed.Close()) }()
	var key []byte
	one := reflect.TypeFor[[]byte]()
	if perCPU(spec.Type) {
		one = reflect.SliceOf(reflect.ArrayOf(int(spec.ValueSize), reflect.TypeFor[byte]()))
	}
	value := reflect.New(one)
	it := old.Iterate()
	held := 0
	for it.Next(&key, value.Interface()) {
		held++
		if err == nil {
			err = renewed.Put(key, value.Elem().Interface())
		}
	}
	if isFull(err) {
		if slices.Contains(sizable(), spec.Name) && !slices.Contains(evictingMaps, spec.Name) {
			return false, model.Errorf(model.ErrInvalid, "map %s of this host's data plane holds %d entries and may not have %d: netplugin --ebpf-map-sizes %[1]s=N with N of at least %[2]d", spec.Name, held, spec.MaxEntries)
		}
		err = nil
	}
	kept = err == nil && it.Err() == nil
	if e := os.RemoveAll(path); e != nil {
		return false, errors.Join(err, e)
	}
	return kept, errors.Join(err, renewed.Pin(path))
}
