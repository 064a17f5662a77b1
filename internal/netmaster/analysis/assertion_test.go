package analysis

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// changingRows is a Source that changes.
type changingRows struct {
	rows map[string]store.KV
	rev  store.Revision
}

func (c *changingRows) Rows() ([]store.KV, store.Revision, string) {
	return slices.Collect(maps.Values(c.rows)), c.rev, ""
}
func (c *changingRows) Fresh(context.Context) (store.Revision, error) { return c.rev, nil }

func (c *changingRows) ReadCached(_ store.Revision, keys []string) (out []store.KV, rev store.Revision) {
	for _, k := range keys {
		if kv, is := c.rows[k]; is {
			out = append(out, kv)
		}
	}
	return out, c.rev
}

// row is a change of a row, which goes or is to have a value.
func (c *changingRows) row(t *testing.T, key, value any, gone bool) PlannedRow {
	t.Helper()
	then, err := tables.Encode(key, value)
	if err != nil {
		t.Fatal(err)
	}
	row := PlannedRow{Now: c.rows[then.Key], Then: then.Value}
	if row.Now.Key = then.Key; gone {
		row.Then = nil
	}
	return row
}

// commit makes a change and returns it as a batch.
func (c *changingRows) commit(row PlannedRow) store.Batch {
	c.rev++
	kv := store.KV{Key: row.Now.Key}
	if delete(c.rows, kv.Key); row.Then != nil {
		kv.Value, kv.Create, kv.Mod = row.Then, c.rev, c.rev
		c.rows[kv.Key] = kv
	}
	return store.Batch{Revision: c.rev, Events: []store.Event{{KV: kv}}}
}

const blue, red = model.TenantName("blue"), model.TenantName("red")

func networkOf(i int) model.NetworkKey {
	return model.NetworkKey{Tenant: []model.TenantName{blue, blue, red}[i], Name: model.NetworkName(fmt.Sprint("n", i))}
}

// randomChange changes one row of a small cluster.
func (c *changingRows) randomChange(t *testing.T, r *rand.Rand) PlannedRow {
	t.Helper()
	one := func(n int) int { return r.IntN(n) }
	tenant := []model.TenantName{blue, blue, red}[one(3)]
	groupName := func() model.GroupName { return model.GroupName(fmt.Sprint("g", one(3))) }
	gone := one(3) == 0
	switch one(6) {
	case 0, 1:
		rule := model.Rule{
			Key:       model.RuleKey{Tenant: tenant, Policy: model.PolicyName(fmt.Sprint("p", one(3))), Rule: model.RuleID(strconv.Itoa(one(4)))},
			Direction: []model.Direction{model.In, model.Out}[one(2)], Priority: 1 + one(5), Action: []model.Action{model.Allow, model.Deny}[one(2)], Protocol: model.ProtoTCP, Port: []uint16{0, 22, 80}[one(3)],
		}
		switch one(3) {
		case 0:
			rule.Group = groupName()
		case 1:
			rule.Addr = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("203.0.113.0/24")}[one(3)]
		}
		return c.row(t, rule.Key, rule.General(), gone)
	case 2:
		g := model.Group{Key: model.GroupKey{Tenant: tenant, Name: groupName()}, Network: "n0"}
		for i := range one(3) {
			g.Policies = append(g.Policies, model.PolicyName(fmt.Sprint("p", i)))
		}
		return c.row(t, g.Key, g, gone && one(3) == 0)
	case 3, 4:
		n, i, g, app := one(3), one(5), one(3), one(2)
		e := model.Endpoint{
			Key: model.EndpointKey{Network: networkOf(n), ID: model.EndpointID(fmt.Sprint("e", i))}, Name: fmt.Sprint("name", i), Host: model.HostName(fmt.Sprint("h", one(2))),
			Group: model.GroupName(fmt.Sprint("g", g)), Labels: map[string]string{"app": strconv.Itoa(app)}, Identity: identityOf(n, g, app), IPv4: netip.AddrFrom4([4]byte{10, byte(n), 0, byte(1 + i + 5*one(2))}),
		}
		e.MAC = model.EndpointMAC(e.Key.Network, e.IPv4, netip.Addr{})
		return c.row(t, e.Key, e, gone)
	}
	k := model.ServiceKey{Tenant: blue, Name: "s"}
	s := model.Service{
		Key: k, Network: networkOf(0), Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.200")}, Affinity: model.NoAffinity,
		Ports: []model.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Target: []uint16{22, 80}[one(2)]}}, Selectors: []model.ServiceSelector{{Key: "app", Value: strconv.Itoa(one(2))}},
	}
	return c.row(t, k, s, gone)
}

