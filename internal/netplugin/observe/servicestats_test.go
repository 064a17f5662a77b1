package observe

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestBusiestServicesHaveSeries: the busiest hundred services have series, which grow and do not
// fall; the others share one; what lives is as it is now.
func TestBusiestServicesHaveSeries(t *testing.T) {
	of := func(name, backend string) driver.ServiceOf {
		return driver.ServiceOf{Service: model.ServiceKey{Tenant: "t", Name: name}, Backend: model.EndpointKey{ID: model.EndpointID(backend)}}
	}
	m := serviceSums{}
	before := map[driver.ServiceOf]driver.ServiceStats{}
	now := map[driver.ServiceOf]driver.ServiceStats{of("s000", "b"): {Total: 1, Connections: 2}}
	for i := range 200 {
		now[of(fmt.Sprintf("s%03d", i), "a")] = driver.ServiceStats{Total: uint64(i), PacketsIn: 1, BytesOut: 10, Connections: 1}
	}
	m.add(now, before)
	if len(m) != maxServiceSeries+1 || m["t:s199"].Total != 199 || m["t:s099"] != nil || m[otherSeries].Total != 99*100/2+1 || m[otherSeries].Connections != 102 {
		t.Errorf("%d series, %+v, the others %+v", len(m), m["t:s199"], m[otherSeries])
	}
	before, now = now, map[driver.ServiceOf]driver.ServiceStats{
		of("s199", "a"): {Total: 5, PacketsIn: 3, Connections: 4}, // from zero
		of("s198", "a"): {Total: 200, BytesOut: 11}, of("s198", "b"): {Total: 2, Connections: 7}, of("s000", "a"): {Total: 3},
	}
	m.add(now, before)
	want := serviceSums{
		"t:s199": {Total: 199, PacketsIn: 3, BytesOut: 10, Connections: 4}, "t:s198": {Total: 202, PacketsIn: 1, BytesOut: 11, Connections: 7},
		"t:s000": {Total: 3}, otherSeries: {Total: 99*100/2 + 1, PacketsIn: 100, BytesOut: 1000},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestServiceCountersHaveTheShapeOf1x: the counters in 1.x's shape, by client, service and provider.
func TestServiceCountersHaveTheShapeOf1x(t *testing.T) {
	n := model.NetworkKey{Tenant: "blue", Name: "n"}
	c1, p1, gone := model.EndpointKey{Network: n, ID: "c1"}, model.EndpointKey{Network: n, ID: "p1"}, model.EndpointKey{Network: n, ID: "gone"}
	addrs := map[model.EndpointKey]netip.Addr{c1: netip.MustParseAddr("10.1.0.2"), p1: netip.MustParseAddr("10.1.0.3")}
	web, two := model.ServiceKey{Tenant: "blue", Name: "web"}, model.ServiceKey{Tenant: "blue", Name: "two"}
	var services desired.Map[model.ServiceKey, *desired.Service]
	tcp := desired.ServicePort{Protocol: model.ProtoTCP, Port: 80, Backend: 8080}
	services = services.Set(web, &desired.Service{Key: web, IPv4: netip.MustParseAddr("10.1.0.100"), Ports: []desired.ServicePort{tcp}})
	elsewhere := model.EndpointKey{Network: n, ID: "elsewhere"} // on another host, whose endpoints no agent has but as providers
	services = services.Set(two, &desired.Service{
		Key: two, IPv6: netip.MustParseAddr("fd00::100"), Ports: []desired.ServicePort{tcp, {Protocol: model.ProtoUDP, Port: 53, Backend: 53}},
		Backends: desired.Map[model.EndpointKey, *desired.Backend]{}.Set(elsewhere, &desired.Backend{IPv4: netip.MustParseAddr("10.1.0.4"), IPv6: netip.MustParseAddr("fd00::4")}),
	})
	of := func(s model.ServiceKey, client, backend model.EndpointKey) driver.ServiceOf {
		return driver.ServiceOf{Service: s, Protocol: model.ProtoTCP, Port: 80, Backend: backend, Client: client}
	}
	six, far := of(two, model.EndpointKey{}, gone), of(two, model.EndpointKey{}, elsewhere)
	six.IPv6, far.IPv6 = true, true
	got, err := json.Marshal(clientsOf(driver.Stats{
		Ports: map[string]driver.PortStats{"cv1": {Endpoint: c1, RxPackets: 9, TxBytes: 8}},
		Services: map[driver.ServiceOf]driver.ServiceStats{
			of(web, c1, p1):   {Connections: 1, Total: 2, PacketsIn: 3, BytesIn: 4, PacketsOut: 5, BytesOut: 6},
			of(web, c1, gone): {Total: 1, PacketsIn: 1},
			six:               {Total: 7},
			far:               {Total: 8},
			of(model.ServiceKey{Tenant: "blue", Name: "gone"}, c1, p1): {Total: 1},
		},
	}, services, func(k model.EndpointKey, v6 bool) netip.Addr {
		if v6 {
			return netip.Addr{}
		}
		return addrs[k]
	}))
	want := `[{"EndpointIP":"","VrfName":"blue","PortStats":{"PacketsIn":0,"BytesIn":0,"PacketsOut":0,"BytesOut":0},` +
		`"SvcStats":{"[fd00::100]:80/tcp":{"ServiceIP":"fd00::100","ServiceVRF":"blue","Protocol":"tcp","SvcPort":"80","ProvPort":"8080",` +
		`"SvcStats":{"PacketsIn":0,"BytesIn":0,"PacketsOut":0,"BytesOut":0},` +
		`"ProvStats":{"blue:n:gone":{"ProviderIP":"blue:n:gone","ServiceIP":"fd00::100","ServiceVrf":"blue","PacketsIn":0,"BytesIn":0,"PacketsOut":0,"BytesOut":0,"Connections":0,"Total":7},` +
		`"fd00::4":{"ProviderIP":"fd00::4","ServiceIP":"fd00::100","ServiceVrf":"blue","PacketsIn":0,"BytesIn":0,"PacketsOut":0,"BytesOut":0,"Connections":0,"Total":8}}}}},` +
		`{"EndpointIP":"10.1.0.2","VrfName":"blue","PortStats":{"PacketsIn":9,"BytesIn":0,"PacketsOut":0,"BytesOut":8},` +
		`"SvcStats":{"10.1.0.100":{"ServiceIP":"10.1.0.100","ServiceVRF":"blue","Protocol":"tcp","SvcPort":"80","ProvPort":"8080",` +
		`"SvcStats":{"PacketsIn":4,"BytesIn":4,"PacketsOut":5,"BytesOut":6},` +
		`"ProvStats":{"10.1.0.3":{"ProviderIP":"10.1.0.3","ServiceIP":"10.1.0.100","ServiceVrf":"blue","PacketsIn":3,"BytesIn":4,"PacketsOut":5,"BytesOut":6,"Connections":1,"Total":2},` +
		`"blue:n:gone":{"ProviderIP":"blue:n:gone","ServiceIP":"10.1.0.100","ServiceVrf":"blue","PacketsIn":1,"BytesIn":0,"PacketsOut":0,"BytesOut":0,"Connections":0,"Total":1}}}}}]`
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if none, err := json.Marshal(clientsOf(driver.Stats{}, services, nil)); err != nil || string(none) != "[]" {
		t.Errorf("of nothing: %s, %v", none, err)
	}
}
