package translate

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/model"
)

// addressing: 10.1.0.0/16 is a network's, 192.168.7.1 a node's, 10.96.0.0/16 services'.
func addressing() Addressing {
	within := func(p, whose string) func(netip.Addr) string {
		return func(a netip.Addr) string {
			if netip.MustParsePrefix(p).Contains(a) {
				return whose
			}
			return ""
		}
	}
	return Addressing{
		DescribeOwner: func(a netip.Addr) string {
			return within("10.1.0.0/16", "lies in network default:pods")(a) + within("192.168.7.1/32", "is node n1's")(a)
		},
		DescribeServiceOwner: func(a netip.Addr, ports []model.ServicePort) string {
			if at := within("203.0.113.200/32", "leads to service ns/other at port 80 of tcp")(a); at != "" && len(ports) > 0 && ports[0].Port == 80 {
				return at
			}
			return within("10.96.0.0/16", "lies in the services' range 10.96.0.0/16")(a)
		},
		External: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("10.0.0.0/8")},
		Network:  model.ClusterNetworkKey,
	}
}

// decoded is an object as its manifest has it.
func decoded[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// inJSON is a row as the store has it, without its key.
func inJSON(t *testing.T, row any) string {
	t.Helper()
	raw, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &fields) != nil || len(fields) == 0 {
		return string(raw)
	}
	for _, all := range []string{"key", "owner", "networkKey"} { // of which all rows have the same
		delete(fields, all)
	}
	if string(fields["affinity"]) == "-1" {
		delete(fields, "affinity")
	}
	raw, err = json.Marshal(fields) // sorted
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func problemTexts(found []Problem) string {
	var out []string
	for _, p := range found {
		out = append(out, p.String())
	}
	return strings.Join(out, "; ")
}

func TestServicesAreTranslatedOrReported(t *testing.T) {
	const http = `"clusterIP":"10.96.0.9","clusterIPs":["10.96.0.9"],"ports":[{"port":80}]`
	const row = `"addrs":["10.96.0.9"]`
	const port = `"ports":[{"protocol":6,"port":80}]`
	for name, tc := range map[string]struct {
		spec, status string
		pool         bool
		want         string // of the row; null = none
		problem      string // all of them
	}{
		"one port": {`{` + http + `}`, `{}`, false, `{` + row + `,` + port + `}`, ""},
		"both families, IPv6 first, ports of all protocols": {
			`{"clusterIPs":["fd00:96::9","10.96.0.9"],"ports":[{"name":"s","port":7,"protocol":"SCTP"},{"name":"d","port":53,"protocol":"UDP"},{"name":"h","port":443,"protocol":"TCP"},{"name":"g","port":80}]}`, `{}`, false,
			`{"addrs":["10.96.0.9","fd00:96::9"],"ports":[{"name":"g","protocol":6,"port":80},{"name":"h","protocol":6,"port":443},{"name":"d","protocol":17,"port":53},{"name":"s","protocol":132,"port":7}]}`, "",
		},
		"an API server that knows one family": {`{"clusterIP":"10.96.0.9","ports":[{"port":80}]}`, `{}`, false, `{` + row + `,` + port + `}`, ""},
		"headless":                            {`{"clusterIP":"None","clusterIPs":["None"],"ports":[{"port":80}]}`, `{}`, false, "null", ""},
		"another name":                        {`{"type":"ExternalName","externalName":"a.example.com"}`, `{}`, false, "null", ""},
		"no address yet":                      {`{"ports":[{"port":80}]}`, `{}`, false, "null", ""},
		"no ports":                            {`{"clusterIPs":["10.96.0.9"]}`, `{}`, false, `{` + row + `}`, ""},
		"two of one family":                   {`{"clusterIPs":["10.96.0.9","10.96.0.8"],"ports":[{"port":80}]}`, `{}`, false, `{` + port + `}`, "spec.clusterIPs: a service has at most one address of each family: none is served"},
		"in a network":                        {`{"clusterIPs":["10.1.2.3"],"ports":[{"port":80}]}`, `{}`, false, `{` + port + `}`, `spec.clusterIPs[0]: "10.1.2.3" lies in network default:pods: it is not served`},
		"a node's":                            {`{"clusterIPs":["192.168.7.1"],"ports":[{"port":80}]}`, `{}`, false, `{` + port + `}`, `spec.clusterIPs[0]: "192.168.7.1" is node n1's: it is not served`},
		"loopback":                            {`{"clusterIPs":["127.0.0.1"],"ports":[{"port":80}]}`, `{}`, false, `{` + port + `}`, `spec.clusterIPs[0]: "127.0.0.1" ` + model.WantServiceAddr + `: it is not served`},
		"no address":                          {`{"clusterIPs":["010.0.0.1"],"ports":[{"port":80}]}`, `{}`, false, `{` + port + `}`, `spec.clusterIPs[0]: "010.0.0.1" is no address: it is not served`},
		"affinity":                            {`{` + http + `,"sessionAffinity":"ClientIP"}`, `{}`, false, `{` + row + `,"affinity":10800,` + port + `}`, ""},
		"affinity for a minute":               {`{` + http + `,"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":60}}}`, `{}`, false, `{` + row + `,"affinity":60,` + port + `}`, ""},
		"affinity for ever": {
			`{` + http + `,"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":86401}}}`, `{}`, false, `{` + row + `,"affinity":10800,` + port + `}`,
			"spec.sessionAffinityConfig.clientIP.timeoutSeconds: 86401 is not from 1 to 86400: it is 10800",
		},
		"unknown affinity": {`{` + http + `,"sessionAffinity":"Cookie"}`, `{}`, false, `{` + row + `,` + port + `}`, `spec.sessionAffinity: "Cookie" is not known: each connection is chosen for by itself`},
		"node ports":       {`{` + `"clusterIPs":["10.96.0.9"],"type":"NodePort","ports":[{"port":80,"nodePort":30080}]}`, `{}`, false, `{` + row + `,"ports":[{"protocol":6,"port":80,"node":30080}]}`, ""},
		"node port of a service without": {
			`{` + `"clusterIPs":["10.96.0.9"],"type":"ClusterIP","ports":[{"port":80,"nodePort":30080}]}`, `{}`, false, `{` + row + `,` + port + `}`, "",
		},
		"a port twice":        {`{"clusterIPs":["10.96.0.9"],"ports":[{"port":80},{"name":"b","port":80}]}`, `{}`, false, `{` + row + `,` + port + `}`, "spec.ports[1]: port 80 of tcp is there before: this one is not served"},
		"no port":             {`{"clusterIPs":["10.96.0.9"],"ports":[{"port":0},{"port":80,"protocol":"GRE"},{"port":80}]}`, `{}`, false, `{` + row + `,` + port + `}`, "spec.ports[0]: is no port of TCP, UDP or SCTP: it is not served; spec.ports[1]: is no port of TCP, UDP or SCTP: it is not served"},
		"inside local":        {`{` + http + `,"internalTrafficPolicy":"Local"}`, `{}`, false, `{` + row + `,"insideLocal":true,` + port + `}`, ""},
		"inside of all":       {`{` + http + `,"internalTrafficPolicy":"Cluster"}`, `{}`, false, `{` + row + `,` + port + `}`, ""},
		"inside unknown":      {`{` + http + `,"internalTrafficPolicy":"Rack"}`, `{}`, false, `{` + row + `,"insideLocal":true,` + port + `}`, `spec.internalTrafficPolicy: "Rack" is not known: it is taken for Local`},
		"outside, not there":  {`{` + http + `,"externalTrafficPolicy":"Local"}`, `{}`, false, `{` + row + `,` + port + `}`, ""},
		"outside local":       {`{` + http + `,"type":"NodePort","externalTrafficPolicy":"Local","healthCheckNodePort":31000}`, `{}`, false, `{` + row + `,"outsideLocal":true,` + port + `}`, ""},
		"with a health check": {`{` + http + `,"type":"LoadBalancer","externalTrafficPolicy":"Local","healthCheckNodePort":31000}`, `{}`, false, `{` + row + `,"healthPort":31000,"outsideLocal":true,` + port + `}`, ""},
		"health of all":       {`{` + http + `,"type":"LoadBalancer","externalTrafficPolicy":"Cluster","healthCheckNodePort":31000}`, `{}`, false, `{` + row + `,` + port + `}`, ""},
		"close":               {`{` + http + `,"trafficDistribution":"PreferClose"}`, `{}`, false, `{` + row + `,"near":"zone",` + port + `}`, ""},
		"same zone":           {`{` + http + `,"trafficDistribution":"PreferSameZone"}`, `{}`, false, `{` + row + `,"near":"zone",` + port + `}`, ""},
		"same node":           {`{` + http + `,"trafficDistribution":"PreferSameNode"}`, `{}`, false, `{` + row + `,"near":"node",` + port + `}`, ""},
		"same planet":         {`{` + http + `,"trafficDistribution":"PreferSamePlanet"}`, `{}`, false, `{` + row + `,` + port + `}`, `spec.trafficDistribution: "PreferSamePlanet" is not known: all backends are chosen among`},
		"external": {
			`{` + http + `,"externalIPs":["203.0.113.9","203.0.113.7","203.0.113.9","198.51.100.1","10.1.0.7","192.168.7.1","10.96.0.1","203.0.113.200"]}`, `{}`, false,
			`{` + row + `,"external":["203.0.113.7","203.0.113.9"],` + port + `}`,
			`spec.externalIPs[3]: "198.51.100.1" is not inside netmaster's --external-ip-ranges: it is not served; ` +
				`spec.externalIPs[4]: "10.1.0.7" lies in network default:pods: it is not served; ` +
				`spec.externalIPs[5]: "192.168.7.1" is node n1's: it is not served; ` +
				`spec.externalIPs[6]: "10.96.0.1" lies in the services' range 10.96.0.0/16: it is not served; ` +
				`spec.externalIPs[7]: "203.0.113.200" leads to service ns/other at port 80 of tcp: it is not served`,
		},
		"external, local": {`{` + http + `,"externalTrafficPolicy":"Local","externalIPs":["203.0.113.9"]}`, `{}`, false, `{` + row + `,"external":["203.0.113.9"],"outsideLocal":true,` + port + `}`, ""},
		"another's load balancer": {
			`{` + http + `,"type":"LoadBalancer","loadBalancerClass":"other.io/lb"}`,
			`{"loadBalancer":{"ingress":[{"ip":"198.51.100.2"},{"hostname":"a.example.com"},{"ip":"198.51.100.3","ipMode":"Proxy"},{"ip":"198.51.100.1","ipMode":"VIP"},{"ip":"192.168.7.1"},{"ip":"10.96.0.1"}]}}`, true,
			`{` + row + `,"balanced":["198.51.100.1","198.51.100.2"],` + port + `}`,
			`status.loadBalancer.ingress[4].ip: "192.168.7.1" is node n1's: it is not served; status.loadBalancer.ingress[5].ip: "10.96.0.1" lies in the services' range 10.96.0.0/16: it is not served`,
		},
		"of the pool": {
			`{` + http + `,"type":"LoadBalancer"}`, `{"loadBalancer":{"ingress":[{"ip":"198.51.100.9"}]}}`, true,
			`{` + row + `,"balanced":["203.0.113.77"],` + port + `}`, "",
		},
		"of the pool by its class": {`{` + http + `,"type":"LoadBalancer","loadBalancerClass":"contiv.io/pool"}`, `{}`, true, `{` + row + `,"balanced":["203.0.113.77"],` + port + `}`, ""},
		"no load balancer":         {`{` + http + `,"type":"NodePort","loadBalancerSourceRanges":["10.0.0.0/8"]}`, `{"loadBalancer":{"ingress":[{"ip":"198.51.100.9"}]}}`, true, `{` + row + `,` + port + `}`, ""},
		"clients": {
			`{` + http + `,"type":"LoadBalancer","loadBalancerSourceRanges":[" 10.7.1.1/16 ","2001:db8::/32","10.7.0.0/16"]}`, `{}`, true,
			`{` + row + `,"balanced":["203.0.113.77"],"onlySources":true,` + port + `,"sources":["10.7.0.0/16","2001:db8::/32"]}`, "",
		},
		"clients that are none": {
			`{` + http + `,"type":"LoadBalancer","loadBalancerSourceRanges":["all"]}`, `{}`, true, `{` + row + `,"balanced":["203.0.113.77"],"onlySources":true,` + port + `}`,
			`spec.loadBalancerSourceRanges[0]: "all" is not a CIDR: it allows no client`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := decoded[corev1.Service](t, `{"metadata":{"namespace":"ns","name":"web"},"spec":`+tc.spec+`,"status":`+tc.status+`}`)
			a := addressing()
			if a.Pool = tc.pool; a.Pool {
				a.Given = []netip.Addr{netip.MustParseAddr("203.0.113.77")}
			}
			got, found := a.Service(in)
			if text := inJSON(t, got); text != tc.want {
				t.Errorf("the row is\n%s, want\n%s", text, tc.want)
			}
			if got != nil {
				if got.Key != (model.ServiceKey{Tenant: "default", Name: "ns/web"}) || got.Affinity == 0 {
					t.Errorf("its key is %s, its affinity %d", got.Key, got.Affinity)
				}
				if _, err := model.Check(*got); err != nil {
					t.Error(err)
				}
			}
			if problemTexts(found) != tc.problem {
				t.Errorf("told\n%s, want\n%s", problemTexts(found), tc.problem)
			}
		})
	}
}