func identityOf(network, group, app int) model.Identity {
	return model.IdentityFirst + model.Identity(100+10*network+2*group+app)
}

func smallCluster(t *testing.T) *changingRows {
	t.Helper()
	c := &changingRows{rows: map[string]store.KV{}, rev: 1}
	put := func(key, value any) { c.commit(c.row(t, key, value, false)) }
	put(tables.GlobalKey{}, model.Global{FwdMode: model.FwdRouting})
	for i, name := range []model.TenantName{blue, red} {
		put(name, model.Tenant{Name: name, Router: model.RouterID(i + 1)})
		for p := range 3 {
			k := model.PolicyKey{Tenant: name, Name: model.PolicyName(fmt.Sprint("p", p))}
			put(k, model.ContivPolicy{Key: k}.General())
		}
	}
	for i := range 3 {
		k := networkOf(i)
		id := model.NetworkID(i + 1)
		put(k, model.Network{Key: k, ID: id, Tag: uint32(id), Type: model.NetworkData, Encap: model.EncapVXLAN, Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i)}), 24)})
		for j := range 6 {
			g, app := j/2, j%2
			put(tables.IdentityKey{Tenant: k.Tenant, ID: identityOf(i, g, app)}, model.IdentityRecord{ID: identityOf(i, g, app), Network: k, Group: model.GroupName(fmt.Sprint("g", g)), Labels: map[string]string{"app": strconv.Itoa(app)}})
		}
	}
	sides := []string{"any", "internet", "group:g0", "group:g1", "network:n0", "network:n1", "app=0", "name1", "endpoint:e2", "10.0.0.0/24", "10.0.0.2", "203.0.113.9", "host:h1", "service:s", "tenant:blue"}
	for i, from := range sides {
		for j, to := range sides {
			a := model.Assertion{Key: model.AssertionKey{Tenant: blue, Name: fmt.Sprint(i, "-", j)}, Verdict: []model.Verdict{model.Never, model.Always}[(i+j)%2], From: from, To: to, ClusterWide: (i*j)%5 == 1}
			if a.Ports = nil; (i+j)%3 > 0 {
				a.Ports = []string{"tcp/22"}
			}
			if CheckAssertion(a) == nil {
				put(a.Key, a)
			}
		}
	}
	return c
}

func states(t *testing.T, e *Engine) map[string]Verdict {
	t.Helper()
	all, err := e.Verdicts(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Verdict{}
	for _, v := range all {
		out[v.Assertion.Key.Name] = v
	}
	return out
}

// What is tested again after a change is enough: an Engine that reads all rows says the same, and so
// did Check before the change.
func TestVerdictsFollowChanges(t *testing.T) {
	for seed := range uint64(2) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := smallCluster(t)
		e := New(c, slog.New(slog.DiscardHandler))
		before := states(t, e)
		broken := 0
		for step := range 60 {
			row := c.randomChange(t, r)
			check, err := e.Check(t.Context(), []PlannedRow{row})
			if err != nil {
				t.Fatal(err)
			}
			e.Apply(c.commit(row))
			after, want := states(t, e), states(t, New(c, slog.New(slog.DiscardHandler)))
			var breaks []string
			for name, v := range want {
				if after[name].State != v.State {
					t.Fatalf("seed %d, step %d, %s: %v is %s (%s), want %s (%s)", seed, step, row.Now.Key, v.Assertion, after[name].State, after[name].Why, v.State, v.Why)
				}
				if v.State == Broken && before[name].State == Holds {
					breaks = append(breaks, name)
				}
			}
			var said []string
			for _, v := range check {
				said = append(said, v.Assertion.Key.Name)
			}
			slices.Sort(breaks)
			slices.Sort(said)
			if !slices.Equal(said, breaks) {
				t.Fatalf("seed %d, step %d, %s: check says %v, and it breaks %v", seed, step, row.Now.Key, said, breaks)
			}
			before, broken = want, broken+len(breaks)
		}
		if broken < 20 {
			t.Errorf("seed %d: only %d assertions were broken", seed, broken)
		}
	}
}

