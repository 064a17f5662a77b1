package apiserver

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestServicesOfKubernetesAreShownAndNotChanged: services of Kubernetes are shown with their backends, which are
// endpoints where the pod's endpoint has the address; requests cannot change them.
func TestServicesOfKubernetesAreShownAndNotChanged(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	ctx := t.Context()
	if all, err := f.ClusterServices(ctx); err != nil || all == nil || len(all) != 0 {
		t.Errorf("none: %#v, %v", all, err)
	}
	addr := netip.MustParseAddr
	key := model.ClusterServiceKey{Namespace: "shop", Name: "web"}
	service := model.Service{
		Key: key.ServiceKey(), Owner: model.OwnerKubernetes, Network: model.ClusterNetworkKey, Addrs: []netip.Addr{addr("10.96.0.9"), addr("fd00:96::9")}, Balanced: []netip.Addr{addr("203.0.113.1")}, External: []netip.Addr{addr("203.0.113.9")},
		Sources: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, OnlySources: true, Affinity: 600, InsideLocal: true, OutsideLocal: true, Near: model.NearZone, HealthPort: 31000,
		Ports: []model.ServicePort{{Name: "http", Protocol: model.ProtoTCP, Port: 80, Node: 30080}, {Name: "dns", Protocol: model.ProtoUDP, Port: 53}},
	}
	pod := model.Endpoint{
		Key: model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "n"}, ID: "pod"}, Host: "host1", IPv4: addr("10.1.1.77"),
		Namespace: "shop", Pod: model.Pod{Name: "web-1", UID: "u-1"},
	}
	slice := model.ServiceSlice{
		Key: model.ServiceSliceKey{Namespace: "shop", Name: "web-x"}, Service: "web", Ports: []model.SlicePort{{Protocol: model.ProtoUDP, Port: 5353, Name: "dns"}, {Protocol: model.ProtoTCP, Port: 8080}},
		Backends: []model.ServiceBackend{
			{Addr: addr("10.1.1.77"), Pod: "u-1", Node: "n1", Zone: "z"},
			{Addr: addr("10.1.1.78"), Pod: "u-1", State: model.ServiceBackendDraining}, // as the writer of the slice says
			{Addr: addr("192.168.7.1"), State: model.ServiceBackendUnready},
		},
	}
	if _, err := f.mem.Update(ctx, func(tx store.Tx) error {
		bare := model.Service{Key: model.ClusterServiceKey{Namespace: "shop", Name: "bare"}.ServiceKey(), Affinity: model.NoAffinity}
		return errors.Join(tables.ClusterServices.Put(tx, service), tables.ClusterServices.Put(tx, bare), tables.ServiceSlices.Put(tx, slice), tables.Endpoints.Put(tx, pod))
	}); err != nil {
		t.Fatal(err)
	}
	want := api.ClusterService{
		ServiceName: "shop/web", Owner: "kubernetes", TenantName: "default", NetworkName: "default-net", Addresses: []string{"10.96.0.9", "fd00:96::9"}, Balanced: []string{"203.0.113.1"}, External: []string{"203.0.113.9"},
		Sources: []string{"10.0.0.0/8"}, OnlySources: true, Affinity: "10m", InternalPolicy: "local", ExternalPolicy: "local", Near: "zone", HealthPort: 31000, Ready: 1, All: 3,
		Ports: []api.ClusterPort{{Name: "http", Protocol: "tcp", Port: 80, NodePort: 30080}, {Name: "dns", Protocol: "udp", Port: 53}},
	}
	bare := api.ClusterService{ServiceName: "shop/bare", Owner: "kubernetes", Addresses: []string{}, Ports: []api.ClusterPort{}}
	all, err := f.ClusterServices(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]api.ClusterService{bare, want}, all); d != "" {
		t.Error(d)
	}
	ports := []string{"dns:5353/udp", "8080/tcp"}
	want.Backends = []api.ClusterBackend{
		{Address: "10.1.1.77", Slice: "web-x", Pod: "u-1", Node: "n1", Zone: "z", Endpoint: "blue:n:pod", Host: "host1", Ports: ports},
		{Address: "10.1.1.78", Slice: "web-x", Pod: "u-1", State: "draining", Ports: ports},
		{Address: "192.168.7.1", Slice: "web-x", State: "unready", Ports: ports},
	}
	one, err := f.ClusterService(ctx, "shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, one); d != "" {
		t.Error(d)
	}
	for _, name := range []string{"none", "a b", "*"} {
		if _, err := f.ClusterService(ctx, "shop", name); !api.IsNotFound(err) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if status, _ := f.do("DELETE", "/api/v1/clusterServices/shop/web", ""); status != 405 {
		t.Errorf("deleting it: %d", status)
	}
}
