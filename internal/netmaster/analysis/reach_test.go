package analysis

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// town is a cluster of two hosts in mode routing.
type town struct {
	testing.TB
	rows    rowsAlone
	engine  *Engine
	reports map[model.HostName]HostReport
}

func (w *town) put(key, value any) {
	w.Helper()
	kv, err := tables.Encode(key, value)
	if err != nil {
		w.Fatal(err)
	}
	kv.Create, kv.Mod = 1, 1
	w.rows = append(w.rows, kv)
}

// network puts a network, of fd00:ID::/64 too if it has both families.
func (w *town) network(tenant model.TenantName, name model.NetworkName, id model.NetworkID, subnet string, both, routed bool) {
	k := model.NetworkKey{Tenant: tenant, Name: name}
	n := model.Network{Key: k, ID: id, Tag: uint32(id), Type: model.NetworkData, Encap: model.EncapVXLAN, Subnet: netip.MustParsePrefix(subnet), Routed: routed, Identity: model.IdentityFirst + model.Identity(id)}
	if both {
		n.Subnet6 = netip.MustParsePrefix("fd00:" + string(rune('0'+id)) + "::/64")
	}
	w.put(k, n)
	w.put(tables.IdentityKey{Tenant: tenant, ID: n.Identity}, model.IdentityRecord{ID: n.Identity, Network: k})
}

func (w *town) endpoint(n model.NetworkKey, id model.EndpointID, host model.HostName, group model.GroupName, v4, v6 string, labels map[string]string) {
	e := model.Endpoint{Key: model.EndpointKey{Network: n, ID: id}, Host: host, Group: group, IPv4: netip.MustParseAddr(v4), Labels: labels}
	if v6 != "" {
		e.IPv6 = netip.MustParseAddr(v6)
	}
	e.Identity = model.IdentityFirst + model.Identity(len(w.rows)) + 100
	e.MAC = model.EndpointMAC(n, e.IPv4, e.IPv6)
	w.put(tables.IdentityKey{Tenant: n.Tenant, ID: e.Identity}, model.IdentityRecord{ID: e.Identity, Network: n, Group: group, Labels: labels})
	w.put(e.Key, e)
}

func (w *town) policy(tenant model.TenantName, name model.PolicyName, rules ...model.Rule) {
	k := model.PolicyKey{Tenant: tenant, Name: name}
	w.put(k, model.ContivPolicy{Key: k}.General())
	for i, r := range rules {
		r.Key, r.Direction, r.Priority = model.RuleKey{Tenant: tenant, Policy: name, Rule: model.RuleID(string(rune('a' + i)))}, model.In, 10-i
		w.put(r.Key, r.General())
	}
}

// newTown: web1, plain and db1 of tenant blue, r1 of red, ov1 of default with plain's address, and
// nat1 of default on a routed network. Red's pub is published at port 8443 of h1.
func newTown(tb testing.TB) *town {
	tb.Helper()
	w := &town{TB: tb}
	w.put(tables.GlobalKey{}, model.Global{FwdMode: model.FwdRouting, PvtSubnet: netip.MustParsePrefix("172.20.0.0/16")})
	for i, name := range []model.TenantName{"blue", "red", "default"} {
		w.put(name, model.Tenant{Name: name, Router: model.RouterID(i + 1)})
	}
	for name, last := range map[model.HostName]string{"h1": "11", "h2": "12"} {
		a := netip.MustParseAddr("10.250.0." + last)
		w.put(name, model.Host{Name: name, Control: a, VTEP: a, Installation: string(name)})
	}
	w.network("blue", "web", 1, "10.1.1.0/24", true, false)
	w.network("blue", "db", 2, "10.1.2.0/24", true, false)
	w.network("red", "r", 3, "10.3.0.0/24", false, false)
	w.network("default", "ov", 4, "10.1.2.0/24", false, false)
	w.network("default", "nat", 5, "10.244.0.0/24", false, true)
	w.policy("blue", "plain",
		model.Rule{Action: model.Allow, Protocol: model.ProtoTCP, Port: 80, Addr: netip.MustParsePrefix("10.1.1.0/24")},
		model.Rule{Action: model.Allow, Protocol: model.ProtoTCP, Port: 443, Addr: netip.MustParsePrefix("fd00:1::/64")},
		model.Rule{Action: model.Deny, Protocol: model.AnyProtocol})
	w.policy("red", "closed",
		model.Rule{Action: model.Allow, Protocol: model.ProtoTCP, Port: 443, Addr: netip.MustParsePrefix("10.250.0.12/32")},
		model.Rule{Action: model.Deny, Protocol: model.AnyProtocol})
	group := func(tenant model.TenantName, name model.GroupName, network model.NetworkName, policy model.PolicyName) {
		k := model.GroupKey{Tenant: tenant, Name: name}
		w.put(k, model.Group{Key: k, Network: network, Policies: []model.PolicyName{policy}})
	}
	group("blue", "plain", "db", "plain")
	group("red", "pub", "r", "closed")
	web, db := model.NetworkKey{Tenant: "blue", Name: "web"}, model.NetworkKey{Tenant: "blue", Name: "db"}
	red := model.NetworkKey{Tenant: "red", Name: "r"}
	w.endpoint(web, "web1", "h1", "", "10.1.1.2", "fd00:1::2", nil)
	w.endpoint(db, "plain", "h2", "plain", "10.1.2.4", "fd00:2::4", nil)
	w.endpoint(db, "db1", "h2", "", "10.1.2.3", "fd00:2::3", map[string]string{"app": "db"})
	w.endpoint(web, "four", "h2", "", "10.1.1.3", "", nil)
	w.endpoint(red, "r1", "h1", "", "10.3.0.2", "", nil)
	w.endpoint(red, "r2", "h2", "", "10.3.0.3", "", nil)
	w.endpoint(red, "pub", "h1", "pub", "10.3.0.4", "", nil)
	w.endpoint(model.NetworkKey{Tenant: "default", Name: "ov"}, "ov1", "h1", "", "10.1.2.4", "", nil)
	w.endpoint(model.NetworkKey{Tenant: "default", Name: "nat"}, "nat1", "h1", "", "10.244.0.2", "", nil)
	service := model.ServiceKey{Tenant: "blue", Name: "dbsvc"}
	w.put(service, model.Service{
		Key: service, Network: db, Addrs: []netip.Addr{netip.MustParseAddr("10.1.2.1"), netip.MustParseAddr("fd00:2::1")},
		Ports: []model.ServicePort{{Protocol: model.ProtoTCP, Port: 3306, Target: 5432}}, Selectors: []model.ServiceSelector{{Key: "app", Value: "db"}}, Affinity: model.NoAffinity,
	})
	w.reports = map[model.HostName]HostReport{"h1": {Published: []PublishedPort{{
		Endpoint: model.EndpointKey{Network: red, ID: "pub"}, Protocol: model.ProtoTCP, At: netip.AddrPortFrom(netip.Addr{}, 8443), Port: 443,
	}}}}
	return w
}

