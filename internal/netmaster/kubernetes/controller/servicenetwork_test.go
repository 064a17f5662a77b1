package controller

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestServiceIsOnTheNetworkOfItsPods: it moves there with the slice that names them, stays while
// there are none, and comes back with the network's end. Pods of other namespaces do not count.
func TestServiceIsOnTheNetworkOfItsPods(t *testing.T) {
	l := newServicesLab(t, nil)
	l.start(l.ctrl.Run)
	l.start(l.services.Run)
	l.lead(l.leader())
	l.network("default:default-net", "10.1.0.0/16")
	pods := map[string]model.Endpoint{}
	add := func(name string, namespace model.NamespaceName, network model.NetworkKey, at string) {
		t.Helper()
		e := model.Endpoint{
			Key: model.EndpointKey{Network: network, ID: model.EndpointID(name)}, Host: "h1", IPv4: netip.MustParseAddr(at),
			Namespace: namespace, Pod: model.Pod{Name: name, UID: "uid-" + name},
		}
		pods[name] = e
		if _, err := l.st.Update(t.Context(), func(tx store.Tx) error { return tables.Endpoints.Put(tx, e) }); err != nil {
			t.Fatal(err)
		}
	}
	blue := model.NetworkKey{Tenant: "blue", Name: "net"}
	if _, err := l.st.Update(t.Context(), func(tx store.Tx) error {
		return tables.Networks.Put(tx, model.Network{Key: blue, ID: 7, Encap: model.EncapVXLAN, Tag: 7, Subnet: netip.MustParsePrefix("10.2.0.0/16")})
	}); err != nil {
		t.Fatal(err)
	}
	add("other", "elsewhere", blue, "10.2.0.1")
	add("own", "ns", blue, "10.2.0.2")
	add("plain", "ns", model.ClusterNetworkKey, "10.1.0.2")
	backed := func(names ...string) *discoveryv1.EndpointSlice {
		s := endpointSlice("web-1", "web")
		for _, name := range names {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{pods[name].IPv4.String()}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: name, Namespace: "ns", UID: types.UID("uid-" + name)},
			})
		}
		return s
	}
	is := func(want model.NetworkKey, what string) {
		t.Helper()
		var got model.NetworkKey
		l.until(func() bool {
			v, err := l.ctrl.View(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			s, _ := v.Kubernetes.ClusterService(model.ClusterServiceKey{Namespace: "ns", Name: "web"})
			got = s.Network
			return got == want
		}, func() string { return fmt.Sprintf("%s: the service is on %s, want %s", what, got, want) })
	}
	slices := l.sources[mirror.EndpointSlices]
	l.sources[mirror.Services].Add(service("web", "10.96.0.9"))
	slices.Add(backed("other"))
	l.want("service ns/web [10.96.0.9] [] [] 1", "slice ns/web-1 of web [10.2.0.1]")
	is(model.ClusterNetworkKey, "a slice that names another namespace's pod")
	slices.Modify(backed("own"))
	is(blue, "its own pod")
	slices.Modify(backed())
	l.want("service ns/web [10.96.0.9] [] [] 1", "slice ns/web-1 of web []")
	is(blue, "no pod")
	slices.Modify(backed("own", "plain"))
	is(model.ClusterNetworkKey, "one of its pods is on the cluster's network")
	slices.Modify(backed("own"))
	is(blue, "and is no longer")
	slices.Modify(backed())
	l.want("service ns/web [10.96.0.9] [] [] 1", "slice ns/web-1 of web []")
	if _, err := l.st.Update(t.Context(), func(tx store.Tx) error {
		tables.Endpoints.Delete(tx, pods["own"].Key)
		tables.Endpoints.Delete(tx, pods["other"].Key)
		tables.Networks.Delete(tx, blue)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	is(model.ClusterNetworkKey, "its network is deleted")
}
