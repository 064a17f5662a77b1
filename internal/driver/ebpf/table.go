package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/model"
)

// writer counts and, in tests, breaks writes to the maps.
type writer struct {
	changes int
	fault   func() error
}

// table is a pinned map with a copy of what it holds, so that only
// differences are written.
type table[K, V comparable] struct {
	name   string
	m      *ebpf.Map
	w      *writer
	have   map[K]V
	wanted map[K]bool // while a picture is applied from scratch; nil otherwise
	quiet  bool       // not counted as a change of the picture
}

func newTable[K, V comparable](name string, m *ebpf.Map, w *writer) *table[K, V] {
	return &table[K, V]{name: name, m: m, w: w, have: map[K]V{}}
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
	return nil
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
			return err
		}
	}
	if err := t.m.Update(k, v, ebpf.UpdateAny); err != nil {
		if errors.Is(err, errNoSpace) {
			return model.Errorf(model.ErrExhausted, "map %s is full at %d entries", t.name, t.m.MaxEntries())
		}
		return fmt.Errorf("write map %s: %w", t.name, err)
	}
	t.have[k] = v
	if !t.quiet {
		t.w.changes++
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
			return err
		}
	}
	if err := t.m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("write map %s: %w", t.name, err)
	}
	delete(t.have, k)
	if !t.quiet {
		t.w.changes++
	}
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
