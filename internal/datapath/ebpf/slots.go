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
}

// judgeFor bounds how long a look judges what was found.
const judgeFor = 50 * time.Millisecond

func newSlotTables(choices *ebpf.Map, backends *table[backendKey, backendEntry], r repairs) *slotTables {
	return &slotTables{choices, backends, r, maphash.MakeSeed(), map[uint32]uint64{}, map[uint32]bool{}}
}

func (t *slotTables) sum(table []ownersRow) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	for _, row := range table {
		maphash.WriteComparable(&h, row)
	}
	return h.Sum64()
}

// wrote notes what a table holds now.
func (t *slotTables) wrote(key uint32, table []ownersRow) { t.sums[key] = t.sum(table) }

// trusted is the contents found in a table, nil where they are not what was written, or it
// is gone; that is reported.
func (t *slotTables) trusted(key uint32, table []ownersRow) []ownersRow {
	was, known := t.sums[key]
	if !known && table != nil {
		t.found[key] = true
	}
	if !known || table != nil && t.sum(table) == was {
		return table
	}
	u := unlike{table: "choices"}
	if table == nil {
		u.gone = 1
	} else {
		u.wrong = 1
	}
	t.repairs.note(driver.DriftEntry, u.String(), 1)
	return nil
}

// readOwners opens a table and reads it; fresh says that there is none, and that it is a
// new one.
func (t *slotTables) readOwners(key uint32) (inner *ebpf.Map, table []ownersRow, fresh bool, err error) {
	err = t.choices.Lookup(key, &inner)
	if isNotExist(err) {
		inner, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 2 * ownersInRow, MaxEntries: rows})
		return inner, nil, true, err
	}
	if err != nil {
		return nil, nil, false, err
	}
	table = make([]ownersRow, rows)
	var cur ebpf.MapBatchCursor
	if _, err := inner.BatchLookup(&cur, make([]uint32, rows), table, nil); err != nil && !isNotExist(err) {
		return nil, nil, false, errors.Join(err, inner.Close())
	}
	return inner, table, false, nil
}

// membersOf are who a table's slots are divided among.
func (t *slotTables) membersOf(key uint32) (out []member) {
	for k, b := range t.backends.have {
		if k.Service == key>>3 && b.Among>>(key&7)&1 != 0 {
			out = append(out, member{b.ID, k.Index})
		}
	}
	slices.SortFunc(out, func(a, b member) int { return cmp.Compare(a.index, b.index) })
	return out
}

// restore counts rows that differ, and tables that are gone or too many.
func (t *slotTables) restore() (unlike, error) {
	u := unlike{table: "choices"}
	var strays []uint32
	var key, id uint32
	it := t.choices.Iterate()
	for it.Next(&key, &id) {
		if _, ok := t.sums[key]; !ok {
			strays = append(strays, key)
		}
	}
	if err := it.Err(); err != nil {
		return u, fmt.Errorf("read map choices: %w", err)
	}
	for _, key := range strays { // first: they may take the room
		if err := t.choices.Delete(key); err != nil && !isNotExist(err) {
			return u, fmt.Errorf("write map choices: %w", err)
		}
		u.tooMuch++
	}
	judged := time.Duration(0)
	for _, key := range slices.Sorted(maps.Keys(t.sums)) {
		began, judge := time.Now(), t.found[key] && judged < judgeFor
		inner, table, fresh, err := t.readOwners(key)
		if err != nil {
			return u, fmt.Errorf("read map choices: %w", err)
		}
		if fresh || judge || t.sum(table) != t.sums[key] {
			n := 0
			if n, err = t.put(key, inner, table, ownersOf(nil, nil, t.membersOf(key)), fresh); fresh {
				u.gone++
			} else {
				u.wrong += n
			}
			if delete(t.found, key); judge {
				judged += time.Since(began)
			}
		}
		if err := errors.Join(err, inner.Close()); err != nil {
			return u, err
		}
	}
	return u, nil
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
	t.wrote(key, next)
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
