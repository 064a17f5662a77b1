package control

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// base is the cluster that most tables start from.
func base(t *testing.T) *harness {
	t.Helper()
	c := newCluster(t)
	c.put(
		model.Tenant{Name: "blue"},
		with(network("v1", "10.1.1.0/24"), func(n *model.Network) { n.Gateway = addr("10.1.1.254") }),
		with(network("v2", "10.1.2.0/24"), func(n *model.Network) { n.Gateway, n.Encap, n.ReqTag = addr("10.1.2.1"), model.EncapVLAN, 100 }),
		network("v3", "10.1.3.10-10.1.3.50/24"),
		with(network("v6", "10.1.6.0/24", "2001:db8:6::/64"), func(n *model.Network) { n.Gateway6 = addr("2001:db8:6::1") }),
		network("only6", "2001:db8:7::/64"),
		network("blue:v1", "10.1.1.0/24"),
		policy("p1"), policy("p2"), policy("blue:p1"),
		group("web", "v1", "p1"), group("db", "v1"), pooled("pool", "v2", "10.1.2.10-10.1.2.20"), group("idle", "v3"),
		rule("p1", "1"), rule("p1", "6", func(r *model.Rule) { r.Group = "db" }), rule("p2", "7", func(r *model.Rule) { r.Network = "v3" }),
		endpoint("v1", "c1", inGroup("web")), endpoint("v1", "c2"),
		endpoint("v2", "c9", inGroup("pool")),
	)
	return c
}

