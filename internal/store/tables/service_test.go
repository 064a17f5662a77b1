package tables

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// Records of version 1, in the words of 1.x and of Kubernetes, are read as general
// services.
func TestRecordsOf1xServicesAreRead(t *testing.T) {
	addr := netip.MustParseAddr
	for _, tc := range []struct {
		name, key, old string
		want           model.Service
	}{
		{
			name: "of 1.x, of both families", key: LoadBalancers.Key(model.ServiceKey{Tenant: "a.b", Name: "s"}),
			old: `{"v":1,"d":{"key":{"tenant":"a.b","name":"s"},"network":"n","reqAddr6":"fd00::9","vip":"10.1.1.9","vip6":"fd00::9","selectors":[{"key":"app","value":"web"}],` +
				`"ports":[{"port":80,"provider":8080,"protocol":6,"name":"http","text":"80:8080:TCP:http"},{"port":53,"provider":5353,"protocol":17,"text":"53:5353:udp"}],"affinity":600}}`,
			want: model.Service{
				Key: model.ServiceKey{Tenant: "a.b", Name: "s"}, Network: model.NetworkKey{Tenant: "a.b", Name: "n"}, ReqAddr6: addr("fd00::9"),
				Addrs: []netip.Addr{addr("10.1.1.9"), addr("fd00::9")}, Selectors: []model.ServiceSelector{{Key: "app", Value: "web"}}, Affinity: 600,
				Ports: []model.ServicePort{
					{Port: 80, Target: 8080, Protocol: model.ProtoTCP, Name: "http", Text: "80:8080:TCP:http"},
					{Port: 53, Target: 5353, Protocol: model.ProtoUDP, Text: "53:5353:udp"},
				},
			},
		},
		{
			name: "of 1.x, of IPv6 alone", key: LoadBalancers.Key(model.ServiceKey{Tenant: "a.b", Name: "s"}),
			old: `{"v":1,"d":{"key":{"tenant":"a.b","name":"s"},"network":"n","reqAddr":"fd00::9","vip":"fd00::9","selectors":[],"ports":[]}}`,
			want: model.Service{
				Key: model.ServiceKey{Tenant: "a.b", Name: "s"}, Network: model.NetworkKey{Tenant: "a.b", Name: "n"}, ReqAddr: addr("fd00::9"),
				Addrs: []netip.Addr{addr("fd00::9")},
			},
		},
		{
			name: "of Kubernetes", key: ClusterServices.Key(model.ClusterServiceKey{Namespace: "ns", Name: "s"}),
			old: `{"v":1,"d":{"key":{"namespace":"ns","name":"s"},"addrs":["10.96.0.9"],"balanced":["203.0.113.7"],"sources":["10.0.0.0/8"],"onlySources":true,` +
				`"ports":[{"name":"http","protocol":6,"port":80,"node":30080}],"outsideLocal":true,"near":"zone","healthPort":30999}}`,
			want: model.Service{
				Key: model.ServiceKey{Tenant: model.DefaultTenant, Name: "ns/s"}, Owner: model.OwnerKubernetes, Network: model.ClusterNetworkKey,
				Addrs: []netip.Addr{addr("10.96.0.9")}, Balanced: []netip.Addr{addr("203.0.113.7")}, Sources: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, OnlySources: true,
				Ports: []model.ServicePort{{Name: "http", Protocol: model.ProtoTCP, Port: 80, Node: 30080}}, OutsideLocal: true, Near: model.NearZone, HealthPort: 30999, Affinity: model.NoAffinity,
			},
		},
		{
			name: "of Kubernetes, with affinity", key: ClusterServices.Key(model.ClusterServiceKey{Namespace: "ns", Name: "s"}),
			old:  `{"v":1,"d":{"key":{"namespace":"ns","name":"s"},"affinity":60}}`,
			want: model.Service{Key: model.ServiceKey{Tenant: model.DefaultTenant, Name: "ns/s"}, Owner: model.OwnerKubernetes, Network: model.ClusterNetworkKey, Affinity: 60},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ch, err := Decode(store.Event{KV: store.KV{Key: tc.key, Value: []byte(tc.old), Create: 1}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, ch.Value, cmpAddrs, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			st := memory.New()
			var written []byte
			if _, err := st.Update(t.Context(), func(tx store.Tx) error {
				tx.Put(tc.key, []byte(tc.old), nil)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := st.Update(t.Context(), func(tx store.Tx) error {
				if tc.want.Owner == "" {
					return LoadBalancers.Put(tx, tc.want)
				}
				return ClusterServices.Put(tx, tc.want)
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := st.Update(t.Context(), func(tx store.Tx) error {
				kv, err := tx.Get(tc.key)
				written = kv.Value
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if now, err := store.EncodeRecord(2, tc.want); err != nil || string(now) != string(written) {
				t.Errorf("written over it: %s, want %s", written, now)
			}
		})
	}
}
