package ebpf

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
)

// mapTable is a map that only the driver writes, with a copy of its entries.
type mapTable interface {
	filled
	comparedTable
	open(m *ebpf.Map, w *writer, tag tableTag)
	load() error
}

// tableTag is the parsed tag of a table: the name of its map, then options. "global" means
// that a change may affect any connection, "fixed" that the size cannot be configured.
type tableTag struct {
	name          string
	global, fixed bool
}

// tagsOf yields the tags of the tables of a part by field index.
func tagsOf(part any) iter.Seq2[int, tableTag] {
	return func(yield func(int, tableTag) bool) {
		of := reflect.TypeOf(part).Elem()
		for i := range of.NumField() {
			tag, ok := of.Field(i).Tag.Lookup("map")
			if !ok {
				continue
			}
			words := strings.Split(tag, ",")
			if !yield(i, tableTag{words[0], slices.Contains(words, "global"), slices.Contains(words, "fixed")}) {
				return
			}
		}
	}
}

// mapTables lists the tables of all parts. A table is an exported field of its part with a
// tag map:"NAME". Opening, reading, comparing, counting and sizing work on this list, so a
// new map needs one field and nothing else.
type mapTables struct {
	w           writer
	repairs     repairs
	filled      []filled        // tables with a fill level
	all         []comparedTable // in the order in which they are compared
	next        int             // the one that the next comparison begins with
	compared    time.Time       // when the last comparison ended
	compareTook time.Duration
	compareFor  time.Duration // after which a comparison begins no other table
	round       time.Time     // when the present round through all tables began
	failed      bool          // a table could not be compared in it
	verified    time.Time     // when the last complete round began
}

// open opens the tables of parts and reads their maps.
func (t *mapTables) open(o *objects, parts ...any) error {
	at := map[string]*ebpf.Map{}
	for name, m := range fieldsOf[*ebpf.Map](&o.datapathMaps) {
		at[name] = *m
	}
	for _, part := range parts {
		for i, tag := range tagsOf(part) {
			x, ok := reflect.TypeAssert[mapTable](reflect.ValueOf(part).Elem().Field(i).Addr())
			m := at[tag.name]
			if !ok || m == nil {
				return fmt.Errorf("ebpf driver: there is no table of map %s", tag.name)
			}
			x.open(m, &t.w, tag)
			if err := x.load(); err != nil {
				return fmt.Errorf("ebpf driver: %w", err)
			}
			t.all = append(t.all, x)
			if m.Type() != ebpf.Array {
				t.filled = append(t.filled, x)
			}
		}
	}
	t.compareFor = compareFor
	t.compared = time.Now() // what is there was read
	t.round = t.compared
	return nil
}

// peek makes the tables show what the maps hold now. back, which is never nil, undoes that.
func (t *mapTables) peek() (back func(), err error) {
	var backs []func()
	back = func() {
		for _, fn := range slices.Backward(backs) {
			fn()
		}
	}
	var errs []error
	for _, x := range t.all {
		fn, err := x.peek()
		backs, errs = append(backs, fn), append(errs, err)
	}
	return back, errors.Join(errs...)
}

// packetMaps are the maps with a configurable size that packets fill.
var packetMaps = []string{"conns", "halfopen", "affines", "frags", "hits"}

// sizable are the maps whose size may be chosen.
func sizable() []string {
	names := slices.Clone(packetMaps)
	for _, part := range (&datapath{services: &serviceState{}}).tableParts() {
		for _, tag := range tagsOf(part) {
			if !tag.fixed {
				names = append(names, tag.name)
			}
		}
	}
	slices.Sort(names)
	return names
}
