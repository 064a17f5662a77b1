package ebpf

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// slotTables are the owners of slots of services with many backends, the inner maps of
// choices. What was written is known by its sum, since a table has 128 KiB; what it has to
// say follows from the service's backends.
type slotTables struct {
	choices  *ebpf.Map
	backends *table[backendKey, backendEntry]
	repairs  repairs

	seed maphash.Seed
	sums map[uint32]uint64 // by key of choices
	// found are those of a former process, whose sums are of what they were found to hold:
	// to judge them is a comparison of each slot with each backend, which a start does not
	// wait for.
	found map[uint32]bool

	next    uint32   // the key with which the next comparison begins
	damaged []uint32 // keys of tables that the last comparison found to differ
	strays  []uint32 // keys that it found without a service
}

func newSlotTables(choices *ebpf.Map, backends *table[backendKey, backendEntry], r repairs) *slotTables {
	return &slotTables{choices: choices, backends: backends, repairs: r, seed: maphash.MakeSeed(), sums: map[uint32]uint64{}, found: map[uint32]bool{}}
}

func (t *slotTables) sum(table []ownersRow) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	for _, row := range table {
		maphash.WriteComparable(&h, row)
	}
	return h.Sum64()
}

// record notes what a table holds now.
func (t *slotTables) record(key uint32, table []ownersRow) { t.sums[key] = t.sum(table) }

// verifiedContents is the contents found in a table, nil where they are not what was written, or it
// is gone; that is reported.
func (t *slotTables) verifiedContents(key uint32, table []ownersRow) []ownersRow {
	was, known := t.sums[key]
	if !known && table != nil {
		t.found[key] = true
	}
	if !known || table != nil && t.sum(table) == was {
		return table
	}
	u := mapDifference{table: "choices"}
	if table == nil {
		u.gone = 1
	} else {
		u.wrong = 1
	}
	t.repairs.note(driver.DriftEntry, u.String(), 1)
	return nil
}

// lookup opens a table and reads it; inner is nil where there is none.
func (t *slotTables) lookup(key uint32) (inner *ebpf.Map, table []ownersRow, err error) {
	if err := t.choices.Lookup(key, &inner); isNotExist(err) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	table = make([]ownersRow, rows)
	var cur ebpf.MapBatchCursor
	if _, err := inner.BatchLookup(&cur, make([]uint32, rows), table, nil); err != nil && !isNotExist(err) {
		return nil, nil, errors.Join(err, inner.Close())
	}
	return inner, table, nil
}

// readOwners opens a table and reads it; fresh says that there is none, and that it is a
// new one.
func (t *slotTables) readOwners(key uint32) (inner *ebpf.Map, table []ownersRow, fresh bool, err error) {
	if inner, table, err = t.lookup(key); err != nil || inner != nil {
		return inner, table, false, err
	}
	inner, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 2 * ownersInRow, MaxEntries: rows})
	return inner, nil, true, err
}

// membersOf are who a table's slots are divided among.
func (t *slotTables) membersOf(key uint32) (out []member) {
	for k, b := range t.backends.have {
		if k.Service == key>>3 && b.InPools>>(key&7)&1 != 0 {
			out = append(out, member{b.ID, k.Index})
		}
	}
	slices.SortFunc(out, func(a, b member) int { return cmp.Compare(a.index, b.index) })
	return out
}

// compare counts tables that differ, are gone or too many. Tables of a former process are
// compared with what follows from their backends.
func (t *slotTables) compare(until time.Time) (u mapDifference, done bool, err error) {
	u.table, t.damaged, t.strays = "choices", nil, nil
	if until.IsZero() {
		t.next = 0
	}
	if t.next == 0 {
		var key, id uint32
		it := t.choices.Iterate()
		for it.Next(&key, &id) {
			if _, ok := t.sums[key]; !ok {
				t.strays = append(t.strays, key)
			}
		}
		if err := it.Err(); err != nil {
			return u, true, fmt.Errorf("read map choices: %w", err)
		}
		u.tooMuch = len(t.strays)
	}
	keys := slices.Sorted(maps.Keys(t.sums))
	from, _ := slices.BinarySearch(keys, t.next)
	for _, key := range keys[from:] {
		t.next = key + 1
		inner, table, err := t.lookup(key)
		if err == nil && inner != nil {
			err = inner.Close()
		}
		if err != nil {
			return u, true, fmt.Errorf("read map choices: %w", err)
		}
		same := table != nil && t.sum(table) == t.sums[key]
		if !same || t.found[key] {
			if members := t.membersOf(key); len(members) > 0 { // else it was written in part only
				switch next := ownersOf(nil, nil, members); {
				case table == nil:
					u.gone++
					t.damaged = append(t.damaged, key)
				case !slices.Equal(table, next):
					u.wrong++
					t.damaged = append(t.damaged, key)
				}
				delete(t.found, key)
			}
		}
		if !until.IsZero() && time.Now().After(until) {
			return u, false, nil
		}
	}
	t.next = 0
	return u, true, nil
}

// rewrite deletes the tables that are too many, and writes into damaged ones what
// follows from their backends.
func (t *slotTables) rewrite() error {
	for _, key := range t.strays { // first: they may take the room
		if err := t.choices.Delete(key); err != nil && !isNotExist(err) {
			return fmt.Errorf("write map choices: %w", err)
		}
	}
	for _, key := range t.damaged {
		inner, table, fresh, err := t.readOwners(key)
		if err != nil {
			return fmt.Errorf("read map choices: %w", err)
		}
		_, err = t.put(key, inner, table, ownersOf(nil, nil, t.membersOf(key)), fresh)
		if err := errors.Join(err, inner.Close()); err != nil {
			return err
		}
	}
	return nil
}

// put makes a table that holds table say next, and tells how many rows it wrote.
func (t *slotTables) put(key uint32, inner *ebpf.Map, table, next []ownersRow, fresh bool) (int, error) {
	var keys []uint32
	var values []ownersRow
	for i, row := range next {
		if fresh || row != table[i] {
			keys, values = append(keys, uint32(i)), append(values, row)
		}
	}
	if len(keys) > 0 {
		if _, err := inner.BatchUpdate(keys, values, nil); err != nil {
			return 0, writeError{fmt.Errorf("write a map of choices: %w", err)}
		}
	}
	if fresh {
		if err := t.choices.Put(key, inner); err != nil {
			if isFull(err) {
				return 0, manyServices(t.choices)
			}
			return 0, writeError{fmt.Errorf("write map choices: %w", err)}
		}
	}
	t.record(key, next)
	return len(keys), nil
}

// delete deletes a table that no service uses.
func (t *slotTables) delete(key uint32) error {
	if err := t.choices.Delete(key); err != nil && !isNotExist(err) {
		return writeError{fmt.Errorf("write map choices: %w", err)}
	}
	delete(t.sums, key)
	delete(t.found, key)
	return nil
}

// peek: nothing of it is shown.
func (t *slotTables) peek() (back func(), err error) { return func() {}, nil }
