package control

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

func infraNetwork(key string, subnets ...string) model.Network {
	n := network(key, subnets...)
	n.Type = model.NetworkInfra
	return n
}

// TestInfraNetworksAreInTheirTenantsRecord: an infra network is in its tenant's record, for all hosts; one whose
// interface or route would meet another's is refused; with containers it is kept, index
// and all, and with none but hosts' own endpoints it goes, with these.
func TestInfraNetworksAreInTheirTenantsRecord(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	indexed := func() []model.NetworkName {
		t.Helper()
		tenant, _ := c.fresh().Tenants.Get("blue")
		return tenant.Infra
	}
	c.put(model.Tenant{Name: "blue"}, model.Tenant{Name: "red"}, infraNetwork("blue:b", "10.2.0.0/16"), infraNetwork("blue:a", "10.1.0.0/16"), network("blue:plain", "10.9.0.0/16"))
	if got := indexed(); !slices.Equal(got, []model.NetworkName{"a", "b"}) {
		t.Fatalf("indexed are %v", got)
	}
	c.refused(model.ErrConflict, "two interfaces of one name", func() error { return c.try(infraNetwork("red:a", "10.7.0.0/16")) })
	c.refused(model.ErrConflict, `infra network "blue:b"`, func() error { return c.try(infraNetwork("red:x", "10.2.7.0/24")) })
	c.put(network("red:x", "10.2.7.0/24")) // as a network of type data it may be

	k := model.NetworkKey{Tenant: "blue", Name: "a"}
	create := func(id string) {
		t.Helper()
		valid, err := model.Check(model.Endpoint{Key: model.EndpointKey{Network: k, ID: model.EndpointID(id)}, Host: "h1"})
		if err == nil {
			_, _, err = c.Endpoints.CreateEndpoint(ctx, Admin(), valid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	create("h1-native-intf")
	create("c1")
	c.fresh()
	c.refused(model.ErrInUse, `active endpoints, for one "c1"`, func() error { return err2(c.Delete(ctx, Admin(), c.Networks.DeleteNetwork(k))) })
	if got := indexed(); !slices.Equal(got, []model.NetworkName{"a", "b"}) {
		t.Fatalf("after a deletion that was refused, indexed are %v", got)
	}
	if eps := c.fresh().Endpoints.OfNetwork(k); len(eps) != 2 {
		t.Fatalf("after a deletion that was refused, its endpoints are %v", eps)
	}
	if _, _, err := c.Endpoints.DeleteEndpoint(ctx, Admin(), model.EndpointKey{Network: k, ID: "c1"}); err != nil {
		t.Fatal(err)
	}
	c.fresh()
	if err := err2(c.Delete(ctx, Admin(), c.Networks.DeleteNetwork(k))); err != nil {
		t.Fatal(err)
	}
	if got := indexed(); !slices.Equal(got, []model.NetworkName{"b"}) {
		t.Errorf("after a deletion, indexed are %v", got)
	}
	if eps := c.fresh().Endpoints.OfHost("h1"); len(eps) != 0 {
		t.Errorf("after a deletion, the host has %v", eps)
	}
}

func vlanNetwork(key string, tag uint32, subnets ...string) model.Network {
	return with(network(key, subnets...), func(n *model.Network) { n.Encap, n.ReqTag = model.EncapVLAN, tag })
}

// TestTenantAdminChangesNoHost: objects of a user who is no cluster administrator give
// hosts no route, address or interface, unless a cluster administrator allowed the prefix.
// No user creates a network to which hosts have a route, or whose containers need one,
// around the addresses of hosts, netmasters, the store, gateways, name servers or routers.
func TestTenantAdminChangesNoHost(t *testing.T) {
	c := newCluster(t, func(o *Options) {
		o.Surroundings = func([]netip.Addr) model.Lifelines {
			return model.Lifelines{addr("10.40.0.1"): {Kind: model.GatewayLifeline, Name: "the gateway"}, addr("10.41.0.53"): {Kind: model.NameServerLifeline, Name: "a name server"}}
		}
	})
	ctx := testContext(t)
	tenantAdmin, admin := TenantAdmin("blue"), Admin()
	try := func(by Actor, n model.Network) (model.Network, error) {
		valid, err := model.Check(n)
		if err == nil {
			_, err = c.Put(ctx, by, c.Networks.ChangeNetwork(valid))
		}
		got, _ := c.fresh().Networks.Get(n.Key)
		return got, err
	}
	refused := func(by Actor, n model.Network, kind error, says string) {
		t.Helper()
		if _, err := try(by, n); !errors.Is(err, kind) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a refusal that says %q", n.Key, err, says)
		}
	}
	c.put(model.Tenant{Name: "blue"})
	_, err := c.st.Update(ctx, func(tx store.Tx) error {
		host := model.Host{Name: "h1", Control: addr("10.30.0.5"), VTEP: addr("10.31.0.5")}
		master := cluster.Service{ServiceName: cluster.ServiceMaster, HostAddr: "10.32.0.9", Port: 9999}
		router := model.Bgp{Host: "h1", AS: 65001, RouterIP: netip.MustParsePrefix("10.42.0.2/24")}
		status := tables.HostStatus{Host: "h1", Surroundings: &tables.Surroundings{Addresses: []netip.Addr{addr("10.43.0.1"), addr("10.44.0.53")}, VLANs: []uint16{10}}}
		return errors.Join(tables.Hosts.Put(tx, host), master.Put(tx, nil), tables.Bgps.Put(tx, router), tables.HostStatuses.Put(tx, status))
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Kubernetes.Reserve(map[netip.Addr]string{addr("10.33.0.2"): "is the address of the store"})
	c.fresh()

	refused(tenantAdmin, infraNetwork("blue:x", "8.8.8.0/24"), model.ErrForbidden, "cluster-admin")
	refused(tenantAdmin, nativeNetwork("n", "8.8.8.0/24"), model.ErrForbidden, "tenantPrefixes")
	for subnet, says := range map[string]string{
		"10.30.0.0/24": `host "h1"`, "10.31.0.0/16": `host "h1"`, "10.32.0.0/24": "a netmaster", "10.33.0.0/24": "the store",
	} {
		refused(admin, network("blue:d", subnet), model.ErrConflict, says)
		refused(admin, infraNetwork("blue:i", subnet), model.ErrConflict, says)
	}
	for subnet, says := range map[string]string{"10.40.0.0/16": "the gateway", "10.41.0.0/24": "a name server", "10.42.0.0/16": "runs BGP"} {
		refused(admin, infraNetwork("blue:i", subnet), model.ErrConflict, says)
		refused(admin, nativeNetwork("n", subnet), model.ErrConflict, says)
	}
	// Nor does a tenant administrator where its containers could answer on the physical
	// network for what hosts need: also by what hosts report.
	for subnet, says := range map[string]string{
		"10.30.0.0/24": "cluster administrator", "10.40.0.0/16": "cluster administrator", "10.41.0.0/24": "cluster administrator", "10.42.0.0/25": "cluster administrator",
		"10.43.0.0/24": "cluster administrator", "10.44.0.0/24": "cluster administrator",
	} {
		refused(tenantAdmin, vlanNetwork("blue:v", 0, subnet), model.ErrConflict, says)
	}
	refused(tenantAdmin, vlanNetwork("blue:v", 10, "10.45.0.0/24"), model.ErrConflict, `pktTag "10": cannot be used`)
	c.put(model.Global{VLANs: model.TagRange{Lo: 10, Hi: 12}})
	if n, err := try(tenantAdmin, vlanNetwork("blue:v", 0, "10.45.0.0/24")); err != nil || n.Tag != 11 {
		t.Errorf("a VLAN that netmaster chooses beside a host's own: %+v, %v", n, err)
	}
	if n, err := try(admin, vlanNetwork("blue:vc", 10, "10.43.0.0/24", "fd43::/64")); err != nil || n.Tag != 10 {
		t.Errorf("a cluster administrator's network in a host's VLAN: %+v, %v", n, err)
	}
	for _, name := range []string{"docker0", "eth0", "br-1a2b3c", "cali1a2b3c4d5e6"} {
		if _, err := model.Check(infraNetwork("blue:"+name, "10.50.0.0/16")); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("an infra network %s: %v", name, err)
		}
	}

	if n, err := try(tenantAdmin, network("blue:t", "8.8.8.0/24")); err != nil || n.OnHosts() {
		t.Errorf("a tenant admin's network: %+v, %v", n, err)
	}
	if n, err := try(admin, network("blue:c", "8.8.4.0/24")); err != nil || !n.OnHosts() {
		t.Errorf("a cluster admin's network: %+v, %v", n, err)
	}
	c.put(model.Global{TenantPrefixes: model.Prefixes{netip.MustParsePrefix("10.60.0.0/16")}})
	if n, err := try(tenantAdmin, nativeNetwork("n", "10.60.1.0/24")); err != nil || !n.OnHosts() || !n.ByTenant {
		t.Errorf("within a prefix that is allowed: %+v, %v", n, err)
	}

	// A prefix that such a network needs is not taken away; one that none needs is.
	if n, err := try(tenantAdmin, network("blue:o", "10.60.2.0/24")); err != nil || !n.Allowed {
		t.Errorf("another tenant's network within a prefix that is allowed: %+v, %v", n, err)
	}
	for _, less := range []model.Prefixes{{}, {netip.MustParsePrefix("10.60.2.0/24")}} {
		c.refused(model.ErrInUse, `10.60.1.0/24 of network "default:n"`, func() error { return c.try(model.Global{TenantPrefixes: less}) })
	}
	c.put(model.Global{TenantPrefixes: model.Prefixes{netip.MustParsePrefix("10.60.1.0/24"), netip.MustParsePrefix("10.61.0.0/16")}})
	c.ok(c.remove(netKey("n")))
	c.put(model.Global{TenantPrefixes: model.Prefixes{}})

	c.put(infraNetwork("blue:i", "10.50.0.0/16"))
	valid, err := model.Check(model.Endpoint{Key: model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "i"}, ID: "h1-native-intf"}, Host: "h1"})
	if err == nil {
		_, _, err = c.Endpoints.CreateEndpoint(ctx, Admin(), valid)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := err2(c.Delete(ctx, tenantAdmin, c.Networks.DeleteNetwork(model.NetworkKey{Tenant: "blue", Name: "i"}))); !errors.Is(err, model.ErrForbidden) {
		t.Errorf("a tenant admin takes interfaces from hosts: %v", err)
	}
}

// A host can hear that its endpoint is gone before it hears that the network goes: it may
// not put the endpoint back, which would keep the network.
func TestHostPutsNoEndpointBackOnInfraNetworkThatGoes(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	c.put(model.Tenant{Name: "blue"}, infraNetwork("blue:a", "10.1.0.0/16"))
	k := model.NetworkKey{Tenant: "blue", Name: "a"}
	valid, err := model.Check(model.Endpoint{Key: model.EndpointKey{Network: k, ID: "h1-native-intf"}, Host: "h1"})
	if err != nil {
		t.Fatal(err)
	}
	create := func() error {
		_, _, err := c.Endpoints.CreateEndpoint(ctx, Admin(), valid)
		return err
	}
	if _, err := c.update(ctx, Admin(), "begin to delete", func(tx store.Tx) error { return indexInfra(tx, k, false) }); err != nil {
		t.Fatal(err)
	}
	c.refused(model.ErrNotFound, "is being deleted", create)
	if _, err := c.update(ctx, Admin(), "keep", func(tx store.Tx) error { return indexInfra(tx, k, true) }); err != nil {
		t.Fatal(err)
	}
	if err := create(); err != nil {
		t.Errorf("on one that stays: %v", err)
	}
}
