package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// outsider tells a compiler of host h1, on which no container runs, about two hosts,
// and a network of a tenant with an endpoint on h2 that provides service shop.
func outsider(c *Compiler, tenant model.TenantName, encap model.Encap) model.Service {
	network := model.NetworkKey{Tenant: tenant, Name: "n1"}
	c.SetGlobal(model.Global{FwdMode: model.FwdBridge, ArpMode: model.ArpProxy})
	for i := range 2 {
		c.SetHost(model.Host{Name: model.HostName(fmt.Sprint("h", i+1)), VTEP: netip.AddrFrom4([4]byte{192, 168, 0, byte(i + 1)})})
	}
	c.SetNetwork(model.Network{Key: network, Encap: encap, Tag: 7, ID: 7, Subnet: netip.MustParsePrefix("10.1.0.0/16")})
	a := netip.MustParseAddr("10.1.0.1")
	c.SetEndpoint(model.Endpoint{
		Key: model.EndpointKey{Network: network, ID: "e1"}, Identity: 300, Host: "h2", IPv4: a, MAC: model.EndpointMAC(network, a, netip.Addr{}),
		Labels: map[string]string{"app": "shop"},
	})
	return model.Service{
		Key: model.ServiceKey{Tenant: tenant, Name: "shop"}, Network: network, Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.100")},
		Selectors: []model.ServiceSelector{{Key: "app", Value: "shop"}}, Ports: []model.ServicePort{{Port: 80, Target: 8080, Protocol: model.ProtoTCP}},
	}
}

// TestHostsExposeServicesOfTenantDefaultOnly: every host leads to the services of tenant default, and to no
// other's; on VLAN networks to its own backends.
func TestHostsExposeServicesOfTenantDefaultOnly(t *testing.T) {
	for _, x := range []struct {
		tenant  model.TenantName
		encap   model.Encap
		exposed bool
		among   desired.TrafficPolicy
	}{
		{model.DefaultTenant, model.EncapVXLAN, true, desired.TrafficCluster},
		{model.DefaultTenant, model.EncapVLAN, true, desired.TrafficLocal},
		{"blue", model.EncapVXLAN, false, desired.TrafficCluster},
	} {
		c := New("h1")
		s := outsider(c, x.tenant, x.encap)
		if pic, _ := c.Compile(1); pic.Networks.Len() != 0 {
			t.Errorf("%s %s: a network without services, and without containers here, is in the desired state", x.tenant, x.encap)
		}
		c.SetService(s)
		pic, problems := c.Compile(2)
		got, there := pic.Services.Get(s.Key)
		if there != x.exposed || pic.Networks.Len() != pic.Services.Len() || pic.Remotes.Len() != pic.Services.Len() {
			t.Fatalf("%s %s: %d services, %d networks, %d remotes", x.tenant, x.encap, pic.Services.Len(), pic.Networks.Len(), pic.Remotes.Len())
		}
		if there && (!got.Exposed || got.ExternalPolicy != x.among || got.InternalPolicy != desired.TrafficCluster || got.Backends.Len() != 1) {
			t.Errorf("%s %s: %+v, problems %v", x.tenant, x.encap, got, problems)
		}
		c.DeleteService(s.Key)
		if pic, _ := c.Compile(3); pic.Networks.Len() != 0 || pic.Remotes.Len() != 0 {
			t.Errorf("%s %s: the network stays although its services are gone", x.tenant, x.encap)
		}
	}
}

// TestInfraServicesAreNotRoutedTo: hosts have an interface on the network, by which they reach
// its services as containers do.
func TestInfraServicesAreNotRoutedTo(t *testing.T) {
	c := New("h1")
	s := outsider(c, model.DefaultTenant, model.EncapVXLAN)
	c.SetNetwork(model.Network{Key: model.NetworkKey{Tenant: model.DefaultTenant, Name: "n1"}, Type: model.NetworkInfra, Encap: model.EncapVXLAN, Tag: 7, ID: 7, Subnet: netip.MustParsePrefix("10.1.0.0/16")})
	c.SetService(s)
	if pic, _ := c.Compile(1); pic.Services.Len() != 0 {
		t.Errorf("a host without an endpoint there leads to %d services", pic.Services.Len())
	}
}

// TestSharedAddressIsExposedOnce: of two services with one address the first by key is exposed,
// and the other one once that is gone.
func TestSharedAddressIsExposedOnce(t *testing.T) {
	c := New("h1")
	a := outsider(c, model.DefaultTenant, model.EncapVXLAN)
	b := a
	b.Key.Name = "twin"
	exposed := func(k model.ServiceKey) bool {
		pic, problems := c.Compile(1)
		s, _ := pic.Services.Get(k)
		said := false
		for _, p := range problems {
			said = said || p.Object == "service "+k.String() && strings.Contains(p.Text, a.Key.String())
		}
		if said == s.Exposed {
			t.Errorf("%s: exposed %v, and a problem says who has its address: %v", k, s.Exposed, said)
		}
		return s.Exposed
	}
	c.SetService(b)
	if !exposed(b.Key) {
		t.Error("alone it is not exposed")
	}
	c.SetService(a)
	if exposed(b.Key) || !exposed(a.Key) {
		t.Error("not the first by key is exposed")
	}
	c.DeleteService(a.Key)
	if !exposed(b.Key) {
		t.Error("alone again it is not exposed")
	}
}