// assert says what becomes of an assertion that is new in a town.
func (w *town) assert(verdict model.Verdict, from, to string, ports ...string) string {
	w.Helper()
	a := model.Assertion{Key: model.AssertionKey{Tenant: "blue", Name: "x"}, Verdict: verdict, From: from, To: to, Ports: ports}
	if err := CheckAssertion(a); err != nil {
		return err.Error()
	}
	all, err := w.engineOf().Check(w.Context(), []PlannedRow{w.rows.planned(w, a.Key, a)})
	if err != nil || len(all) == 0 {
		return fmt.Sprint(err)
	}
	return all[0].String()
}

func (w *town) engineOf() *Engine {
	if w.engine == nil {
		w.engine = New(w.rows, slog.New(slog.DiscardHandler))
	}
	return w.engine
}

func TestAssertionSaysWhatBreaksIt(t *testing.T) {
	w := newTown(t)
	for _, c := range []struct {
		verdict        model.Verdict
		from, to, port string
		says           string
	}{
		{model.Never, "any", "plain", "tcp/81", "<nil>"},
		{model.Never, "any", "plain", "tcp/80", "-> blue:db:plain tcp/80 (IPv4) is allowed; at the source no policy decides; at the destination by rule blue:plain:a"},
		{model.Always, "web1", "plain", "tcp/443", "blue:web:web1 -> blue:db:plain tcp/443 (IPv4) is denied"},
		{model.Never, "internet", "db1", "tcp/22", "0.0.0.0/0 -> blue:db:db1 tcp/22"}, // whether or not a port is published
		{model.Never, "web1", "203.0.113.7", "", "blue:web:web1 -> 203.0.113.7/32 all"},
		{model.Never, "app=nothing", "group:none", "", `group "none" of tenant "blue" does not exist`},
		{model.Never, "app=nothing", "db1", "", "<nil>"},
		{model.Never, "gone", "db1", "", "<nil>"},
		{model.Never, "group:red/x", "db1", "", "must be of tenant blue"},
		{model.Never, "tenant:red", "db1", "", "must be of tenant blue"},
		{model.Never, "r1", "db1", "", "<nil>"}, // another tenant's endpoint is not there
		{model.Never, "web1", "db1", "icmp/8", "must be PROTOCOL, or PROTOCOL/PORT"},
		{model.Never, "internet", "internet", "", "one side has to be endpoints"},
		{model.Never, "", "db1", "", "from"},
	} {
		var ports []string
		if c.port != "" {
			ports = []string{c.port}
		}
		if got := w.assert(c.verdict, c.from, c.to, ports...); !strings.Contains(got, c.says) {
			t.Errorf("%s %s -> %s %s: %q does not say %q", c.verdict, c.from, c.to, c.port, got, c.says)
		}
	}
	if got := w.engineOf().SelectNothing(newAssertion(model.Assertion{Key: model.AssertionKey{Tenant: "blue"}, From: "app=nothing", To: "db1"}).Assertion); !slices.Equal(got, []string{"from app=nothing"}) {
		t.Errorf("selects nothing: %q", got)
	}
}

func TestAssertionOfNameThatIsAmbiguousIsNotChecked(t *testing.T) {
	w := newTown(t)
	for i := range 2 {
		w.endpoint(model.NetworkKey{Tenant: "blue", Name: "db"}, model.EndpointID(fmt.Sprint("twin", i)), "h1", "", fmt.Sprint("10.1.2.", 50+i), "", nil)
		for j, kv := range w.rows {
			if strings.HasSuffix(kv.Key, fmt.Sprint("twin", i)) && strings.Contains(kv.Key, "/endpoints/") {
				w.rows[j].Value = []byte(strings.Replace(string(kv.Value), `"host":"h1"`, `"host":"h1","name":"twin"`, 1))
			}
		}
	}
	if got := w.assert(model.Never, "web1", "twin"); !strings.Contains(got, "it cannot be checked") || !strings.Contains(got, "ambiguous") {
		t.Errorf("got %q", got)
	}
}
