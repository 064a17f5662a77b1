package ebpf

import (
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// contents are the entries of all maps that the driver restores, but for the epoch.
func contents(t *testing.T, d *Driver) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	for _, name := range restoredNames(d) {
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

func restoredNames(d *Driver) (names []string) {
	for _, t := range d.dp.tables.restorables {
		if t == d.dp.services.slots { // TestSlotsPutBack
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

// TestEntriesPutBack: entries of any map that somebody else takes out, changes or adds are
// made again what they were, told by the map's name and counted by what was wrong; a
// look at the maps, as for the inspection, does not make what it finds the driver's own.
func TestEntriesPutBack(t *testing.T) {
	r, drv, pic := driftRig(t, "")
	settled(t, drv, pic)
	d := r.drv
	look := func() {
		t.Helper()
		d.mu.Lock()
		d.dp.tables.restored = time.Time{} // as long ago as may be
		d.mu.Unlock()
		if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
	}
	look()
	if n := d.DriftRepairs()[driver.DriftEntry]; n != 0 {
		t.Errorf("%d repairs of what nobody has touched: %q", n, d.DriftLately(time.Time{}))
	}
	before := contents(t, d)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]unlike{}
	for name, entries := range before {
		m, u := d.dp.obj.pinned[name], unlike{table: name}
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
	names := d.DriftLately(began)
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

// TestEntryGone: a container whose neighbour's entry is gone reaches it again after the
// next look, also in a connection that was judged without.
func TestEntryGone(t *testing.T) {
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
	r.drv.mu.Lock()
	r.drv.dp.tables.restored = time.Time{}
	r.drv.mu.Unlock()
	if _, err := drv.Apply(t.Context(), pic); err != nil {
		t.Fatal(err)
	}
	if v := r.inject(t, p); len(v.VTEPs) != 1 {
		t.Errorf("after the look: %s", v)
	}
}

// TestRestoreDue: looks cost a twentieth of the time at most, and come also where no Apply
// has nothing to do.
func TestRestoreDue(t *testing.T) {
	for _, x := range []struct {
		ago, took time.Duration
		changed   bool
		want      bool
	}{
		{restorePause / 2, 0, false, false},
		{restorePause, 0, false, true},
		{restorePause, 0, true, false},
		{restoreLatest, 0, true, true},
		{restoreLatest - time.Second, 0, true, false},
		{restoreLatest, restoreLatest / 10, true, false},
		{restoreLatest, restoreLatest / 10, false, false},
		{3 * restoreLatest, restoreLatest / 10, false, true},
	} {
		tables := &mapTables{restored: time.Now().Add(-x.ago), restoreTook: x.took}
		if got := tables.restoreDue(x.changed); got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
}

// TestRestoreFails: an unreadable table is reported, and read again.
func TestRestoreFails(t *testing.T) {
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
	if _, err := x.restore(); err == nil || !strings.Contains(err.Error(), "some") || errors.Is(err, model.ErrNotFound) {
		t.Errorf("restore() = %v", err)
	}
}
