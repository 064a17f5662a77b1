package ebpf

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// The kernel sends no event when another process writes a map. So the tables are read now
// and then, and the driver's own entries are restored. Entries that the programs write
// (connections, counters, client affinity) are not checked.

const (
	// restorePause is the least time between two looks at what the maps hold.
	restorePause = time.Second
	// restoreShare bounds what the looks cost: so many times as long as the last one
	// took, there is none.
	restoreShare = 20
	// restoreLatest is after what time it is looked also by an Apply that changes
	// something, where others come so often that none has nothing to do.
	restoreLatest = time.Minute
)

// restorable is a table that can be made again what was written.
type restorable interface {
	restore() (unlike, error)
	// peek shows what the map holds, until back, which is never nil, is called.
	peek() (back func(), err error)
}

// unlike is how a map was unlike what was written.
type unlike struct {
	table                string
	gone, wrong, tooMuch int
}

func (u unlike) n() int { return u.gone + u.wrong + u.tooMuch }

// String names the map and what was wrong with it.
func (u unlike) String() string {
	return fmt.Sprintf("map %s (%d gone, %d wrong, %d too many)", u.table, u.gone, u.wrong, u.tooMuch)
}

// restoreDue reports whether an Apply compares the maps with what was written. changed
// reports whether the Apply has written anything.
func (t *mapTables) restoreDue(changed bool) bool {
	pause := restorePause
	if changed {
		pause = restoreLatest
	}
	return time.Since(t.restored) >= max(pause, restoreShare*t.restoreTook)
}

// restore repairs entries that somebody else changed, and reports them. Verdicts that
// packets met in between are judged again.
func (t *mapTables) restore() error {
	began := time.Now()
	defer func() { t.restored, t.restoreTook = time.Now(), time.Since(began) }()
	var errs []error
	for _, x := range t.restorables {
		u, err := x.restore()
		if u.n() > 0 {
			t.w.changes += u.n()
			t.w.global++
			t.repairs.note(driver.DriftEntry, u.String(), u.n())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (t *table[K, V]) restore() (unlike, error) {
	return restoreMap(t.name, t.m, len(t.have), maps.All(t.have), func(k K) (V, bool) {
		v, ok := t.have[k]
		return v, ok
	})
}

func (t *ruleTable) restore() (unlike, error) {
	all := func(yield func(ruleKey, rule) bool) {
		for _, rules := range t.of {
			for k, v := range rules {
				if !yield(k, v) {
					return
				}
			}
		}
	}
	return restoreMap("rules", t.m, t.n, all, func(k ruleKey) (rule, bool) {
		v, ok := t.of[k.Instance][k]
		return v, ok
	})
}

// restoreMap makes a map hold the n entries of all, which at looks up, and no others.
func restoreMap[K, V comparable](name string, m *ebpf.Map, n int, all iter.Seq2[K, V], at func(K) (V, bool)) (unlike, error) {
	u := unlike{table: name}
	same := 0
	var strays []K
	if err := readMap(name, m, func(k K, v V) {
		switch want, ok := at(k); {
		case !ok:
			strays = append(strays, k)
		case want == v:
			same++
		}
	}); err != nil {
		return u, err
	}
	for _, k := range strays { // first: they may take the room
		if err := m.Delete(k); err == nil {
			u.tooMuch++
		} else if !isNotExist(err) {
			return u, fmt.Errorf("write map %s: %w", name, err)
		}
	}
	if same == n {
		return u, nil
	}
	for k, want := range all {
		var v V
		err := m.Lookup(k, &v)
		switch {
		case err == nil && v == want:
			continue
		case err == nil:
			u.wrong++
		case isNotExist(err):
			u.gone++
		default:
			return u, fmt.Errorf("read map %s: %w", name, err)
		}
		if err := m.Put(k, want); err != nil {
			return u, fmt.Errorf("write map %s: %w", name, err)
		}
	}
	return u, nil
}

// readMap calls fn for each entry, many at a time where the kernel can.
func readMap[K, V any](name string, m *ebpf.Map, fn func(K, V)) error {
	if m.Type() != ebpf.LPMTrie {
		return eachEntry(name, m, 1, fn)
	}
	var k K
	var v V
	it := m.Iterate()
	for it.Next(&k, &v) {
		fn(k, v)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read map %s: %w", name, err)
	}
	return nil
}