// TestServicesOfOtherProxiesAreIgnored: what another program than the cluster's proxy serves, and what is
// labelled as headless, is left alone.
func TestServicesOfOtherProxiesAreIgnored(t *testing.T) {
	in := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"}}
	in.Spec.ClusterIPs, in.Spec.Type = []string{"10.96.0.9"}, corev1.ServiceTypeLoadBalancer
	a := addressing()
	a.Pool = true
	for _, label := range []string{"service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"} {
		in.Labels = map[string]string{label: ""}
		if got, found := a.Service(in); got != nil || found != nil || a.Balanced(in) {
			t.Errorf("%s: %v %v", label, got, found)
		}
	}
	in.Labels = nil
	if got, _ := a.Service(in); got == nil || !a.Balanced(in) {
		t.Error("it is the cluster's without the label")
	}
}

// TestLargeServicesAreCutAndReported: more than rows hold is cut, said, and never opens.
func TestLargeServicesAreCutAndReported(t *testing.T) {
	in := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"}}
	in.Spec.ClusterIPs, in.Spec.Type = []string{"10.96.0.9"}, corev1.ServiceTypeLoadBalancer
	for i := range 300 {
		in.Spec.Ports = append(in.Spec.Ports, corev1.ServicePort{Port: int32(300 - i)})
		in.Spec.ExternalIPs = append(in.Spec.ExternalIPs, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}).String())
		in.Spec.LoadBalancerSourceRanges = append(in.Spec.LoadBalancerSourceRanges, netip.AddrFrom4([4]byte{10, 2, byte(i / 200), byte(i % 200)}).String()+"/32")
		in.Status.LoadBalancer.Ingress = append(in.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}).String()})
	}
	got, found := addressing().Service(in)
	if _, err := model.Check(*got); err != nil {
		t.Fatal(err)
	}
	if len(got.Ports) != model.MaxClusterPorts || got.Ports[0].Port != 1 || len(got.External) != model.MaxExternalAddrs || len(got.Balanced) != model.MaxBalancedAddrs {
		t.Errorf("%d ports, %d and %d addresses", len(got.Ports), len(got.External), len(got.Balanced))
	}
	if !got.OnlySources || len(got.Sources) != 0 {
		t.Errorf("clients %v %v, want nobody", got.OnlySources, got.Sources)
	}
	for _, field := range []string{"spec.ports", "spec.externalIPs", "spec.loadBalancerSourceRanges", "status.loadBalancer.ingress"} {
		if !slices.ContainsFunc(found, func(p Problem) bool { return p.Field == field }) {
			t.Errorf("nothing is told of %s: %s", field, problemTexts(found))
		}
	}
}

