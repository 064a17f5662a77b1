package ebpf

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// fill is how full a map is that makes room when it is, and what that cost.
type fill struct {
	name  string
	quiet bool // evicting is no loss worth a warning
	most  uint64

	mu      sync.Mutex
	entries uint64 // at the last count
	evicted uint64 // since the first count; never shrinks
	warned  uint64 // of these
	at      time.Time
}

// lru is a map that the programs fill and that evicts the longest idle entry
// when it is full. The kernel does not say how often it did; but whatever the
// programs made that is neither there any more nor was deleted here is evicted.
type lru struct {
	fill
	made    uint32    // its counter in created
	created *ebpf.Map // counters of the programs
	m       *ebpf.Map
	counted bool
	base    uint64 // made before the first count and gone since
	deleted uint64 // since then
}

func newLRU(name string, m, created *ebpf.Map, made uint32, quiet bool) *lru {
	return &lru{fill: fill{name: name, quiet: quiet, most: uint64(m.MaxEntries())}, m: m, created: created, made: made}
}

// EVICTED_HALF, CREATED_FRAG and CREATED_HIT of bpf/maps.h.
const (
	evictedHalf = iota
	createdFrag
	createdHit
	createdAffine
)

// warnEvery is how often at most evictions of a map are reported.
const warnEvery = time.Minute

// readCreated reads a counter of the entries that the programs made.
func readCreated(created *ebpf.Map, slot uint32) (sum uint64, err error) {
	var per []uint64
	if err := created.Lookup(slot, &per); err != nil {
		return 0, fmt.Errorf("read map created: %w", err)
	}
	for _, n := range per {
		sum += n
	}
	return sum, nil
}

// eachEntry calls fn for every entry of a map, many at a time. width is the number of
// values of an entry: the number of processors where each has its own.
func eachEntry[K, V any](name string, m *ebpf.Map, width int, fn func(K, V)) error {
	const batch = 4096
	var cur ebpf.MapBatchCursor
	keys, values := make([]K, batch), make([]V, batch*width)
	for {
		n, err := m.BatchLookup(&cur, keys, values, nil)
		for i := range n {
			fn(keys[i], values[i*width])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read map %s: %w", name, err)
		}
	}
}

// deleteAll deletes the keys that are there still. A call of the kernel's ends at the
// first that is not.
func deleteAll[K any](name string, m *ebpf.Map, keys []K) error {
	const batch = 4096
	for len(keys) > 0 {
		now := keys[:min(batch, len(keys))]
		n, err := m.BatchDelete(now, nil)
		switch {
		case err == nil:
			n = len(now)
		case isNotExist(err):
			n++ // packets, or the kernel, have taken it out
		default:
			return fmt.Errorf("write map %s: %w", name, err)
		}
		keys = keys[min(n, len(keys)):]
	}
	return nil
}

// sweepMap deletes the entries that fn says and counts the others.
func sweepMap[K comparable, V any](l *lru, width int, fn func(K, V) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	made, err := readCreated(l.created, l.made) // before: what is made while we count must not look evicted
	if err != nil {
		return err
	}
	var dead []K
	left := uint64(0)
	err = eachEntry(l.name, l.m, width, func(k K, v V) {
		if fn(k, v) {
			dead = append(dead, k)
		} else {
			left++
		}
	})
	if err != nil {
		return err
	}
	if !l.counted {
		if made, err = readCreated(l.created, l.made); err != nil {
			return err
		}
		l.counted, l.base = true, made-left-uint64(len(dead))
	}
	for _, k := range dead {
		switch err := l.m.Delete(k); {
		case err == nil:
			l.deleted++
		case !isNotExist(err):
			return fmt.Errorf("write map %s: %w", l.name, err)
		}
	}
	l.entries = left
	if gone, there := made-l.base, l.deleted+left; gone > there {
		l.evicted = max(l.evicted, gone-there)
	}
	return nil
}

// warn tells of evictions, at most once in a while.
func (f *fill) warn(log *slog.Logger, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.quiet || f.evicted == f.warned || now.Sub(f.at) < warnEvery {
		return
	}
	log.Warn("a map was full and entries were evicted; make it bigger with netplugin --ebpf-map-sizes", "map", f.name,
		"evicted", f.evicted-f.warned, "capacity", f.most)
	f.warned, f.at = f.evicted, now
}

func (f *fill) stats() driver.TableStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return driver.TableStats{Entries: f.entries, Capacity: f.most, Evicts: true, Evicted: f.evicted, Quiet: f.quiet}
}