func (w *town) ask(from, to, port string, tenant model.TenantName) Reachable {
	w.Helper()
	q := question(w, from, to, port)
	q.Tenant, q.Reports = tenant, w.reports
	out, err := w.engineOf().Reach(w.Context(), q, everything{})
	if err != nil {
		w.Fatalf("%s to %s: %v", from, to, err)
	}
	return out
}

// expect asks, each line FROM TO PORT VERDICT.
func (w *town) expect(lines ...[4]string) {
	w.Helper()
	for _, c := range lines {
		got := w.ask(c[0], c[1], c[2], "")
		verdict := "no"
		switch {
		case got.All:
			verdict = "yes"
		case got.Some:
			verdict = "partly"
		}
		if verdict != c[3] {
			w.Errorf("%s to %s by %s: %s, want %s: %+v", c[0], c[1], c[2], verdict, c[3], got.Rows)
		}
	}
}

func TestServiceAddressLeadsToTheService(t *testing.T) {
	newTown(t).expect(
		[4]string{"web1", "10.1.2.1", "tcp/3306", "yes"},
		[4]string{"web1", "fd00:2::1", "tcp/3306", "yes"},
		[4]string{"web1", "10.1.2.1", "tcp/3307", "no"},
		[4]string{"web1", "service:dbsvc", "tcp/3306", "yes"},
		[4]string{"four", "fd00:2::1", "tcp/3306", "no"},
		[4]string{"10.1.1.2", "10.1.2.1", "tcp/3306", "yes"},
	)
}

func TestClientOfOneFamilyIsAnsweredAboutItAlone(t *testing.T) {
	newTown(t).expect([4]string{"four", "service:dbsvc", "tcp/3306", "yes"})
}

func TestAddressMeansTheEndpointThatHasItForTheOtherEnd(t *testing.T) {
	w := newTown(t)
	w.expect(
		[4]string{"web1", "fd00:2::4", "tcp/80", "no"},
		[4]string{"web1", "10.1.2.4", "tcp/80", "yes"},
		[4]string{"web1", "10.1.2.4", "tcp/443", "no"},
		[4]string{"web1", "fd00:2::4", "tcp/443", "yes"},
		[4]string{"fd00:1::2", "plain", "tcp/443", "yes"},
		[4]string{"10.1.1.2", "plain", "tcp/443", "no"},
		[4]string{"10.1.2.4", "web1", "tcp/80", "yes"},
		[4]string{"four", "fd00:2::3", "tcp/80", "no"},
		[4]string{"r1", "10.244.0.2", "tcp/80", "no"},
		[4]string{"r1", "nat1", "tcp/80", "no"},
		[4]string{"ov1", "10.244.0.2", "tcp/80", "yes"},
		[4]string{"10.1.1.2", "10.1.2.4", "tcp/80", "yes"},
	)
	for _, r := range w.ask("fd00:1::2", "fd00:2::4", "tcp/80", "").Rows {
		if r.IPv4 {
			t.Errorf("addresses of IPv6 have a row of IPv4: %+v", r)
		}
	}
	if got := w.ask("10.1.2.4", "internet", "tcp/80", ""); len(got.Rows) != 1 || len(got.Rows[0].From) != 2 {
		t.Errorf("an address of two tenants: %+v", got.Rows)
	}
	if got := w.ask("10.1.2.4", "internet", "tcp/80", "blue"); len(got.Rows) != 1 || len(got.Rows[0].From) != 1 || got.Rows[0].From[0] != "blue:db:plain" {
		t.Errorf("of one of them: %+v", got.Rows)
	}
}

