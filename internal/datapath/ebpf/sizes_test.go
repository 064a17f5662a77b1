package ebpf

import (
	"maps"
	"slices"
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
		want := append(sizable(), "translations", "counted", "queues") // the first's size follows from others', the rest are fixed
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
	told("after a picture")
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
	again := r.open(t)
	defer again.Close()
	told("after a restart")
}

// TestSizesOfTables: what the error of a full table advises, --ebpf-map-sizes,
// takes every table that can be full.
func TestSizesOfTables(t *testing.T) {
	for _, name := range []string{"ports", "tags", "networks", "stations", "hosts", "members", "sets", "rules", "privates"} {
		if err := CheckSizes(map[string]uint32{name: 100000}); err != nil {
			t.Errorf("%s=100000: %v", name, err)
		}
	}
}
