package ebpf

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestTablesTellTheirFill: each map that can be full, and no other, tells how
// many entries it has and how many it has room for, as the kernel has them, also
// after a restart.
func TestTablesTellTheirFill(t *testing.T) {
	r := newRig(t)
	pic, _, _ := r.neighbours(t)
	drv := r.open(t)
	if _, err := drv.Apply(t.Context(), pic); err != nil {
		t.Fatal(err)
	}
	told := func(when string) {
		t.Helper()
		got := r.drv.Tables()
		want := append(sizable(), fixedTables...)
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: tables %v, want %v", when, names, want)
		}
		o := r.drv.dp.obj
		for name, m := range map[string]interface {
			MaxEntries() uint32
		}{"ports": o.Ports, "stations": o.Stations, "hosts": o.Hosts, "sets": o.Sets, "rules": o.Rules} {
			if s := got[name]; s.Entries == 0 || s.Capacity != uint64(m.MaxEntries()) || s.Evicts {
				t.Errorf("%s: %s: %+v, the map has room for %d", when, name, s, m.MaxEntries())
			}
		}
		var k uint32
		var v port
		n, it := uint64(0), o.Ports.Iterate()
		for it.Next(&k, &v) {
			n++
		}
		if got["ports"].Entries != n || it.Err() != nil {
			t.Errorf("%s: %d ports are told, the map has %d (%v)", when, got["ports"].Entries, n, it.Err())
		}
	}
	told("after a desired state")
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
	again := r.open(t)
	defer again.Close()
	told("after a restart")
}

// fixedTables are the maps that can be full and whose size cannot be chosen: the first's
// follows from others', the rest are fixed.
var fixedTables = []string{"translations", "counted", "queues"}

// TestTablesAreDocumented: ebpf-maps.md describes each map that can be full, and no other, and says
// which sizes cannot be chosen.
func TestTablesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/ebpf-maps.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| map | entries | holds |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var got, fixed []string
	for line := range strings.Lines(table) {
		if names, entries, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok {
			all := strings.Split(strings.ReplaceAll(names, "`", ""), ", ")
			if got = append(got, all...); strings.Contains(entries, "not to be chosen") {
				fixed = append(fixed, all...)
			}
		}
	}
	slices.Sort(got)
	if want := slices.Sorted(slices.Values(append(sizable(), fixedTables...))); !slices.Equal(got, want) {
		t.Errorf("described are\n%v, there are\n%v", got, want)
	}
	if !slices.Equal(slices.Sorted(slices.Values(fixed)), slices.Sorted(slices.Values(fixedTables))) {
		t.Errorf("described as fixed are %v, there are %v", fixed, fixedTables)
	}
}

// TestMapSizesCoverEveryTableThatFills: what the error of a full table advises, --ebpf-map-sizes,
// takes every table that can be full.
func TestMapSizesCoverEveryTableThatFills(t *testing.T) {
	for _, name := range []string{"ports", "tags", "networks", "stations", "hosts", "members", "sets", "rules", "privates"} {
		if err := CheckSizes(map[string]uint32{name: 100000}); err != nil {
			t.Errorf("%s=100000: %v", name, err)
		}
	}
}
