package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// serveExposed is serveReachable with a service of tenant default, a netmaster at 10.0.0.1, and what
// host1 reports: it leads port 9090 to d1 and port 9091 to e1, and announces the service.
func serveExposed(t *testing.T) *fixture {
	t.Helper()
	f := serveReachable(t)
	f.must("POST", "/api/v1/networks/default:shop/", `{"tenantName":"default","networkName":"shop","encap":"vxlan","subnet":"10.2.0.0/24"}`)
	f.must("POST", "/plugin/createEndpoint", `{"TenantName":"default","NetworkName":"shop","EndpointID":"s1","ConfigEP":{"Host":"host1","Labels":{"app":"shop"}}}`)
	f.must("POST", "/api/v1/serviceLBs/default:shop/", `{"tenantName":"default","serviceName":"shop","networkName":"shop","selectors":["app=shop"],"ports":["80:8080:tcp"],"ipAddress":"10.2.0.99"}`)
	f.must("POST", "/api/v1/serviceLBs/blue:own/", `{"tenantName":"blue","serviceName":"own","networkName":"n","selectors":["app=shop"],"ports":["80:8080:tcp"]}`)
	addr := netip.MustParseAddr
	d1, e1 := model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "n"}, ID: "d1"}, model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "n"}, ID: "e1"}
	if _, err := f.mem.Update(t.Context(), func(tx store.Tx) error {
		report := tables.HostStatus{
			Host: "host1", BGP: &tables.BGPStatus{Prefixes: []string{"10.2.0.99/32"}},
			Published: tables.PublishedPorts{Unlisted: 2, Ports: []tables.PublishedPort{
				{Endpoint: d1, Protocol: model.ProtoTCP, HostPort: 9090, Port: 90},
				{Endpoint: d1, Protocol: model.ProtoTCP, HostIP: addr("127.0.0.1"), HostPort: 9092, Port: 92},
				{Endpoint: e1, Protocol: model.ProtoTCP, HostPort: 9091, Port: 91},
			}},
		}
		other := tables.HostStatus{Host: "host2", Published: tables.PublishedPorts{Ports: []tables.PublishedPort{{Endpoint: d1, Protocol: model.ProtoTCP, HostPort: 1, Port: 1}}}}
		key := model.ClusterServiceKey{Namespace: "shop", Name: "web"}
		web := model.Service{
			Key: key.ServiceKey(), Owner: model.OwnerKubernetes, Network: model.NetworkKey{Tenant: "default", Name: "shop"}, Affinity: model.NoAffinity, Addrs: []netip.Addr{addr("10.96.0.9")},
			Balanced: []netip.Addr{addr("203.0.113.1")}, External: []netip.Addr{addr("203.0.113.9")}, Sources: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, OnlySources: true,
			Ports: []model.ServicePort{{Protocol: model.ProtoTCP, Port: 443, Node: 30443}},
		}
		s1, err := tables.Endpoints.Find(tx, model.EndpointKey{Network: web.Network, ID: "s1"})
		slice := model.ServiceSlice{
			Key: model.ServiceSliceKey{Namespace: "shop", Name: "web-1"}, Service: "web", Ports: []model.SlicePort{{Protocol: model.ProtoTCP, Port: 8443}},
			Backends: []model.ServiceBackend{{Addr: s1.Value.IPv4}},
		}
		master := cluster.Service{ServiceName: cluster.ServiceMaster, HostAddr: "10.0.0.1", Port: 9999}
		return errors.Join(err, tables.HostStatuses.Put(tx, report), tables.HostStatuses.Put(tx, other), tables.ClusterServices.Put(tx, web), tables.ServiceSlices.Put(tx, slice),
			tables.Hosts.Put(tx, model.Host{Name: "host1", Control: addr("10.0.0.11"), VTEP: addr("10.0.0.11")}), master.Keep(tx))
	}); err != nil {
		t.Fatal(err)
	}
	return f
}

// exposureLines asks, and writes each row in a line.
func (f *fixture) exposureLines(query string) (lines []string) {
	f.t.Helper()
	var x api.Exposure
	if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/analysis/exposure"+query, "")), &x); err != nil {
		f.t.Fatal(err)
	}
	for _, c := range x.Connections {
		for _, p := range c.Parts {
			lines = append(lines, strings.Join(strings.Fields(fmt.Sprint(c.From, c.To, " ", c.Opening, " ", c.Service, " ", c.Frontend, " ", c.Published, " ", p.Ports)), " "))
		}
	}
	slices.Sort(lines)
	return lines
}

