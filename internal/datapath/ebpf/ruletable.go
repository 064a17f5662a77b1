package ebpf

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// ruleTable is the map of rules with a copy of what it holds, by instance of a
// set, so that one set's are found without a look at others'.
type ruleTable struct {
	m       *ebpf.Map
	w       *writer
	of      map[uint32]map[ruleKey]rule
	n       int
	most    int // entries that there is room for
	entries atomic.Uint64
}

func (t *ruleTable) open(m *ebpf.Map, w *writer, _ tableTag) {
	t.m, t.w, t.most, t.of = m, w, int(m.MaxEntries()), map[uint32]map[ruleKey]rule{}
}

// fill implements filled.
func (t *ruleTable) fill() (string, driver.TableStats) {
	return "rules", driver.TableStats{Entries: t.entries.Load(), Capacity: uint64(t.most)}
}

func (t *ruleTable) count(by int) {
	t.n += by
	t.entries.Store(uint64(t.n))
}

// load reads back what the map holds.
func (t *ruleTable) load() error {
	of, n := map[uint32]map[ruleKey]rule{}, 0
	err := eachEntry("rules", t.m, 1, func(k ruleKey, v rule) {
		if of[k.Instance] == nil {
			of[k.Instance] = map[ruleKey]rule{}
		}
		of[k.Instance][k] = v
		n++
	})
	if err != nil {
		return err
	}
	t.of = of
	t.count(n - t.n)
	return nil
}

// peek is a table's peek.
func (t *ruleTable) peek() (back func(), err error) {
	was, n := t.of, t.n
	back = func() {
		t.of = was
		t.count(n - t.n)
	}
	return back, t.load()
}

// put makes k hold v.
func (t *ruleTable) put(k ruleKey, v rule) error {
	have := t.of[k.Instance]
	old, had := have[k]
	if had && old == v {
		return nil
	}
	if t.w.fault != nil {
		if err := t.w.fault(); err != nil {
			return writeError{err}
		}
	}
	if err := t.m.Update(k, v, ebpf.UpdateAny); err != nil {
		if isFull(err) {
			return t.full(1)
		}
		return writeError{fmt.Errorf("write map rules: %w", err)}
	}
	if have == nil {
		have = map[ruleKey]rule{}
		t.of[k.Instance] = have
	}
	have[k] = v
	if !had {
		t.count(1)
	}
	t.w.changes++
	return nil
}

// full says that there is no room for n entries more, and what to do.
func (t *ruleTable) full(n int) error {
	return model.Errorf(model.ErrExhausted, "its rules need %d entries more of map rules, and %d of %d are taken: fewer peers and ports, or netplugin --ebpf-map-sizes rules=N", n, t.n, t.most)
}

// room reports whether n new entries fit.
func (t *ruleTable) room(n int) error {
	if n > 0 && t.n+n > t.most {
		return t.full(n)
	}
	return nil
}

// drop removes k, if it is there, which changes nothing for any packet.
func (t *ruleTable) drop(k ruleKey) error {
	have := t.of[k.Instance]
	if _, ok := have[k]; !ok {
		return nil
	}
	if err := t.m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("write map rules: %w", err)
	}
	delete(have, k)
	if len(have) == 0 {
		delete(t.of, k.Instance)
	}
	t.count(-1)
	return nil
}
