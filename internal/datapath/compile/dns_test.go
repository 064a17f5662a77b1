package compile

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestEndpointsAndServicesHaveNames: endpoints of every host and services have names; a container whose
// name is not known has none of its own; a name follows its change.
func TestEndpointsAndServicesHaveNames(t *testing.T) {
	c := New("h1")
	net := model.NetworkKey{Tenant: "blue", Name: "n1"}
	ep := func(id, name string) model.Endpoint {
		return model.Endpoint{
			Key: model.EndpointKey{Network: net, ID: model.EndpointID(id)}, Host: "h2", Group: "Web", Container: "c-" + id,
			Name: name, IPv4: netip.MustParseAddr("10.1.0.1"), MAC: model.MAC{2, 2, 10, 1, 0, 1},
		}
	}
	key := func(id string) desired.DNSKey { return desired.DNSKey{Endpoint: ep(id, "").Key} }
	rec := func(name string) desired.DNSRecord {
		return desired.DNSRecord{Network: net, Group: "web", Name: name, IPv4: netip.MustParseAddr("10.1.0.1")}
	}
	c.SetEndpoint(ep("e1", "Shop.1"))
	c.SetEndpoint(ep("e2", "c-e2"))
	s := model.Service{Key: model.ServiceKey{Tenant: "blue", Name: "DB"}, Network: model.NetworkKey{Tenant: "blue", Name: "n1"}, Addrs: []netip.Addr{netip.MustParseAddr("fd00::5")}}
	s.Ports = []model.ServicePort{{Port: 80, Target: 8080, Protocol: model.ProtoTCP, Name: "http"}}
	c.SetService(s)
	c.SetNetwork(model.Network{Key: net, Subnet: netip.MustParsePrefix("10.1.0.0/24")})
	pic, _ := c.Compile(1)
	want := map[desired.DNSKey]desired.DNSRecord{
		key("e1"): rec("shop.1"), key("e2"): rec(""),
		{Service: s.Key}: {
			Network: net, Service: "db", IPv6: s.Addrs[0],
			Ports: []desired.ServicePort{{Name: "http", Protocol: model.ProtoTCP, Port: 80, Backend: 8080}},
		},
	}
	if diff := cmp.Diff(want, plain(pic.DNS.Records), byValue...); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	subnets := map[model.NetworkKey]desired.DNSNetwork{net: {Subnet: netip.MustParsePrefix("10.1.0.0/24")}}
	if diff := cmp.Diff(subnets, plain(pic.DNS.Networks), byValue...); diff != "" {
		t.Errorf("subnets (-want +got):\n%s", diff)
	}

	c.SetEndpoint(ep("e1", "renamed"))
	c.DeleteEndpoint(ep("e2", "").Key)
	s.Ports[0].Name = "web"
	s.Ports = slices.Clone(s.Ports)
	c.SetService(s)
	next, _ := c.Compile(2)
	if r, _ := next.DNS.Records.Get(desired.DNSKey{Service: s.Key}); r.Ports[0].Name != "web" {
		t.Errorf("the port's name is %+v", r.Ports)
	}
	c.DeleteService(s.Key)
	next, _ = c.Compile(3)
	if diff := cmp.Diff(map[desired.DNSKey]desired.DNSRecord{key("e1"): rec("renamed")}, plain(next.DNS.Records), byValue...); diff != "" {
		t.Errorf("after the changes (-want +got):\n%s", diff)
	}
}

// TestDNSName: what cannot be written in a query without escapes is no name.
func TestDNSName(t *testing.T) {
	for in, want := range map[string]string{
		"Web_1.a-b": "web_1.a-b", "": "", "a..b": "", ".a": "", "a b": "", "ä": "", `a\.b`: "",
		strings.Repeat("x", 63): strings.Repeat("x", 63), strings.Repeat("x", 64): "",
		strings.Repeat("x.", 95) + "x": "",
	} {
		if got := dnsName(in); got != want {
			t.Errorf("dnsName(%q) = %q, want %q", in, got, want)
		}
	}
}