func TestExposureListsTheWaysIn(t *testing.T) {
	f := serveExposed(t)
	all := []string{
		"[0.0.0.0/0] [blue:n:d1] published-port host1 0.0.0.0:9090 [tcp/90]",
		"[0.0.0.0/0] [default:shop:s1] external-address default:shop/web 203.0.113.9:443 [tcp/8443]",
		"[0.0.0.0/0] [default:shop:s1] node-port default:shop/web 0.0.0.0:30443 [tcp/8443]",
		"[0.0.0.0/0] [default:shop:s1] service-address default:shop/web 10.96.0.9:443 [tcp/8443]",
		"[0.0.0.0/0] [default:shop:s1] service-address+bgp default:shop 10.2.0.99:80 [tcp/8080]",
		"[10.9.0.0/30] [blue:tiny:t1 blue:tiny:t2] vlan [all]",
		"[198.51.100.0/24] [default:shop:s1] load-balancer default:shop/web 203.0.113.1:443 [tcp/8443]",
	}
	if got := f.exposureLines(""); !slices.Equal(got, all) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(all, "\n"))
	}
	for query, want := range map[string][]string{
		"?to=tenant:blue":             {all[0], all[5]},
		"?to=service:shop":            {all[4]},
		"?to=service:shop&port=udp":   nil,
		"?to=d1&port=tcp/90":          {all[0]},
		"?to=d1&port=tcp/91":          nil,
		"?to=service:own&tenant=blue": nil,
	} {
		if got := f.exposureLines(query); !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", query, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if text := f.must("GET", "/api/v1/analysis/exposure", ""); !strings.Contains(text, `"unlisted":2`) {
		t.Errorf("ports that are not listed: %s", text)
	}
	for query, status := range map[string]int{"?to=internet": http.StatusNotFound, "?to=none": http.StatusNotFound, "?port=x": http.StatusBadRequest, "?from=d1": http.StatusBadRequest} {
		if got, text := f.do("GET", "/api/v1/analysis/exposure"+query, ""); got != status {
			t.Errorf("%s: %d %s, want %d", query, got, text, status)
		}
	}
}

func TestExposureFollowsPolicies(t *testing.T) {
	f := serveExposed(t)
	f.must("POST", "/api/v1/networkPolicys/default:inside/", `{"tenantName":"default","networkPolicyName":"inside","rules":[{"ruleId":"1","direction":"in","action":"allow","peers":[{"cidr":"198.51.100.0/24"}]}],"defaultIn":"deny"}`)
	want := []string{"[198.51.100.0/24] [default:shop:s1] service-address+bgp default:shop 10.2.0.99:80 [tcp/8080]"}
	if got := f.exposureLines("?to=service:shop"); !slices.Equal(got, want) {
		t.Errorf("with a policy: %q, want %q", got, want)
	}
}

func TestExposureHasOtherTenantsOfSharedNetworks(t *testing.T) {
	f := serve(t, 0)
	f.must("POST", "/api/v1/globals/global/", `{"name":"global","fwdMode":"routing"}`)
	for i, tenant := range []string{"infra", "blue", "red"} {
		f.must("POST", "/api/v1/tenants/"+tenant+"/", `{"tenantName":"`+tenant+`"}`)
		f.must("POST", "/api/v1/networks/"+tenant+":n/", fmt.Sprintf(`{"tenantName":"%s","networkName":"n","encap":"vxlan","subnet":"10.%d.0.0/24"}`, tenant, i+1))
		f.must("POST", "/plugin/createEndpoint", `{"TenantName":"`+tenant+`","NetworkName":"n","EndpointID":"e","ConfigEP":{"Host":"host1"}}`)
	}
	f.must("POST", "/api/v1/tenants/blue/", `{"tenantName":"blue","sharedNetworks":["infra:n"]}`)
	if got := f.exposureLines(""); got != nil {
		t.Errorf("without a rule: %q", got)
	}
	f.must("POST", "/api/v1/networkPolicys/infra:dns/", `{"tenantName":"infra","networkPolicyName":"dns","rules":[{"ruleId":"1","direction":"in","action":"allow","ports":[{"protocol":"udp","ports":"53"}]}]}`)
	want := []string{"[blue:n:e] [infra:n:e] [udp/53]"}
	if got := f.exposureLines(""); !slices.Equal(got, want) {
		t.Errorf("with a rule: %q, want %q", got, want)
	}
}

func TestClientsOutsideAreAnsweredAboutServices(t *testing.T) {
	f := serveExposed(t)
	for _, c := range []struct{ from, to, port, verdict string }{
		{"internet", "service:default/shop", "tcp/80", "yes"},
		{"198.51.100.7", "service:default/shop", "tcp/80", "yes"},
		{"10.2.0.200", "service:default/shop", "tcp/80", "no"},
		{"internet", "service:default/shop", "tcp/81", "no"},
		{"internet", "service:blue/own", "tcp/80", "no"},
		{"internet", "service:shop/web", "tcp/443", "partly"},
		{"198.51.100.0/24", "service:shop/web", "tcp/443", "yes"},
		{"internet", "service:default/shop/web", "tcp/30443", "yes"},
		{"d1", "service:default/shop", "tcp/80", "yes"}, // by its host
		{"any", "service:default/shop", "tcp/80", "yes"},
	} {
		if got := f.reach(c.from, c.to, c.port); got.Verdict != c.verdict {
			t.Errorf("%s to %s by %q: %+v, want %s", c.from, c.to, c.port, got, c.verdict)
		}
	}
	for to, want := range map[string]string{"service:blue/own": "not-exposed", "service:shop/web": "source-refused"} {
		if got := f.reach("internet", to, ""); !slices.ContainsFunc(got.Connections, func(c api.ReachableParts) bool { return c.Missing == want }) {
			t.Errorf("%s: %+v, want %s", to, got, want)
		}
	}
}

