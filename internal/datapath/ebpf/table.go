package ebpf

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// writer counts and, in tests, breaks writes to the maps.
type writer struct {
	changes int
	global  int // the ones that may concern any connection
	fault   func() error
}

// writeError is a write that failed, which ends an Apply; a map that is full
// concerns one object only and is none.
type writeError struct{ error }

func (e writeError) Unwrap() error { return e.error }

func fatal(err error) bool { return errors.As(err, &writeError{}) }

// table is a pinned map with a copy of what it holds, so that only
// differences are written.
type table[K, V comparable] struct {
	name    string
	m       *ebpf.Map
	w       *writer
	have    map[K]V
	wanted  map[K]bool // while a desired state is applied from scratch; nil otherwise
	quiet   bool       // not counted as a change of the desired state
	global  bool       // a change may concern any connection
	entries atomic.Uint64
}

// filled is a table's fill level, readable at any time.
type filled interface {
	fill() (name string, s driver.TableStats)
}

func (t *table[K, V]) fill() (string, driver.TableStats) {
	return t.name, driver.TableStats{Entries: t.entries.Load(), Capacity: uint64(t.m.MaxEntries())}
}

// count takes down how much is held, after every change of have.
func (t *table[K, V]) count() { t.entries.Store(uint64(len(t.have))) }

func (t *table[K, V]) open(m *ebpf.Map, w *writer, tag tableTag) {
	t.name, t.m, t.w, t.global, t.have = tag.name, m, w, tag.global, map[K]V{}
}

// load reads back what the map holds.
func (t *table[K, V]) load() error {
	clear(t.have)
	var k K
	var v V
	it := t.m.Iterate()
	for it.Next(&k, &v) {
		t.have[k] = v
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read map %s: %w", t.name, err)
	}
	t.count()
	return nil
}

// peek has t show what the map holds, until the function that it returns is called.
func (t *table[K, V]) peek() (back func(), err error) {
	was := t.have
	back = func() {
		t.have = was
		t.count()
	}
	t.have = map[K]V{}
	return back, t.load()
}

func (t *table[K, V]) begin() { t.wanted = map[K]bool{} }

// put makes k hold v.
func (t *table[K, V]) put(k K, v V) error {
	if t.wanted != nil {
		t.wanted[k] = true
	}
	if old, ok := t.have[k]; ok && old == v {
		return nil
	}
	if t.w.fault != nil {
		if err := t.w.fault(); err != nil {
			return writeError{err}
		}
	}
	if err := t.m.Update(k, v, ebpf.UpdateAny); err != nil {
		if isFull(err) {
			return t.full()
		}
		return writeError{fmt.Errorf("write map %s: %w", t.name, err)}
	}
	t.have[k] = v
	t.count()
	t.changed()
	return nil
}

// changed counts a change.
func (t *table[K, V]) changed() {
	if t.quiet {
		return
	}
	t.w.changes++
	if t.global {
		t.w.global++
	}
}

// full says that the map is, and what to do.
func (t *table[K, V]) full() error {
	return model.Errorf(model.ErrExhausted, "map %s of this host's data plane is full at %d entries; netplugin --ebpf-map-sizes %[1]s=N makes it bigger", t.name, t.m.MaxEntries())
}

// room reports whether keys can be put, before anything is written.
func (t *table[K, V]) room(keys ...K) error {
	n := len(t.have)
	for _, k := range keys {
		if _, ok := t.have[k]; !ok {
			n++
		}
	}
	if n > len(t.have) && n > int(t.m.MaxEntries()) {
		return t.full()
	}
	return nil
}

// del removes k, if it is there.
func (t *table[K, V]) del(k K) error {
	if _, ok := t.have[k]; !ok {
		return nil
	}
	if t.w.fault != nil {
		if err := t.w.fault(); err != nil {
			return writeError{err}
		}
	}
	if err := t.m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return writeError{fmt.Errorf("write map %s: %w", t.name, err)}
	}
	delete(t.have, k)
	t.count()
	t.changed()
	return nil
}

// sweep removes what was not put since begin.
func (t *table[K, V]) sweep() error {
	for k := range t.have {
		if !t.wanted[k] {
			if err := t.del(k); err != nil {
				return err
			}
		}
	}
	t.wanted = nil
	return nil
}
