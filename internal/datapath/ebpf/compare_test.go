package ebpf

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// contents are the entries of all maps that the driver compares, but for the epoch.
func contents(t *testing.T, d *Driver) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	for _, name := range comparedNames(d) {
		m := d.dp.obj.pinned[name]
		entries := map[string]string{}
		var k, v []byte
		it := m.Iterate()
		for it.Next(&k, &v) {
			if name == "settings" {
				var s settings
				if err := m.Lookup(k, &s); err != nil {
					t.Fatal(err)
				}
				s.Epoch = 0
				if _, err := binary.Encode(v, binary.NativeEndian, s); err != nil {
					t.Fatal(err)
				}
			}
			entries[string(k)] = string(v)
		}
		if err := it.Err(); err != nil {
			t.Fatal(err)
		}
		out[name] = entries
	}
	return out
}

func comparedNames(d *Driver) (names []string) {
	for _, t := range d.dp.tables.all {
		if t == d.dp.services.slots { // TestDamagedSlotsAreRewritten
			continue
		}
		name := "rules"
		if f, ok := t.(filled); ok {
			name, _ = f.fill()
		}
		names = append(names, name)
	}
	return names
}

// strayKey is a key that a map does not have.
func strayKey(m *ebpf.Map) []byte {
	k := slices.Repeat([]byte{0x5a}, int(m.KeySize()))
	if m.Type() == ebpf.LPMTrie {
		binary.NativeEndian.PutUint32(k, 8*(m.KeySize()-4))
	}
	return k
}

// comparison has Apply compare all tables, however long that takes.
func comparison(t *testing.T, d *Driver, drv driver.Driver, pic desired.Host) {
	t.Helper()
	d.mu.Lock()
	d.dp.tables.compared, d.dp.tables.compareTook = time.Time{}, 0 // as long ago as may be
	d.dp.tables.compareFor, d.dp.services.slots.next = time.Hour, 0
	d.mu.Unlock()
	if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
}

// TestDamagedTablesAreRewritten: entries of any map that another program deletes, changes or
// adds are again what they were, reported by the map's name and counted by what was wrong.
// An inspection of the maps does not make what it finds the driver's own.
func TestDamagedTablesAreRewritten(t *testing.T) {
	t.Run("by Apply", func(t *testing.T) { damagedTablesAreRewritten(t, comparison) })
	t.Run("by Verify", func(t *testing.T) {
		damagedTablesAreRewritten(t, func(t *testing.T, d *Driver, _ driver.Driver, _ desired.Host) {
			t.Helper()
			began := time.Now()
			if n, err := d.Verify(t.Context()); err != nil || n == 0 {
				t.Fatalf("Verify() = %d, %v", n, err)
			}
			if d.dp.tables.verified.Before(began) {
				t.Errorf("the last comparison of all tables began at %v, before %v", d.dp.tables.verified, began)
			}
		})
	})
}

func damagedTablesAreRewritten(t *testing.T, comparison func(*testing.T, *Driver, driver.Driver, desired.Host)) {
	t.Helper()
	r, drv, pic := driftRig(t, "")
	settled(t, drv, pic)
	d := r.drv
	look := func() {
		t.Helper()
		comparison(t, d, drv, pic)
	}
	look()
	if n := d.DriftRepairs()[driver.DriftEntry]; n != 0 {
		t.Errorf("%d repairs of what nobody has touched: %q", n, d.RecentDrift(time.Time{}))
	}
	before := contents(t, d)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]mapDifference{}
	for name, entries := range before {
		m, u := d.dp.obj.pinned[name], mapDifference{table: name}
		if m.Type() != ebpf.Array {
			must(m.Put(strayKey(m), make([]byte, m.ValueSize())))
			u.tooMuch++
		}
		keys := slices.Sorted(maps.Keys(entries))
		if len(keys) > 0 {
			v := []byte(entries[keys[0]])
			v[0] ^= 0xff
			must(m.Put([]byte(keys[0]), v))
			u.wrong++
		}
		if len(keys) > 1 && m.Type() != ebpf.Array {
			must(m.Delete([]byte(keys[1])))
			u.gone++
		}
		if u.n() > 0 {
			want[driver.DriftEntry+" "+u.String()] = u
		}
	}
	if len(want) != len(before) {
		t.Errorf("%d of %d maps are damaged", len(want), len(before))
	}
	if _, err := drv.Inspect(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	look()
	for name, entries := range contents(t, d) {
		if !maps.Equal(entries, before[name]) {
			t.Errorf("map %s has other entries than before: %d, were %d", name, len(entries), len(before[name]))
		}
	}
	sum := uint64(0)
	for _, u := range want {
		sum += uint64(u.n())
	}
	if n := d.DriftRepairs()[driver.DriftEntry]; n != sum {
		t.Errorf("%d repairs are counted, want %d", n, sum)
	}
	names := d.RecentDrift(began)
	if len(names) != 10 {
		t.Errorf("%d names are told at once: %q", len(names), names)
	}
	for _, name := range names {
		if _, ok := want[name]; !ok {
			t.Errorf("told %q", name)
		}
	}
	look()
	if n := d.DriftRepairs()[driver.DriftEntry]; n != sum {
		t.Errorf("the next look counts %d more", n-sum)
	}
}