// Every request that the contract refuses: its kind, a part of its sentence,
// and that nothing changed.
func TestRefusedRequestsChangeNothing(t *testing.T) {
	c := base(t)
	reserved := AddressRequest{Network: netKey("v1"), Preferred: addr("10.1.1.77"), Host: "host2"}
	c.put(reserved)
	for _, tc := range []struct {
		name string
		kind error
		part string
		put  any // or
		del  any
	}{
		// tenants
		{name: "tenant name", kind: model.ErrInvalid, part: "tenantName", put: model.Tenant{Name: "a/b"}},
		{name: "tenant default network of a new tenant", kind: model.ErrNotFound, part: "defaultNetwork", put: model.Tenant{Name: "green", DefaultNetwork: "nosuch"}},
		{name: "tenant default network", kind: model.ErrNotFound, part: `"blue:n9" does not exist`, put: model.Tenant{Name: "blue", DefaultNetwork: "n9"}},
		{name: "delete unknown tenant", kind: model.ErrNotFound, part: "nosuch", del: model.TenantName("nosuch")},
		{name: "delete tenant with network", kind: model.ErrInUse, part: "networks", del: model.TenantName("blue")},
		{name: "delete default tenant", kind: model.ErrInUse, part: "default tenant", del: model.DefaultTenant},
		// networks
		{name: "network in unknown tenant", kind: model.ErrNotFound, part: `tenant "nosuch"`, put: network("nosuch:n", "10.9.0.0/24")},
		{name: "network overlaps inside", kind: model.ErrConflict, part: "overlaps 10.1.1.0/24", put: network("n", "10.1.1.128/25")},
		{name: "network overlaps around", kind: model.ErrConflict, part: "overlap", put: network("n", "10.0.0.0/8")},
		{name: "network overlaps range", kind: model.ErrConflict, part: "10.1.3.0/24", put: network("n", "10.1.3.60-10.1.3.90/24")},
		{name: "network overlaps v6", kind: model.ErrConflict, part: "ipv6Subnet", put: network("n", "10.9.0.0/24", "2001:db8:6::/48")},
		{name: "network is the private subnet", kind: model.ErrConflict, part: "private subnet 172.19.0.0/16", put: network("n", "172.19.0.0/16")},
		{name: "network in the private subnet", kind: model.ErrConflict, part: "--private-subnet", put: network("blue:n", "172.19.3.0/24")},
		{name: "network around the private subnet", kind: model.ErrConflict, part: "private subnet", put: network("n", "172.16.0.0/12")},
		{name: "network in the private subnet of IPv6", kind: model.ErrConflict, part: "private subnet fd6d:809b:d5b4::/96", put: network("blue:n", "10.9.0.0/24", "fd6d:809b:d5b4::ac13:0/112")},
		{name: "network around the private subnet of IPv6", kind: model.ErrConflict, part: "private subnet", put: network("n", "10.9.0.0/24", "fd6d:809b:d5b4::/64")},
		{name: "network has group's name", kind: model.ErrConflict, part: "endpoint group", put: network("web", "10.9.0.0/24")},
		{name: "network subnet changes", kind: model.ErrConflict, part: "subnet", put: network("v3", "10.1.3.0/24")},
		{name: "network gateway changes", kind: model.ErrConflict, part: "gateway", put: network("v1", "10.1.1.0/24")},
		{name: "network encap changes", kind: model.ErrConflict, part: "encap", put: with(network("v3", "10.1.3.10-10.1.3.50/24"), func(n *model.Network) { n.Encap = model.EncapVLAN })},
		{name: "vlan taken", kind: model.ErrConflict, part: "default:v2", put: with(network("n", "10.9.0.0/24"), func(n *model.Network) { n.Encap, n.ReqTag = model.EncapVLAN, 100 })},
		{name: "vni taken", kind: model.ErrConflict, part: "default:v1", put: with(network("n", "10.9.0.0/24"), func(n *model.Network) { n.ReqTag = 1 })},
		{name: "vni outside global range", kind: model.ErrInvalid, part: "1-10000", put: with(network("n", "10.9.0.0/24"), func(n *model.Network) { n.ReqTag = 10001 })},
		{name: "gateway outside", kind: model.ErrInvalid, part: "gateway", put: with(network("n", "10.9.0.0/24"), func(n *model.Network) { n.Gateway = addr("10.8.0.1") })},
		{name: "delete unknown network", kind: model.ErrNotFound, part: "nosuch", del: netKey("nosuch")},
		{name: "delete network with groups", kind: model.ErrInUse, part: "endpoint groups", del: netKey("v1")},
		{name: "delete network with rules", kind: model.ErrInUse, part: "endpoint groups", del: netKey("v3")},
		// groups
		{name: "group in unknown tenant", kind: model.ErrNotFound, part: `tenant "nosuch"`, put: group("nosuch:x", "v1")},
		{name: "group on unknown network", kind: model.ErrNotFound, part: "blue:v2", put: group("blue:x", "v2")},
		{name: "group has network's name", kind: model.ErrConflict, part: "network", put: group("v1", "v1")},
		{name: "group of unknown policy", kind: model.ErrNotFound, part: "nopolicy", put: group("x", "v1", "nopolicy")},
		{name: "group gets unknown policy", kind: model.ErrNotFound, part: "nopolicy", put: group("web", "v1", "p1", "nopolicy")},
		{name: "group changes network", kind: model.ErrConflict, part: "networkName", put: group("web", "v3")},
		{name: "group changes pool", kind: model.ErrConflict, part: "ipPool", put: pooled("pool", "v2", "10.1.2.10-10.1.2.21")},
		{name: "group netprofile", kind: model.ErrNotFound, part: "netProfile", put: with(group("x", "v1"), func(g *model.Group) { g.NetProfile = "np" })},
		{name: "group contracts", kind: model.ErrNotFound, part: "extContractsGrps", put: with(group("x", "v1"), func(g *model.Group) { g.ExtContracts = []string{"ec"} })},
		{name: "too many policies", kind: model.ErrInvalid, part: "policies", put: group("x", "v1", "a", "b", "c", "d", "e", "f", "g", "h", "i")},
		{name: "pool holds gateway", kind: model.ErrInvalid, part: "gateway", put: pooled("x", "v2", "10.1.2.1-10.1.2.5")},
		{name: "pool outside range", kind: model.ErrInvalid, part: "range", put: pooled("x", "v3", "10.1.3.45-10.1.3.60")},
		{name: "pool outside subnet", kind: model.ErrInvalid, part: "inside the subnet", put: pooled("x", "v2", "10.1.7.5-10.1.7.6")},
		{name: "pool overlaps pool", kind: model.ErrConflict, part: `"pool"`, put: pooled("x", "v2", "10.1.2.20-10.1.2.25")},
		{name: "pool holds an endpoint", kind: model.ErrConflict, part: "is used by endpoint", put: pooled("x", "v1", "10.1.1.1-10.1.1.5")},
		{name: "pool holds a reservation", kind: model.ErrConflict, part: "reserved for host2", put: pooled("x", "v1", "10.1.1.70-10.1.1.80")},
		{name: "pool without IPv4", kind: model.ErrInvalid, part: "no IPv4", put: pooled("x", "only6", "10.1.2.20-10.1.2.25")},
		{name: "delete unknown group", kind: model.ErrNotFound, part: "nosuch", del: groupKey("nosuch")},
		{name: "delete group with endpoints", kind: model.ErrInUse, part: "active endpoints", del: groupKey("web")},
		{name: "delete group that a rule names", kind: model.ErrInUse, part: "default:p1:6", del: groupKey("db")},
		// policies and rules
		{name: "policy in unknown tenant", kind: model.ErrNotFound, part: "nosuch", put: policy("nosuch:p")},
		{name: "delete attached policy", kind: model.ErrInUse, part: "default:web", del: policyKey("p1")},
		{name: "delete unknown policy", kind: model.ErrNotFound, part: "nosuch", del: policyKey("nosuch")},
		{name: "rule of unknown policy", kind: model.ErrNotFound, part: "nosuch", put: rule("nosuch", "1")},
		{name: "rule names unknown group", kind: model.ErrNotFound, part: "fromEndpointGroup", put: rule("p1", "2", func(r *model.Rule) { r.Group = "nosuch" })},
		{name: "rule names group of another tenant", kind: model.ErrNotFound, part: "blue:web", put: rule("blue:p1", "2", func(r *model.Rule) { r.Group = "web" })},
		{name: "rule names unknown network", kind: model.ErrNotFound, part: "toNetwork", put: rule("p1", "2", func(r *model.Rule) { r.Direction, r.Network = model.Out, "nosuch" })},
		{name: "rule changes", kind: model.ErrConflict, part: "action", put: rule("p1", "1", func(r *model.Rule) { r.Action = model.Deny })},
		{name: "rule changes peer", kind: model.ErrConflict, part: "fromEndpointGroup", put: rule("p1", "1", func(r *model.Rule) { r.Group = "db" })},
		{name: "rule with port alone", kind: model.ErrInvalid, part: "port", put: rule("p1", "2", func(r *model.Rule) { r.Port = 80 })},
		{name: "delete unknown rule", kind: model.ErrNotFound, part: "p1:99", del: model.RuleKey{Tenant: "default", Policy: "p1", Rule: "99"}},
		// endpoints
		{name: "endpoint in unknown tenant", kind: model.ErrNotFound, part: `tenant "nosuch" does not exist`, put: endpoint("nosuch:v1", "c")},
		{name: "endpoint in unknown tenant's group", kind: model.ErrNotFound, part: `tenant "nosuch" does not exist`, put: endpoint("nosuch:v1", "c", inGroup("web"))},
		{name: "endpoint in unknown group", kind: model.ErrNotFound, part: "nosuch", put: endpoint("v1", "c", inGroup("nosuch"))},
		{name: "endpoint in group of another network", kind: model.ErrConflict, part: `on network "v1"`, put: endpoint("v2", "c", inGroup("web"))},
		{name: "endpoint without id", kind: model.ErrInvalid, part: "EndpointID", put: endpoint("v1", "")},
		{name: "endpoint with a slash", kind: model.ErrInvalid, part: "EndpointID", put: endpoint("v1", "a/b")},
		{name: "address taken", kind: model.ErrConflict, part: "is used by endpoint", put: endpoint("v1", "c", withIP("10.1.1.1"))},
		{name: "address reserved for another host", kind: model.ErrConflict, part: "reserved for host2", put: endpoint("v1", "c", withIP("10.1.1.77"))},
		{name: "address outside", kind: model.ErrInvalid, part: "inside the subnet", put: endpoint("v1", "c", withIP("10.99.1.1"))},
		{name: "address is gateway", kind: model.ErrInvalid, part: "gateway", put: endpoint("v1", "c", withIP("10.1.1.254"))},
		{name: "address is broadcast", kind: model.ErrInvalid, part: "broadcast", put: endpoint("v1", "c", withIP("10.1.1.255"))},
		{name: "address outside range", kind: model.ErrInvalid, part: "range", put: endpoint("v3", "c", withIP("10.1.3.200"))},
		{name: "address outside own pool", kind: model.ErrInvalid, part: "pool", put: endpoint("v2", "c", inGroup("pool"), withIP("10.1.2.99"))},
		{name: "address in a pool of others", kind: model.ErrConflict, part: `"pool"`, put: endpoint("v2", "c", withIP("10.1.2.15"))},
		{name: "IPv6 outside", kind: model.ErrInvalid, part: "IPv6Address", put: endpoint("v6", "c", withIP("2001:db9::50"))},
		{name: "IPv6 is gateway", kind: model.ErrInvalid, part: "gateway", put: endpoint("v6", "c", withIP("2001:db8:6::1"))},
		{name: "IPv6 where there is none", kind: model.ErrInvalid, part: "no such subnet", put: endpoint("v1", "c", withIP("2001:db8:6::9"))},
		{name: "IPv4 where there is none", kind: model.ErrInvalid, part: "no such subnet", put: endpoint("only6", "c", withIP("10.1.1.9"))},
		{name: "endpoint with another group", kind: model.ErrConflict, part: "ServiceName", put: endpoint("v1", "c1")},
		{name: "endpoint on another host", kind: model.ErrConflict, part: "Host", put: endpoint("v1", "c1", inGroup("web"), func(e *model.Endpoint) { e.Host = "host2" })},
		{name: "endpoint with another address", kind: model.ErrConflict, part: "IPAddress", put: endpoint("v1", "c1", inGroup("web"), withIP("10.1.1.9"))},
		{name: "delete unknown endpoint", kind: model.ErrNotFound, part: "nosuch", del: model.EndpointKey{Network: netKey("v1"), ID: "nosuch"}},
		// addresses
		{name: "reserve the gateway", kind: model.ErrInvalid, part: "gateway", put: AddressRequest{Network: netKey("v1"), Preferred: addr("10.1.1.254")}},
		{name: "reserve the network address", kind: model.ErrInvalid, part: "network or broadcast", put: AddressRequest{Network: netKey("v1"), Preferred: addr("10.1.1.0")}},
		{name: "reserve a used address", kind: model.ErrConflict, part: "is used by endpoint", put: AddressRequest{Network: netKey("v1"), Preferred: addr("10.1.1.2")}},
		{name: "reserve twice", kind: model.ErrConflict, part: "reserved", put: reserved},
		{name: "reserve on unknown network", kind: model.ErrNotFound, part: "nosuch", put: AddressRequest{Network: netKey("nosuch")}},
		// settings
		{name: "vlans leave out", kind: model.ErrInUse, part: "100 is used by network default:v2", put: model.Global{VLANs: model.TagRange{Lo: 101, Hi: 4094}}},
		{name: "vxlans leave out", kind: model.ErrInUse, part: "vxlans", put: model.Global{VXLANs: model.TagRange{Lo: 9000, Hi: 10000}}},
		{name: "arpMode", kind: model.ErrInUse, part: "arpMode", put: model.Global{ArpMode: model.ArpFlood}},
		{name: "infra type", kind: model.ErrInUse, part: "networkInfraType", put: model.Global{Infra: model.InfraACI}},
		{name: "private subnet", kind: model.ErrInUse, part: "pvtSubnet", put: model.Global{PvtSubnet: netip.MustParsePrefix("10.222.0.0/16")}},
		{name: "vlans beyond 4094", kind: model.ErrInvalid, part: "vlans", put: model.Global{VLANs: model.TagRange{Lo: 1, Hi: 4095}}},
		{name: "delete settings", kind: model.ErrInUse, part: "networks", del: tables.GlobalKey{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := *c
			c.t = t
			c.refused(tc.kind, tc.part, func() error {
				if tc.put != nil {
					return c.try(tc.put)
				}
				return c.remove(tc.del)
			})
		})
	}
	ctx := testContext(t)
	for _, tc := range []struct {
		addr, part string
		kind       error
	}{
		{"10.1.1.254", "not allocated", model.ErrNotFound},
		{"10.1.1.99", "not allocated", model.ErrNotFound},
		{"10.9.9.9", "not allocated", model.ErrNotFound},
		{"10.1.1.1", "endpoint", model.ErrInUse},
	} {
		c.refused(tc.kind, tc.part, func() error { return err2(c.Addresses.ReleaseAddress(ctx, Admin(), netKey("v1"), addr(tc.addr))) })
	}
	c.refused(model.ErrNotFound, "nosuch", func() error {
		return err2(c.Addresses.ReleaseAddress(ctx, Admin(), netKey("nosuch"), addr("10.1.1.1")))
	})
	c.refused(model.ErrNotFound, "nosuch", func() error {
		return err2(c.Endpoints.UpdateEndpoint(ctx, Admin(), EndpointUpdate{Key: model.EndpointKey{Network: netKey("v1"), ID: "nosuch"}}))
	})
}

