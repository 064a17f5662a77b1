package ebpf

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestRemovedServicesLeaveNothing makes and removes 40 services, with -full 200, some with a table of
// choices, with connections to each. Of another service's connections every packet passes, to
// the backend that it has, and the maps of services and connections hold in the end what
// they held.
func TestRemovedServicesLeaveNothing(t *testing.T) {
	r := newRig(t)
	drv := r.open(t)
	defer drv.Close()
	client, pic, vips, _ := r.served(t)
	apply := func(p desired.Host) {
		t.Helper()
		if rep, err := drv.Apply(t.Context(), p); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
	}
	apply(pic)
	const lasting = 20
	sent := 0
	living := func() {
		t.Helper()
		for port := range uint16(lasting) {
			r.ask(t, client, vips[port%2], 4000+port) // fails unless it is let through
			sent++
		}
	}
	living()
	held := func() map[string]int {
		t.Helper()
		out := map[string]int{}
		o := r.drv.dp.obj
		for name, m := range map[string]*ebpf.Map{
			"vips": o.Vips, "services": o.Services, "service_ports": o.ServicePorts, "backends": o.Backends, "choices": o.Choices,
			"translations": o.Translations, "conns": o.Conns, "halfopen": o.Halfopen, "affines": o.Affines, "affine_counts": o.AffineCounts,
		} {
			var k, v []byte
			it := m.Iterate()
			for it.Next(&k, &v) {
				out[name]++
			}
			if err := it.Err(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		return out
	}
	translated := func() map[connKey]uint64 {
		t.Helper()
		out := map[connKey]uint64{}
		if err := eachEntry("translations", r.drv.dp.obj.Translations, 1, func(k connKey, x translation) { out[k] = x.ID }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	before, owners := held(), translated()
	if before["translations"] != 2*lasting {
		t.Fatalf("%d entries of %d translations", before["translations"], lasting)
	}
	far, _ := pic.Services.Get(model.ServiceKey{Tenant: "t", Name: "far"})
	rounds := 40
	if conformance.Full() {
		rounds = 200
	}
	for i := range rounds {
		s := *far
		s.Key.Name = fmt.Sprint("s", i%7) // some are recreated under a former name
		s.IPv4, s.IPv6, s.Affinity = netip.AddrFrom4([4]byte{10, 7, 3, byte(i)}), netip.Addr{}, time.Hour
		if i%10 == 0 {
			for n := range maxCompared + 8 {
				key := model.EndpointKey{Network: model.NetworkKey{Tenant: "t", Name: "n"}, ID: model.EndpointID(fmt.Sprint("more", n))}
				s.Backends = s.Backends.Set(key, &desired.Backend{Network: s.Network, IPv4: netip.MustParseAddr("10.7.0.2"), Identity: 300, VTEP: vtep2})
			}
		}
		with := pic
		with.Services = with.Services.Set(s.Key, &s)
		apply(with)
		r.ask(t, client, s.IPv4, 9000)
		living()
		if got := held(); got["translations"] != before["translations"]+2 || got["affines"] != before["affines"]+1 {
			t.Fatalf("round %d: with a connection to another service %v", i, got)
		}
		apply(pic)
		living()
		if got := held(); !maps.Equal(got, before) {
			t.Fatalf("round %d: the maps hold %v, before %v", i, got, before)
		}
	}
	for k, id := range owners {
		if now := translated()[k]; now != id {
			t.Errorf("%+v is another backend's", k)
		}
	}
	t.Logf("%d packets of %d connections, none lost", sent, lasting)
}