// TestLostNeighbourEntryIsRestored: a container whose neighbour's entry is gone reaches it again after the
// next look, also in a connection that was judged without.
func TestLostNeighbourEntryIsRestored(t *testing.T) {
	r, drv, pic := driftRig(t, "")
	settled(t, drv, pic)
	a, _ := pic.Ports.Get("cvna")
	p := reference.Packet{
		Port: a.IfName, SrcMAC: a.MAC, DstMAC: model.MAC{2, 5, 0, 0, 0, 3}, Src: a.IPv4, Dst: netip.MustParseAddr("10.9.0.3"),
		Proto: model.ProtoUDP, SrcPort: 5000, DstPort: 5000,
	}
	if v := r.inject(t, p); len(v.VTEPs) != 1 {
		t.Fatalf("before: %s", v)
	}
	k := stationKey{Net: 1, MAC: p.DstMAC}
	if err := r.drv.dp.obj.Stations.Delete(k); err != nil {
		t.Fatal(err)
	}
	for _, k := range slices.Collect(maps.Keys(r.drv.dp.endpoints.Hosts.have)) {
		if k.IP == toAddr(p.Dst) {
			if err := r.drv.dp.obj.Hosts.Delete(k); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.SrcPort++
	if v := r.inject(t, p); len(v.VTEPs) != 0 {
		t.Fatalf("without its entries: %s", v)
	}
	comparison(t, r.drv, drv, pic)
	if v := r.inject(t, p); len(v.VTEPs) != 1 {
		t.Errorf("after the look: %s", v)
	}
}

// TestComparisonsTakeATwentiethOfTheTime: comparisons cost a twentieth of the time at most, and come also where each
// Apply has something to do.
func TestComparisonsTakeATwentiethOfTheTime(t *testing.T) {
	for _, x := range []struct {
		ago, took time.Duration
		changed   bool
		want      bool
	}{
		{comparePause / 2, 0, false, false},
		{comparePause, 0, false, true},
		{comparePause, 0, true, false},
		{compareLatest, 0, true, true},
		{compareLatest - time.Second, 0, true, false},
		{compareLatest, compareLatest / 10, true, false},
		{compareLatest, compareLatest / 10, false, false},
		{3 * compareLatest, compareLatest / 10, false, true},
	} {
		tables := &mapTables{compared: time.Now().Add(-x.ago), compareTook: x.took}
		if got := tables.compareDue(x.changed); got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
}

// fakeTable differs by so many entries until it is rewritten. It takes so many comparisons,
// each of which may fail.
type fakeTable struct {
	steps, wrong, compared, rewritten int
	err                               error
}

func (f *fakeTable) compare(time.Time) (mapDifference, bool, error) {
	f.compared++
	return mapDifference{table: "fake", wrong: f.wrong}, f.compared >= f.steps, f.err
}

func (f *fakeTable) rewrite() error {
	f.rewritten, f.wrong = f.rewritten+1, 0
	return nil
}

func (f *fakeTable) peek() (func(), error) { return func() {}, nil }

// TestInterruptedComparisonsContinue: a comparison without time compares one table, or a part of a
// large one, and the next one continues there; one with time compares each table once. Only
// tables that differ are rewritten, and one that cannot be read holds up no other.
func TestInterruptedComparisonsContinue(t *testing.T) {
	a, large, unread, last := &fakeTable{}, &fakeTable{steps: 3}, &fakeTable{err: errors.New("unread")}, &fakeTable{wrong: 2}
	drift := &driver.Drift{}
	tables := &mapTables{all: []comparedTable{a, large, unread, last}, repairs: repairs{drift, slog.New(slog.DiscardHandler)}}
	var compared [][4]int
	for range 7 {
		if err := tables.compare(time.Now()); (err != nil) != (unread.compared == 1 && last.compared == 0) {
			t.Errorf("after %v: %v", compared, err)
		}
		compared = append(compared, [4]int{a.compared, large.compared, unread.compared, last.compared})
	}
	want := [][4]int{{1, 0, 0, 0}, {1, 1, 0, 0}, {1, 2, 0, 0}, {1, 3, 0, 0}, {1, 3, 1, 0}, {1, 3, 1, 1}, {2, 3, 1, 1}}
	if !slices.Equal(compared, want) {
		t.Errorf("compared %v, want %v", compared, want)
	}
	if err := tables.compare(time.Now().Add(time.Hour)); err == nil || a.compared != 3 || large.compared != 4 || unread.compared != 2 || last.compared != 2 {
		t.Errorf("with time: %v, %+v %+v %+v %+v", err, a, large, unread, last)
	}
	if a.rewritten+large.rewritten+unread.rewritten != 0 || last.rewritten != 1 || tables.w.changes != 2 || tables.w.global == 0 || drift.DriftRepairs()[driver.DriftEntry] != 2 {
		t.Errorf("rewritten %+v %+v %+v %+v, %+v, %v", a, large, unread, last, tables.w, drift.DriftRepairs())
	}
}

// TestUnreadableTableIsReported: a table that cannot be read is reported by its name.
func TestUnreadableTableIsReported(t *testing.T) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 2})
	if err != nil {
		require(t)
		t.Fatal(err)
	}
	x := &table[uint32, uint32]{}
	x.open(m, &writer{}, tableTag{name: "some"})
	x.have[1] = 7
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if u, _, err := x.compare(time.Time{}); u.n() != 0 || err == nil || !strings.Contains(err.Error(), "some") || errors.Is(err, model.ErrNotFound) {
		t.Errorf("compare() = %v, %v", u, err)
	}
}

