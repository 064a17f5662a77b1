package translate

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/model"
)

func TestSlicesAreTranslatedOrReported(t *testing.T) {
	const mine = `"labels":{"kubernetes.io/service-name":"web"}`
	one := func(endpoint string) string { return `"addressType":"IPv4","endpoints":[` + endpoint + `]` }
	for name, tc := range map[string]struct {
		meta, rest string
		want       string
		problem    string
	}{
		"a pod": {
			mine, `"ports":[{"name":"http","port":8080,"protocol":"TCP"},{"name":"dns","port":53,"protocol":"UDP"}],` +
				one(`{"addresses":["10.1.0.7"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"n1","zone":"a","targetRef":{"kind":"Pod","namespace":"ns","name":"web-1","uid":"u-1"},"hints":{"forZones":[{"name":"b"},{"name":"a"}],"forNodes":[{"name":"n1"}]}}`),
			`{"backends":[{"addr":"10.1.0.7","pod":"u-1","node":"n1","zone":"a","forZones":["a","b"],"forNodes":["n1"]}],"ports":[{"name":"dns","protocol":17,"port":53},{"name":"http","protocol":6,"port":8080}],"service":"web"}`, "",
		},
		"by hand":              {mine, `"ports":[{"port":443}],` + one(`{"addresses":["192.168.7.1"]},{"addresses":["10.1.0.7","10.1.0.8"]}`), `{"backends":[{"addr":"10.1.0.7"},{"addr":"192.168.7.1"}],"ports":[{"protocol":6,"port":443}],"service":"web"}`, ""},
		"IPv6":                 {mine, `"addressType":"IPv6","endpoints":[{"addresses":["fd00:1::7"]}]`, `{"backends":[{"addr":"fd00:1::7"}],"service":"web"}`, ""},
		"of another family":    {mine, `"addressType":"IPv6","endpoints":[{"addresses":["10.1.0.7"]}]`, `{"service":"web"}`, `endpoints[0].addresses: "10.1.0.7" is no IPv6 address of a single machine: it is no backend`},
		"not ready":            {mine, one(`{"addresses":["10.1.0.7"],"conditions":{"ready":false}}`), `{"backends":[{"addr":"10.1.0.7","state":"unready"}],"service":"web"}`, ""},
		"serving, not ready":   {mine, one(`{"addresses":["10.1.0.7"],"conditions":{"ready":false,"serving":true}}`), `{"backends":[{"addr":"10.1.0.7","state":"unready"}],"service":"web"}`, ""},
		"ends and serves":      {mine, one(`{"addresses":["10.1.0.7"],"conditions":{"ready":false,"serving":true,"terminating":true}}`), `{"backends":[{"addr":"10.1.0.7","state":"draining"}],"service":"web"}`, ""},
		"ends":                 {mine, one(`{"addresses":["10.1.0.7"],"conditions":{"ready":false,"serving":false,"terminating":true}}`), `{"backends":[{"addr":"10.1.0.7","state":"unready"}],"service":"web"}`, ""},
		"ends, is said ready":  {mine, one(`{"addresses":["10.1.0.7"],"conditions":{"ready":true,"terminating":true}}`), `{"backends":[{"addr":"10.1.0.7"}],"service":"web"}`, ""},
		"twice":                {mine, one(`{"addresses":["10.1.0.7"],"conditions":{"ready":false}},{"addresses":["10.1.0.7"],"zone":"b"}`), `{"backends":[{"addr":"10.1.0.7","zone":"b"}],"service":"web"}`, ""},
		"of no pod":            {mine, one(`{"addresses":["10.1.0.7"],"targetRef":{"kind":"Node","name":"n1","uid":"u"}}`), `{"backends":[{"addr":"10.1.0.7"}],"service":"web"}`, ""},
		"without address":      {mine, one(`{"addresses":[]}`), `{"service":"web"}`, `endpoints[0].addresses: is empty: it is no backend`},
		"link-local":           {mine, one(`{"addresses":["169.254.169.254"]}`), `{"service":"web"}`, `endpoints[0].addresses: "169.254.169.254" is no IPv4 address of a single machine: it is no backend`},
		"names":                {mine, `"addressType":"FQDN","endpoints":[{"addresses":["a.example.com"]}]`, `null`, ""},
		"unknown kind":         {mine, `"addressType":"IPX","endpoints":[{"addresses":["1"]}]`, `{"service":"web"}`, `addressType: "IPX" is not known: its endpoints are not used`},
		"nobody's":             {`"labels":{}`, one(`{"addresses":["10.1.0.7"]}`), `null`, ""},
		"of a headless one":    {`"labels":{"kubernetes.io/service-name":"web","service.kubernetes.io/headless":""}`, one(`{"addresses":["10.1.0.7"]}`), `null`, ""},
		"of another proxy":     {`"labels":{"kubernetes.io/service-name":"web","service.kubernetes.io/service-proxy-name":"x"}`, one(`{"addresses":["10.1.0.7"]}`), `null`, ""},
		"any port":             {mine, `"ports":[{"name":"a"}],` + one(``), `{"service":"web"}`, "ports[0]: is not a port of TCP, UDP or SCTP: it has no effect"},
		"a port's name twice":  {mine, `"ports":[{"name":"a","port":1},{"name":"a","port":2}],` + one(``), `{"ports":[{"name":"a","protocol":6,"port":1}],"service":"web"}`, `ports[1]: a port "a" of tcp is there before: this one is not asked`},
		"names that are none":  {mine, one(`{"addresses":["10.1.0.7"],"nodeName":"a b","zone":"\u001b[0m","targetRef":{"kind":"Pod","uid":"\u0007"}}`), `{"backends":[{"addr":"10.1.0.7"}],"service":"web"}`, ""},
		"hints that are none":  {mine, one(`{"addresses":["10.1.0.7"],"hints":{"forZones":[{"name":"\u0007"}],"forNodes":[{"name":"a b"}]}}`), `{"backends":[{"addr":"10.1.0.7"}],"service":"web"}`, ""},
		"an unknown protocol":  {mine, `"ports":[{"port":1,"protocol":"GRE"}],` + one(``), `{"service":"web"}`, "ports[0]: is not a port of TCP, UDP or SCTP: it has no effect"},
		"conditions not known": {mine, one(`{"addresses":["10.1.0.7"],"conditions":{}}`), `{"backends":[{"addr":"10.1.0.7"}],"service":"web"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := decoded[discoveryv1.EndpointSlice](t, `{"metadata":{"namespace":"ns","name":"web-x7","uid":"u",`+tc.meta+`},`+tc.rest+`}`)
			got, found := Slice(in)
			if text := inJSON(t, got); text != tc.want {
				t.Errorf("the row is\n%s, want\n%s", text, tc.want)
			}
			if got != nil {
				if _, err := model.Check(*got); err != nil || got.Key.String() != "ns/web-x7" {
					t.Errorf("%s: %v", got.Key, err)
				}
			}
			if problemTexts(found) != tc.problem {
				t.Errorf("told\n%s, want\n%s", problemTexts(found), tc.problem)
			}
		})
	}
}

// TestLargeSlicesAreCutAndReported: more than rows hold is cut and said.
func TestLargeSlicesAreCutAndReported(t *testing.T) {
	in := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, AddressType: discoveryv1.AddressTypeIPv4}
	for i := range 1100 {
		in.Endpoints = append(in.Endpoints, discoveryv1.Endpoint{Addresses: []string{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String()}})
		name, port := fmt.Sprint("p", i), int32(i+1)
		in.Ports = append(in.Ports, discoveryv1.EndpointPort{Name: &name, Port: &port})
	}
	hints := &discoveryv1.EndpointHints{}
	for i := range 20 {
		hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: strconv.Itoa(i)})
		hints.ForNodes = append(hints.ForNodes, discoveryv1.ForNode{Name: strconv.Itoa(i)})
	}
	in.Endpoints[0].Hints = hints
	got, found := Slice(in)
	if _, err := model.Check(*got); err != nil {
		t.Fatal(err)
	}
	if len(got.Backends) != model.MaxSliceBackends || len(got.Ports) != model.MaxSlicePorts || len(found) != 2 || len(got.Backends[0].ForZones) != model.MaxHints {
		t.Errorf("%d backends, %d ports, %d hints, told %s", len(got.Backends), len(got.Ports), len(got.Backends[0].ForZones), problemTexts(found))
	}
}

func TestNodesHaveTheirAddressesAndZone(t *testing.T) {
	in := decoded[corev1.Node](t, `{"metadata":{"name":"n1","labels":{"topology.kubernetes.io/zone":"a"}},"status":{"addresses":[
		{"type":"Hostname","address":"n1"},{"type":"ExternalIP","address":"203.0.113.5"},{"type":"InternalIP","address":"192.168.7.1"},
		{"type":"InternalIP","address":"fd00::1"},{"type":"InternalIP","address":"127.0.0.1"},{"type":"InternalDNS","address":"10.0.0.1"},{"type":"ExternalIP","address":"192.168.7.1"}]}}`)
	if got, want := inJSON(t, Node(in)), `{"addrs":["192.168.7.1","203.0.113.5","fd00::1"],"name":"n1","zone":"a"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestServiceRangesAreValidAndDistinct(t *testing.T) {
	all := []*networkingv1.ServiceCIDR{
		{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "fd00:96::/112"}}},
		{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.1/16", "x", "0.0.0.0/0"}}},
	}
	got := Ranges(all, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.0.0.0/24")})
	if text := fmt.Sprint(got.Ranges); text != "[10.0.0.0/24 10.96.0.0/16 10.97.0.0/16 fd00:96::/112]" {
		t.Error(text)
	}
	if _, err := model.Check(got); err != nil {
		t.Error(err)
	}
	if _, err := model.Check(Ranges(nil, nil)); err != nil {
		t.Error(err)
	}
}

// FuzzServices: whatever an API server says, a row is one that the store takes, and
// the same object is the same row.
func FuzzServices(f *testing.F) {
	for _, s := range []string{
		`{"metadata":{"namespace":"ns","name":"web"},"spec":{"type":"LoadBalancer","clusterIPs":["10.96.0.9","fd00::1"],"externalIPs":["203.0.113.1"],"loadBalancerSourceRanges":["10.0.0.0/8"],"ports":[{"name":"a","port":80,"nodePort":30080}],"sessionAffinity":"ClientIP"},"status":{"loadBalancer":{"ingress":[{"ip":"198.51.100.1"}]}}}`,
		`{"metadata":{"namespace":"ns","name":"web-1","labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4","ports":[{"name":"a","port":1}],"endpoints":[{"addresses":["10.1.0.7"],"nodeName":"n","zone":"z","hints":{"forZones":[{"name":"z"}]}}]}`,
		`{"metadata":{"name":"n1","labels":{"topology.kubernetes.io/zone":"z"}},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}`,
		`{"spec":{"cidrs":["10.96.0.0/16"]}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		service, slice, node, cidr := &corev1.Service{}, &discoveryv1.EndpointSlice{}, &corev1.Node{}, &networkingv1.ServiceCIDR{}
		for _, o := range []any{service, slice, node, cidr} {
			_ = json.Unmarshal([]byte(text), o) // what it read counts
		}
		// An API server's names are good.
		for _, m := range []*metav1.ObjectMeta{&service.ObjectMeta, &slice.ObjectMeta, &node.ObjectMeta} {
			m.Namespace, m.Name = "ns", "web"
		}
		if slice.Labels != nil {
			slice.Labels[discoveryv1.LabelServiceName] = "web"
		}
		a := addressing()
		row, _ := a.Service(service)
		if row != nil {
			if _, err := model.Check(*row); err != nil {
				t.Error(err)
			}
			if again, _ := a.Service(service); !again.Equal(*row) {
				t.Errorf("%v is %v the second time", row, again)
			}
			for _, addr := range append(row.Addrs, row.External...) {
				if a.DescribeOwner(addr) != "" {
					t.Errorf("%s is somebody else's", addr)
				}
			}
		}
		if row, _ := Slice(slice); row != nil {
			if _, err := model.Check(*row); err != nil {
				t.Error(err)
			}
			if again, _ := Slice(slice); !again.Equal(*row) {
				t.Errorf("%v is %v the second time", row, again)
			}
		}
		if _, err := model.Check(Node(node)); err != nil {
			t.Error(err)
		}
		if _, err := model.Check(Ranges([]*networkingv1.ServiceCIDR{cidr}, nil)); err != nil {
			t.Error(err)
		}
	})
}