// TestDesiredStateHasTunnelsToAllHosts: a desired state has the tunnel endpoints of all other hosts.
func TestDesiredStateHasTunnelsToAllHosts(t *testing.T) {
	c := New("h1")
	own, other, third := netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("192.168.0.3")
	expect := func(when string, want ...netip.Addr) {
		t.Helper()
		pic, _ := c.Compile(1)
		for _, a := range want {
			if _, ok := pic.Tunnels.Get(a); !ok {
				t.Errorf("%s: %s is missing", when, a)
			}
		}
		if pic.Tunnels.Len() != len(want) {
			t.Errorf("%s: %d tunnels, want %d", when, pic.Tunnels.Len(), len(want))
		}
	}
	c.SetHost(model.Host{Name: "h1", VTEP: own})
	c.SetHost(model.Host{Name: "h2", VTEP: other})
	expect("one other", other)
	c.SetHost(model.Host{Name: "h3", VTEP: own})
	expect("one has this host's", other)
	c.SetHost(model.Host{Name: "h3", VTEP: other})
	c.DeleteHost("h2")
	expect("another one has the same", other)
	c.SetHost(model.Host{Name: "h3", VTEP: third})
	expect("it has moved", third)
	c.SetHost(model.Host{Name: "h1", VTEP: third})
	expect("this host has it now")
}

// TestClusterServicesOfATenantAreExposed: every host leads to services of Kubernetes whose pods
// are of any tenant, and knows its networks; but to no other service of that tenant.
func TestClusterServicesOfATenantAreExposed(t *testing.T) {
	for _, encap := range []model.Encap{model.EncapVXLAN, model.EncapVLAN} {
		c := New("h1")
		own := outsider(c, "blue", encap)
		c.SetService(own)
		if serving := slices.Collect(c.Interest.ServingTenants()); len(serving) != 0 {
			t.Errorf("%s: %v serve all hosts", encap, serving)
		}
		of := web()
		of.Network = own.Network
		pod := model.Endpoint{
			Key: model.EndpointKey{Network: own.Network, ID: "pod"}, Identity: 301, Host: "h2", IPv4: netip.MustParseAddr("10.1.0.2"), MAC: model.MAC{2, 2, 0, 0, 0, 2},
			Namespace: "shop", Pod: model.Pod{Name: "pod", UID: "uid"},
		}
		c.SetEndpoint(pod)
		c.SetServiceSlice(sliceOf("web-4", webPorts, backendOf(pod, false)))
		c.SetService(of)
		pic, problems := c.Compile(1)
		got, _ := pic.Services.Get(of.Key)
		if got == nil || !got.Exposed || got.Backends.Len() != 1 || pic.Networks.Len() != 1 {
			t.Fatalf("%s: %+v of %d networks, problems %v", encap, got, pic.Networks.Len(), problems)
		}
		atNodes := 0
		for _, f := range got.Frontends {
			if f.Addr.IsUnspecified() {
				atNodes++
			}
		}
		if atNodes != 2 {
			t.Errorf("%s: it has %d node ports, want one of each family: %+v", encap, atNodes, got.Frontends)
		}
		if others, _ := pic.Services.Get(own.Key); others == nil || others.Exposed {
			t.Errorf("%s: the tenant's own service is exposed: %+v", encap, others)
		}
		local := 0
		for _, f := range got.Frontends {
			if f.ExternalPolicy == desired.TrafficLocal {
				local++
			}
		}
		said := strings.Contains(fmt.Sprint(problems), "VLAN network blue:n1")
		if vlan := encap == model.EncapVLAN; (local == len(got.Frontends)) != vlan || said != vlan {
			t.Errorf("%s: %d of %d frontends go to pods of this host alone, problems %v", encap, local, len(got.Frontends), problems)
		}
		if serving := slices.Collect(c.Interest.ServingTenants()); !slices.Equal(serving, []model.TenantName{"blue"}) {
			t.Errorf("%s: %v serve all hosts", encap, serving)
		}
		c.DeleteService(of.Key)
		if pic, _ = c.Compile(2); pic.Networks.Len() != 0 || len(slices.Collect(c.Interest.ServingTenants())) != 0 {
			t.Errorf("%s: %d networks are left", encap, pic.Networks.Len())
		}
	}
}