func TestPublishedPortLeadsToItsContainer(t *testing.T) {
	newTown(t).expect(
		[4]string{"r1", "host:h1", "tcp/8443", "no"},
		[4]string{"web1", "10.250.0.11", "tcp/8443", "no"},
		[4]string{"r2", "host:h1", "tcp/8443", "yes"}, // with the address of h2
		[4]string{"r1", "host:h2", "tcp/8443", "yes"},
		[4]string{"r1", "host:h1", "tcp/22", "yes"},
		[4]string{"r1", "host:h1", "tcp", "partly"},
	)
}

func TestEndpointReachesItself(t *testing.T) {
	newTown(t).expect([4]string{"plain", "plain", "tcp/22", "yes"}, [4]string{"plain", "10.1.2.4", "tcp/22", "yes"})
}

func TestClientsOutsideNeedAWayIn(t *testing.T) {
	newTown(t).expect(
		[4]string{"internet", "web1", "tcp/22", "no"},
		[4]string{"10.250.0.12", "pub", "tcp/443", "yes"},
		[4]string{"10.250.0.12", "pub", "", "partly"},
		[4]string{"203.0.113.0/24", "pub", "tcp/443", "no"},
		[4]string{"internet", "nat1", "tcp/80", "yes"},
	)
}

func TestUnconfirmedChangeIsInForce(t *testing.T) {
	w := newTown(t)
	w.expect([4]string{"web1", "plain", "tcp/8080", "no"})
	rule := model.Rule{Key: model.RuleKey{Tenant: "blue", Policy: "plain", Rule: "try"}, Direction: model.In, Priority: 50, Action: model.Allow, Protocol: model.ProtoTCP, Port: 8080}
	row, err := tables.Encode(rule.Key, rule.General())
	if err != nil {
		t.Fatal(err)
	}
	apply := func(kv store.KV, rev store.Revision) {
		w.engine.Apply(store.Batch{Revision: rev, Events: []store.Event{{KV: kv}}})
	}
	trial := tables.Trial{ID: "abc", Tenant: "blue", Rows: []tables.TrialRow{{Key: row.Key, Value: row.Value}}}
	kv, err := tables.Encode(tables.TrialKey{Tenant: "blue", ID: "abc"}, trial)
	if err != nil {
		t.Fatal(err)
	}
	kv.Create, kv.Mod = 2, 2
	apply(kv, 2)
	w.expect([4]string{"web1", "plain", "tcp/8080", "yes"})
	if got := w.ask("web1", "plain", "", "").Unconfirmed; len(got) != 1 || got[0] != "abc" {
		t.Errorf("the answer has the unconfirmed changes %q", got)
	}
	apply(store.KV{Key: kv.Key}, 3)
	w.expect([4]string{"web1", "plain", "tcp/8080", "no"})
	row.Create, row.Mod = 4, 4
	apply(row, 4)
	w.expect([4]string{"web1", "plain", "tcp/8080", "yes"})
	if got := w.ask("web1", "plain", "", "").Unconfirmed; got != nil {
		t.Errorf("a confirmed change is among the unconfirmed %q", got)
	}
}

func TestRefusalsNameWhatDoesNotExist(t *testing.T) {
	w := newTown(t)
	w.ask("web1", "plain", "", "")
	for subject, want := range map[string]string{
		"group:red/web": `from: group "web" of tenant "red" does not exist`,
		"group:web":     `from: group "web" of tenant "blue" does not exist`,
		"tenant:nosuch": `from: tenant "nosuch" does not exist`,
		"host:h9":       `from: host "h9" does not exist`,
	} {
		if _, err := w.engineOf().Reach(t.Context(), question(t, subject, "web1", ""), everything{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", subject, err, want)
		}
	}
	for _, key := range []string{"10.1.1.2", "group:web"} {
		s, err := ParseSubject("endpoint", "endpoint:"+key, "")
		if err != nil {
			t.Fatal(err)
		}
		want := `endpoint: endpoint "` + key + `" does not exist: name one by its key, id, container or name`
		if _, err := w.engine.Explain(t.Context(), s, everything{}); err == nil || err.Error() != want {
			t.Errorf("explain %s: %v, want %s", key, err, want)
		}
	}
}
