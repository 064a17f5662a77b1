package ebpf

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// manyBackends is a service with so many.
func manyBackends(n int) *desired.Service {
	s := &desired.Service{
		Key: model.ServiceKey{Tenant: "t", Name: "many"}, Network: 7, IPv4: netip.MustParseAddr("10.7.0.200"),
		Ports: []desired.ServicePort{{Protocol: model.ProtoUDP, Port: 53, Backend: 53}},
	}
	for i := range n {
		key := model.EndpointKey{Network: model.NetworkKey{Tenant: "t", Name: "n"}, ID: model.EndpointID(fmt.Sprint("b", i))}
		s.Backends = s.Backends.Set(key, &desired.Backend{Network: 7, IPv4: netip.AddrFrom4([4]byte{10, 7, 100, byte(i)}), Identity: 300, VTEP: vtep2})
	}
	return s
}

// TestDamagedSlotsAreRewritten: owners of slots that another program changes, tables of them
// that are gone, another's or too many, are again what they were, and counted. What was
// changed before the service changes, or while no driver ran, is not taken for its own.
func TestDamagedSlotsAreRewritten(t *testing.T) {
	r := newRig(t)
	drv := r.open(t)
	defer func() { drv.Close() }()
	d := r.drv
	pic := desired.Host{Name: "h", VTEP: vtep1, ArpMode: model.ArpProxy, Revision: 1}
	pic.Networks = pic.Networks.Set(7, &desired.Network{ID: 7, Encap: model.EncapVXLAN, Tag: 100, VTEPs: []netip.Addr{vtep2}, Subnet: netip.MustParsePrefix("10.7.0.0/16")})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	apply := func(backends int) {
		t.Helper()
		s := manyBackends(backends)
		pic.Services = pic.Services.Set(s.Key, s)
		rep, err := drv.Apply(t.Context(), pic)
		must(err)
		must(conformance.Failed(rep))
	}
	look := func() {
		t.Helper()
		comparison(t, d, drv, pic)
	}
	open := func(key uint32) *ebpf.Map {
		t.Helper()
		var inner *ebpf.Map
		must(d.dp.obj.Choices.Lookup(key, &inner))
		t.Cleanup(func() { _ = inner.Close() }) // it was read
		return inner
	}
	read := func() map[uint32][]ownersRow {
		t.Helper()
		out := map[uint32][]ownersRow{}
		var key, id uint32
		it := d.dp.obj.Choices.Iterate()
		for it.Next(&key, &id) {
			table := make([]ownersRow, rows)
			inner := open(key)
			for i := range table {
				must(inner.Lookup(uint32(i), &table[i]))
			}
			out[key] = table
		}
		must(it.Err())
		return out
	}
	apply(40)
	before := read()
	if len(before) != 1 {
		t.Fatalf("%d tables", len(before))
	}
	key := slices.Collect(maps.Keys(before))[0]
	same := func(when string, want map[uint32][]ownersRow, repairs *uint64, more uint64) {
		t.Helper()
		if !maps.EqualFunc(read(), want, slices.Equal) {
			t.Errorf("%s: slots have other owners", when)
		}
		n := d.DriftRepairs()[driver.DriftEntry]
		if n != *repairs+more {
			t.Errorf("%s: %d more repairs are counted, want %d", when, n-*repairs, more)
		}
		*repairs = n
	}
	var repairs uint64
	look()
	same("nobody has touched it", before, &repairs, 0)

	row := before[key][3]
	slices.Reverse(row[:])
	must(open(key).Put(uint32(3), row))
	must(open(key).Put(uint32(1000), ownersRow{}))
	look()
	same("two rows are changed", before, &repairs, 1)

	must(d.dp.obj.Choices.Delete(key))
	look()
	same("it is gone", before, &repairs, 1)

	other, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 2 * ownersInRow, MaxEntries: rows})
	must(err)
	defer func() { _ = other.Close() }() // in memory
	must(d.dp.obj.Choices.Put(key+8, other))
	look()
	same("one is too many", before, &repairs, 1)

	must(open(key).Put(uint32(3), row)) // owners that the service has
	apply(41)
	want := map[uint32][]ownersRow{key: ownersOf(nil, nil, d.dp.services.slots.membersOf(key))}
	if len(d.dp.services.slots.membersOf(key)) != 41 {
		t.Errorf("%d backends", len(d.dp.services.slots.membersOf(key)))
	}
	same("a row is changed, and a backend comes", want, &repairs, 1)
	must(d.dp.obj.Choices.Delete(key))
	apply(40)
	same("it is gone, and a backend goes", before, &repairs, 1)

	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
	drv = r.open(t)
	d = r.drv
	repairs = 0
	apply(40)
	look()
	same("another process", before, &repairs, 0)

	left := open(key)
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
	must(left.Put(uint32(3), row))
	drv = r.open(t)
	d = r.drv
	repairs = 0
	apply(40)
	look()
	same("a row is changed between two processes", before, &repairs, 1)
	apply(5)
	look()
	same("few backends", map[uint32][]ownersRow{}, &repairs, 0)
}
