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

// The kernel sends no event when another process writes a map. So now and then an Apply
// compares tables with what was written, for a bounded time, and the next comparison
// continues there. Comparing writes nothing. A table that differs is rewritten as a whole.
// Entries that the programs write (connections, counters, client affinity) are not compared.

const (
	// comparePause is the least time between two comparisons.
	comparePause = time.Second
	// compareFor is mapTables.compareFor outside of tests.
	compareFor = 50 * time.Millisecond
	// compareShare bounds what comparisons cost: there is none for so many times as long
	// as the last one took.
	compareShare = 20
	// compareLatest is after what time an Apply that changes something compares too, for
	// hosts on which each Apply does.
	compareLatest = time.Minute
)

// comparedTable is a table that can be compared with what was written.
type comparedTable interface {
	// compare reads the map. Where it ends early, after until, done is false and the next
	// call continues there. Without until it reads all of the map, from its beginning.
	compare(until time.Time) (u mapDifference, done bool, err error)
	// rewrite makes the map hold what was written, after compare has found a difference.
	rewrite() error
	// peek shows what the map holds, until back, which is never nil, is called.
	peek() (back func(), err error)
}

// mapDifference is how a map was unlike what was written.
type mapDifference struct {
	table                string
	gone, wrong, tooMuch int
}

func (u mapDifference) n() int { return u.gone + u.wrong + u.tooMuch }

// String names the map and what was wrong with it.
func (u mapDifference) String() string {
	return fmt.Sprintf("map %s (%d gone, %d wrong, %d too many)", u.table, u.gone, u.wrong, u.tooMuch)
}

// compareDue reports whether an Apply compares maps with what was written. changed reports
// whether the Apply has written anything.
func (t *mapTables) compareDue(changed bool) bool {
	pause := comparePause
	if changed {
		pause = compareLatest
	}
	return time.Since(t.compared) >= max(pause, compareShare*t.compareTook)
}

// compare compares one table, and more of them until a time, each at most once. It rewrites
// and reports tables that differ. Verdicts that packets met in between are judged again.
func (t *mapTables) compare(until time.Time) error {
	began := time.Now()
	defer func() { t.compared, t.compareTook = time.Now(), time.Since(began) }()
	var errs []error
	for range t.all {
		_, done, err := t.compareOne(t.all[t.next], until)
		if errs = append(errs, err); done || err != nil {
			t.next = (t.next + 1) % len(t.all)
			t.failed = t.failed || err != nil
		}
		if t.next == 0 && done {
			if !t.failed {
				t.verified = t.round
			}
			t.round, t.failed = time.Now(), false
		}
		if time.Now().After(until) {
			break
		}
	}
	return errors.Join(errs...)
}

// compareOne compares one table until a time, and rewrites and reports it if it differs.
func (t *mapTables) compareOne(x comparedTable, until time.Time) (u mapDifference, done bool, err error) {
	u, done, err = x.compare(until)
	if u.n() > 0 {
		t.w.changes += u.n()
		t.w.global++
		t.repairs.note(driver.DriftEntry, u.String(), u.n())
		err = errors.Join(err, x.rewrite())
	}
	return u, done, err
}

func (t *table[K, V]) at(k K) (V, bool) {
	v, ok := t.have[k]
	return v, ok
}

func (t *table[K, V]) compare(time.Time) (mapDifference, bool, error) {
	u, err := compareMap(t.name, t.m, len(t.have), t.at)
	return u, true, err
}

func (t *table[K, V]) rewrite() error { return rewriteMap(t.name, t.m, maps.All(t.have), t.at) }

func (t *ruleTable) at(k ruleKey) (rule, bool) {
	v, ok := t.of[k.Instance][k]
	return v, ok
}

func (t *ruleTable) compare(time.Time) (mapDifference, bool, error) {
	u, err := compareMap("rules", t.m, t.n, t.at)
	return u, true, err
}

func (t *ruleTable) rewrite() error {
	return rewriteMap("rules", t.m, func(yield func(ruleKey, rule) bool) {
		for _, rules := range t.of {
			for k, v := range rules {
				if !yield(k, v) {
					return
				}
			}
		}
	}, t.at)
}

// compareMap returns how a map is unlike the n entries that at looks up.
func compareMap[K, V comparable](name string, m *ebpf.Map, n int, at func(K) (V, bool)) (mapDifference, error) {
	u := mapDifference{table: name, gone: n}
	err := readMap(name, m, func(k K, v V) {
		switch want, ok := at(k); {
		case !ok:
			u.tooMuch++
		case want != v:
			u.gone--
			u.wrong++
		default:
			u.gone--
		}
	})
	if err != nil {
		return mapDifference{table: name}, err
	}
	u.gone = max(u.gone, 0) // an LPM trie is read from the start where an entry goes meanwhile
	return u, nil
}

// rewriteMap makes a map hold all entries, which at looks up, and no others.
func rewriteMap[K, V comparable](name string, m *ebpf.Map, all iter.Seq2[K, V], at func(K) (V, bool)) error {
	var strays []K
	if err := readMap(name, m, func(k K, _ V) {
		if _, ok := at(k); !ok {
			strays = append(strays, k)
		}
	}); err != nil {
		return err
	}
	for _, k := range strays { // first: they may take the room
		if err := m.Delete(k); err != nil && !isNotExist(err) {
			return fmt.Errorf("write map %s: %w", name, err)
		}
	}
	for k, v := range all {
		err := m.Put(k, v)
		var have V
		if isFull(err) && m.Lookup(k, &have) == nil && have == v {
			continue // a full LPM trie takes none of its entries again
		}
		if err != nil {
			return fmt.Errorf("write map %s: %w", name, err)
		}
	}
	return nil
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
