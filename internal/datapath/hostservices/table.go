package hostservices

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// table is a pinned map with a copy of what it holds, so that only differences are written.
type table[K, V comparable] struct {
	m    *ebpf.Map
	name string
	have map[K]V
}

// load reads what the map of a name holds. Repairs hear of what differs from the copy.
func (t *table[K, V]) load(all map[string]*ebpf.Map, name string, r Repairs) error {
	had := t.have
	t.m, t.name, t.have = all[name], name, map[K]V{}
	var k K
	var v V
	it := t.m.Iterate()
	for it.Next(&k, &v) {
		t.have[k] = v
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read map %s: %w", name, err)
	}
	differs := 0
	for k, v := range t.have {
		if old, has := had[k]; !has || old != v {
			differs++
		}
		delete(had, k)
	}
	r.Entries(name, differs+len(had))
	return nil
}

func (t *table[K, V]) put(k K, v V) error {
	if old, has := t.have[k]; has && old == v {
		return nil
	}
	if err := t.m.Update(k, v, ebpf.UpdateAny); err != nil {
		if errors.Is(err, unix.E2BIG) {
			return model.Errorf(model.ErrExhausted, "map %s of services for this host's own processes is full at %d entries", t.name, t.m.MaxEntries())
		}
		return fmt.Errorf("write map %s: %w", t.name, err)
	}
	t.have[k] = v
	return nil
}

func (t *table[K, V]) del(k K) error {
	if _, has := t.have[k]; !has {
		return nil
	}
	if err := t.m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("write map %s: %w", t.name, err)
	}
	delete(t.have, k)
	return nil
}

// match makes a table hold what is wanted, and nothing else.
func match[K, V comparable](t *table[K, V], want map[K]V) error {
	var failed []error
	for k, v := range want {
		failed = append(failed, t.put(k, v))
	}
	for k := range maps.Clone(t.have) {
		if _, has := want[k]; !has {
			failed = append(failed, t.del(k))
		}
	}
	return errors.Join(failed...)
}