func TestAnswersKnowTheControlPlanesProtection(t *testing.T) {
	f := serveExposed(t)
	for _, c := range []struct{ from, to, port, verdict string }{
		{"e1", "host:host1", "tcp/9006", "no"},
		{"e1", "host:host1", "udp", "yes"},
		{"e1", "10.0.0.11", "tcp/9006", "no"},
		{"e1", "10.0.0.11", "tcp/9007", "yes"},
		{"e1", "10.0.0.11", "udp/9006", "yes"},
		{"e1", "10.0.0.1", "tcp/9999", "no"},
		{"t1", "10.0.0.1", "tcp/9999", "no"},
		{"e1", "10.0.0.1", "tcp", "partly"},
		{"e1", "internet", "tcp/9999", "partly"},
		{"e1", "internet", "tcp/80", "yes"},
		{"host:host1", "e1", "tcp/81", "no"},
	} {
		if got := f.reach(c.from, c.to, c.port); got.Verdict != c.verdict {
			t.Errorf("%s to %s by %q: %+v, want %s", c.from, c.to, c.port, got, c.verdict)
		}
	}
	got := f.reach("e1", "host:host1", "tcp/9006").Connections
	want := api.ReachableParts{
		From: []string{"blue:n:e1"}, To: []string{"host:host1"}, Families: []string{"IPv4"}, Route: "host",
		Parts: []api.ReachablePart{{Ports: []string{"tcp/9006"}, Decisions: []api.FlowRule{{Direction: "out", Rule: "control-plane/9006", Tier: "tier 1"}}}},
	}
	if !slices.ContainsFunc(got, func(c api.ReachableParts) bool { return reflect.DeepEqual(c, want) }) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Both tenants have an endpoint with a published port.
func TestTenantAdminSeesTheExposureOfItsOwnTenant(t *testing.T) {
	f := startAsking(t, nil)
	f.town()
	for _, host := range []string{"h1", "h2"} {
		f.must(200, "root", "POST", "/plugin/host", `{"version":1,"host":"`+host+`","installation":"i","control":"10.7.0.`+host[1:]+`","vtep":"10.7.0.`+host[1:]+`","vxlanPort":4789,"boot":"b","since":"2026-11-22T00:00:00Z"}`)
		key := map[string]string{"h1": "blue:net:e1", "h2": "red:net:e2"}[host]
		f.must(200, "root", "POST", "/plugin/hostStatus", `{"version":1,"host":"`+host+`","installation":"i","published":{"ports":[{"endpoint":"`+key+`","protocol":"tcp","hostPort":80,"port":8080}]}}`)
	}
	const path = "/api/v1/analysis/exposure"
	if text := f.must(200, "root", "GET", path, ""); !strings.Contains(text, "red:net:e2") || !strings.Contains(text, "blue:net:e1") {
		t.Errorf("a cluster administrator gets %s", text)
	}
	if text := f.must(200, "blue", "GET", path, ""); strings.Contains(text, "red:") || !strings.Contains(text, "blue:net:e1") {
		t.Errorf("the administrator of blue gets %s", text)
	}
	f.must(404, "blue", "GET", path+"?to=tenant:red", "")
}

func TestHostReportsPublishedPorts(t *testing.T) {
	report := api.HostStatusReport{Version: api.HostReportVersion, Host: "h1", Installation: "i", Published: api.PublishedPorts{Unlisted: 3, Ports: []api.PublishedPort{
		{Endpoint: "blue:n:e1", Protocol: "132", HostIP: "fd00::1", HostPort: 80, Port: 8080}, {Endpoint: "blue:n:e1", Protocol: "tcp", HostPort: 81, Port: 81},
	}}}
	e1 := model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "n"}, ID: "e1"}
	want := []tables.PublishedPort{{Endpoint: e1, Protocol: model.ProtoSCTP, HostIP: netip.MustParseAddr("fd00::1"), HostPort: 80, Port: 8080}, {Endpoint: e1, Protocol: model.ProtoTCP, HostPort: 81, Port: 81}}
	if got, err := HostStatus(report); err != nil || !slices.Equal(got.Published.Ports, want) || got.Published.Unlisted != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range [][]api.PublishedPort{
		{{Endpoint: "x", Protocol: "tcp"}}, {{Endpoint: "blue:n:e1", Protocol: "x"}}, {{Endpoint: "blue:n:e1", HostIP: "x"}}, {{Endpoint: "blue:n:e1", HostPort: 65536}}, make([]api.PublishedPort, 257),
	} {
		report.Published.Ports = bad
		if _, err := HostStatus(report); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	report.Published = api.PublishedPorts{Unlisted: -1}
	if _, err := HostStatus(report); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("a negative number: %v", err)
	}
}
