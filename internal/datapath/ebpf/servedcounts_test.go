package ebpf

import (
	"maps"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestServiceCountsOutlastARestart: what is counted of services outlasts a restart of the driver; of a
// backend that has left it stays as long as connections to it do, of a service that
// goes not at all; and the places are free for others then.
func TestServiceCountsOutlastARestart(t *testing.T) {
	r := newRig(t)
	drv := r.open(t)
	defer func() { _ = drv.Close() }()
	client, pic, vips, itself := r.served(t)
	apply := func() {
		t.Helper()
		if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
	}
	sweep := func() {
		t.Helper()
		now, err := monotonic()
		if err == nil {
			err = r.drv.countTables(now)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	counted := func(when string, want map[string]driver.ServiceStats, places uint64) {
		t.Helper()
		s, err := drv.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]driver.ServiceStats{}
		for of, n := range s.Services {
			if of.Port != 53 || of.Protocol != model.ProtoUDP || string(of.Backend.ID) != of.Service.Name || n.BytesOut != 58*n.PacketsOut {
				t.Errorf("%s: %+v: %+v", when, of, n)
			}
			name, n6 := of.Service.Name, n
			if of.IPv6 {
				name += " 6"
			}
			n6.BytesOut = 0
			got[name] = n6
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: counted %+v, want %+v", when, got, want)
		}
		if sweep(); r.drv.Tables()["counted"].Entries != places {
			t.Errorf("%s: %d places are taken, want %d", when, r.drv.Tables()["counted"].Entries, places)
		}
	}
	apply()
	for port := range uint16(3) {
		r.ask(t, client, vips[0], 4000+port)
	}
	r.ask(t, client, vips[0], 4000)
	r.ask(t, client, itself[0], 4000)
	want := map[string]driver.ServiceStats{"far": {Connections: 3, Total: 3, PacketsOut: 4}, "itself": {Connections: 1, Total: 1, PacketsOut: 1}}
	counted("at first", want, 2)
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
	drv = r.open(t)
	if sweep(); r.drv.Tables()["counted"].Entries != 0 {
		t.Error("a driver that knows no desired state counts places")
	}
	apply()
	counted("after a restart", want, 2)

	far := model.ServiceKey{Tenant: "t", Name: "far"}
	with, _ := pic.Services.Get(far)
	without := *with
	without.Backends = desired.Map[model.EndpointKey, *desired.Backend]{}
	pic.Services = pic.Services.Set(far, &without)
	apply()
	counted("once its backend has left", want, 2)
	if err := r.drv.dp.conns.sweep(func(connKey, conn) bool { return true }); err != nil {
		t.Fatal(err)
	}
	sweep() // takes out the translations
	sweep()
	delete(want, "far")
	want["itself"] = driver.ServiceStats{Total: 1, PacketsOut: 1}
	counted("once its connections have ended", want, 1)

	pic.Services = pic.Services.Set(far, with)
	apply()
	r.ask(t, client, vips[0], 4000)
	want["far"] = driver.ServiceStats{Connections: 1, Total: 1, PacketsOut: 1}
	counted("once it is back", want, 2)
	pic.Services = pic.Services.Delete(far)
	apply()
	pic.Services = pic.Services.Set(far, with)
	apply()
	delete(want, "far") // its connection has ended with it
	counted("once the service was gone", want, 1)
}