// TestFullMapIsRewritten: a map without room for another entry is again what was written, also
// an LPM trie, which takes none of its entries again then.
func TestFullMapIsRewritten(t *testing.T) {
	for _, kind := range []ebpf.MapType{ebpf.Hash, ebpf.LPMTrie} {
		spec := &ebpf.MapSpec{Type: kind, KeySize: 8, ValueSize: 4, MaxEntries: 3}
		if kind == ebpf.LPMTrie {
			spec.Flags = unix.BPF_F_NO_PREALLOC
		}
		m, err := ebpf.NewMap(spec)
		if err != nil {
			require(t)
			t.Fatal(err)
		}
		defer func() { _ = m.Close() }() // in memory
		x := &table[[2]uint32, uint32]{}
		x.open(m, &writer{}, tableTag{name: "some"})
		for i := range uint32(3) {
			if err := x.put([2]uint32{32, i}, i); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(m.Delete([2]uint32{32, 0}), m.Put([2]uint32{32, 0}, uint32(7)), m.Delete([2]uint32{32, 1}), m.Put([2]uint32{32, 9}, uint32(9))); err != nil {
			t.Fatal(err)
		}
		u, _, err := x.compare(time.Time{})
		if want := (mapDifference{"some", 1, 1, 1}); err != nil || u != want {
			t.Errorf("%s: compare() = %+v, %v, want %+v", kind, u, err, want)
		}
		if err := x.rewrite(); err != nil {
			t.Errorf("%s: rewrite() = %v", kind, err)
		}
		if u, _, err := x.compare(time.Time{}); err != nil || u.n() != 0 {
			t.Errorf("%s, rewritten: compare() = %+v, %v", kind, u, err)
		}
	}
}