// Putting what is there again changes nothing, whatever the object.
func TestRepeatedPutsChangeNothing(t *testing.T) {
	c := base(t)
	before := c.dump()
	c.put(
		model.Global{}, model.DefaultGlobal(), model.Tenant{Name: "blue"}, model.Tenant{Name: "default"},
		with(network("v1", "10.1.1.0/24"), func(n *model.Network) { n.Gateway = addr("10.1.1.254") }),
		with(network("v1", "10.1.1.0/24"), func(n *model.Network) { n.Gateway, n.ReqTag = addr("10.1.1.254"), 1 }),            // what a GET shows
		with(network("v2", "10.1.2.0/24"), func(n *model.Network) { n.Gateway, n.Encap = addr("10.1.2.1"), model.EncapVLAN }), // any tag
		network("blue:v1", "10.1.1.0/24"), policy("p1"), group("web", "v1", "p1"), group("pool", "v2"),
		rule("p1", "1"), endpoint("v1", "c1", inGroup("web")), endpoint("v1", "c1", inGroup("web"), withIP("10.1.1.1")),
	)
	if diff := cmp.Diff(before, c.dump()); diff != "" {
		t.Error(diff)
	}
}

// Everything can be deleted in the right order, and then nothing is left but
// the defaults.
func TestDeletingEverythingLeavesTheDefaults(t *testing.T) {
	c := newCluster(t)
	fresh := c.fresh().Revision() > 0
	before := leftovers(c)
	c.put(
		model.Tenant{Name: "blue"}, network("blue:v1", "10.1.0.0/16", "2001:db8::/32"), policy("blue:p1"),
		group("blue:web", "v1", "p1"), pooled("blue:pool", "v1", "10.1.2.10-10.1.2.20"),
		model.Tenant{Name: "blue", DefaultNetwork: "v1"},
		rule("blue:p1", "1", func(r *model.Rule) { r.Group = "pool" }), rule("blue:p1", "2", func(r *model.Rule) { r.Network = "v1" }),
		endpoint("blue:v1", "c1", inGroup("web")), endpoint("blue:v1", "c2"), endpoint("blue:v1", "c3", inGroup("pool")),
		AddressRequest{Network: netKey("blue:v1")},
	)
	for _, k := range []any{
		model.EndpointKey{Network: netKey("blue:v1"), ID: "c1"},
		model.EndpointKey{Network: netKey("blue:v1"), ID: "c2"},
		model.EndpointKey{Network: netKey("blue:v1"), ID: "c3"},
		groupKey("blue:web"), policyKey("blue:p1"), groupKey("blue:pool"),
	} {
		c.ok(c.remove(k))
	}
	c.refused(model.ErrInUse, "reserved", func() error { return c.remove(netKey("blue:v1")) })
	c.clock.advance(25 * 3600e9) // the reservation has run out
	c.ok(c.remove(netKey("blue:v1")))
	if got, _ := c.fresh().Tenants.Get("blue"); got.DefaultNetwork != "" {
		t.Errorf("the deleted network is still the default one of %+v", got)
	}
	c.ok(c.remove(model.TenantName("blue")))
	c.ok(c.remove(tables.GlobalKey{}))
	if diff := cmp.Diff(before, leftovers(c)); diff != "" || !fresh {
		t.Error(diff)
	}
}