// Zones' hints are asked for by annotations too, of which the older one goes first.
func TestAnnotationsRequestZoneHints(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations, spec string
		want              model.Near
	}{
		"none":                  {`{"a":"Auto"}`, ``, model.NearAnywhere},
		"the mode":              {`{"service.kubernetes.io/topology-mode":"Auto"}`, ``, model.NearZone},
		"in small letters":      {`{"service.kubernetes.io/topology-mode":"auto"}`, ``, model.NearZone},
		"another mode":          {`{"service.kubernetes.io/topology-mode":"Disabled"}`, ``, model.NearAnywhere},
		"its older name":        {`{"service.kubernetes.io/topology-aware-hints":"auto"}`, ``, model.NearZone},
		"the older one is off":  {`{"service.kubernetes.io/topology-aware-hints":"disabled","service.kubernetes.io/topology-mode":"Auto"}`, ``, model.NearAnywhere},
		"beside a distribution": {`{"service.kubernetes.io/topology-mode":"Auto"}`, `,"trafficDistribution":"PreferSameNode"`, model.NearNode},
	} {
		in := decoded[corev1.Service](t, `{"metadata":{"namespace":"ns","name":"web","annotations":`+tc.annotations+`},"spec":{"clusterIPs":["10.96.0.9"],"ports":[{"port":80}]`+tc.spec+`}}`)
		a := addressing()
		if got, found := a.Service(in); got.Near != tc.want || len(found) != 0 {
			t.Errorf("%s: near %q, want %q; %s", name, got.Near, tc.want, problemTexts(found))
		}
	}
}
