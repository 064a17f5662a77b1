package ebpf

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/driver"
)

// lru is a map that the programs fill and that evicts the longest idle entry
// when it is full. The kernel does not say how often it did; but whatever the
// programs made that is neither there any more nor was deleted here is evicted.
type lru struct {
	name  string
	made  uint32 // its counter in the map created
	quiet bool   // evicting is no loss worth a warning

	mu      sync.Mutex
	m       *ebpf.Map
	counted bool
	base    uint64 // made before the first count and gone since
	deleted uint64 // since then
	entries uint64 // at the last count
	evicted uint64 // since the first count; never shrinks
	warned  uint64 // of these
	at      time.Time
}

// MADE_CONN, MADE_FRAG and MADE_HIT of bpf/maps.h.
const (
	madeConn = iota
	madeFrag
	madeHit
)

// warnEvery is how often at most evictions of a map are told.
const warnEvery = time.Minute

// madeBy reads a counter of the programs.
func (d *Driver) madeBy(slot uint32) (sum uint64, err error) {
	var per []uint64
	if err := d.obj.Created.Lookup(slot, &per); err != nil {
		return 0, fmt.Errorf("read map created: %w", err)
	}
	for _, n := range per {
		sum += n
	}
	return sum, nil
}

// sweepMap deletes the entries that fn says and counts the others. width is the
// number of values of an entry: that of processors where each has its own.
func sweepMap[K comparable, V any](d *Driver, l *lru, width int, fn func(K, V) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	made, err := d.madeBy(l.made) // before: what is made while we count must not look evicted
	if err != nil {
		return err
	}
	const batch = 4096
	var cur ebpf.MapBatchCursor
	keys, values := make([]K, batch), make([]V, batch*width)
	var dead []K
	left := uint64(0)
	for {
		n, err := l.m.BatchLookup(&cur, keys, values, nil)
		for i := range n {
			if fn(keys[i], values[i*width]) {
				dead = append(dead, keys[i])
			} else {
				left++
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			break
		}
		if err != nil {
			return fmt.Errorf("read map %s: %w", l.name, err)
		}
	}
	if !l.counted {
		if made, err = d.madeBy(l.made); err != nil {
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
func (d *Driver) warn(l *lru, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.quiet || l.evicted == l.warned || now.Sub(l.at) < warnEvery {
		return
	}
	d.cfg.Log.Warn("a map was full: its longest idle entries were evicted; netplugin --ebpf-map-sizes makes it bigger", "map", l.name,
		"evicted", l.evicted-l.warned, "capacity", l.m.MaxEntries())
	l.warned, l.at = l.evicted, now
}

func (l *lru) stats() driver.TableStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return driver.TableStats{Entries: l.entries, Capacity: uint64(l.m.MaxEntries()), Evicted: l.evicted}
}

// countTables takes out of the maps that evict what is dead, and counts the rest.
func (d *Driver) countTables(now uint64) error {
	return errors.Join(
		d.dropConns(func(k connKey, c conn) bool { return expired(k, c, now) }),
		sweepMap(d, &d.frags, 1, func(_ fragKey, f frag) bool { return now > f.Seen && now-f.Seen > uint64(fragLife) }),
		sweepMap(d, &d.hits, cpus(), func(uint64, counter) bool { return false }),
	)
}

// dropConns deletes the connections that fn says.
func (d *Driver) dropConns(fn func(connKey, conn) bool) error { return sweepMap(d, &d.conns, 1, fn) }