// leftovers is the store without generations and search cursors, which stay.
func leftovers(c *harness) map[string]string {
	all := c.dump()
	for k := range all {
		ch, err := tables.Decode(store.Event{KV: store.KV{Key: k}})
		if _, cursor := ch.Key.(tables.CursorKey); err != nil || ch.Key == nil || cursor {
			delete(all, k)
		}
	}
	return all
}

// The forwarding mode changes while there are networks with endpoints.
func TestForwardingModeChangesWhileEndpointsExist(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/24"))
	c.create(endpoint("n", "e"))
	for _, mode := range []model.FwdMode{model.FwdRouting, model.FwdBridge} {
		c.put(model.Global{FwdMode: mode})
		if g, _ := c.fresh().Settings.Global(); g.FwdMode != mode {
			t.Errorf("the mode is %s, and was set to %s", g.FwdMode, mode)
		}
	}
}

// A restart keeps the settings (known fault 6), and a reset gives the defaults back.
func TestGlobalSurvivesRestart(t *testing.T) {
	c := newCluster(t)
	c.put(model.Global{VLANs: model.TagRange{Lo: 100, Hi: 200}, ArpMode: model.ArpFlood, FwdMode: model.FwdRouting})
	c.stop()
	c2 := onStore(t, c.st)
	want := model.DefaultGlobal()
	want.VLANs, want.ArpMode, want.FwdMode = model.TagRange{Lo: 100, Hi: 200}, model.ArpFlood, model.FwdRouting
	if got, _ := c2.fresh().Settings.Global(); !got.Equal(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	c2.ok(c2.remove(tables.GlobalKey{}))
	if got, _ := c2.fresh().Settings.Global(); !got.Equal(model.DefaultGlobal()) {
		t.Errorf("got %+v after the reset", got)
	}
	c2.put(network("n", "10.1.0.0/24"))
	c2.put(model.Global{VXLANs: model.TagRange{Lo: 1, Hi: 70000}})
	c2.put(model.Global{VXLANs: model.TagRange{Lo: 1, Hi: 5}})
}
