package analysis

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// rowsAlone is a Source that never changes by itself.
type rowsAlone []store.KV

func (r rowsAlone) Rows() ([]store.KV, store.Revision, string)    { return r, 1, "" }
func (r rowsAlone) Fresh(context.Context) (store.Revision, error) { return 1, nil }

// everything is the scope of a cluster administrator.
type everything struct{}

func (everything) Has(model.TenantName) bool { return true }

// bigCluster has 1,000 policies with 10 rules each, 10,000 identities and 50,000 endpoints on
// 200 networks.
func bigCluster(tb testing.TB) rowsAlone {
	tb.Helper()
	var out rowsAlone
	put := func(key, value any) {
		kv, err := tables.Encode(key, value)
		if err != nil {
			tb.Fatal(err)
		}
		kv.Create, kv.Mod = 1, 1
		out = append(out, kv)
	}
	const tenant = "blue"
	put(tables.GlobalKey{}, model.Global{FwdMode: model.FwdRouting})
	put(model.TenantName(tenant), model.Tenant{Name: tenant, Router: 1})
	group := func(i int) model.GroupName { return model.GroupName(fmt.Sprint("g", i%1000)) }
	network := func(i int) model.NetworkKey {
		return model.NetworkKey{Tenant: tenant, Name: model.NetworkName(fmt.Sprint("n", i%200))}
	}
	for i := range 200 {
		k := network(i)
		put(k, model.Network{Key: k, ID: model.NetworkID(i + 1), Tag: uint32(i + 1), Encap: model.EncapVXLAN, Subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16)})
	}
	for i := range 1000 {
		p := model.PolicyKey{Tenant: tenant, Name: model.PolicyName(fmt.Sprint("p", i))}
		put(p, model.ContivPolicy{Key: p}.General())
		g := model.GroupKey{Tenant: tenant, Name: group(i)}
		put(g, model.Group{Key: g, Network: network(i).Name, Policies: []model.PolicyName{p.Name}})
		for r := range 10 {
			rule := model.Rule{
				Key: model.RuleKey{Tenant: tenant, Policy: p.Name, Rule: model.RuleID(strconv.Itoa(r))}, Direction: model.In, Priority: 10 - r,
				Action: model.Allow, Protocol: model.ProtoTCP, Port: uint16(80 + r), Group: group(i + r),
			}
			switch r {
			case 8:
				rule.Group, rule.Addr = "", netip.MustParsePrefix("10.7.0.0/16")
			case 9:
				rule.Group, rule.Action, rule.Protocol, rule.Port = "", model.Deny, model.AnyProtocol, 0
			}
			put(rule.Key, rule.General())
		}
	}
	for i := range 10000 {
		id := model.IdentityFirst + model.Identity(i)
		put(tables.IdentityKey{Tenant: tenant, ID: id}, model.IdentityRecord{ID: id, Network: network(i), Group: group(i), Labels: map[string]string{"app": strconv.Itoa(i)}})
	}
	for i := range 50000 {
		n := network(i)
		k := model.EndpointKey{Network: n, ID: model.EndpointID(fmt.Sprint("e", i))}
		a := netip.AddrFrom4([4]byte{10, byte(i % 200), byte(i / 200 / 250), byte(1 + i/200%250)})
		put(k, model.Endpoint{Key: k, Host: "h1", Group: group(i), Identity: model.IdentityFirst + model.Identity(i%10000), IPv4: a, MAC: model.EndpointMAC(n, a, netip.Addr{})})
	}
	return out
}

func question(tb testing.TB, from, to, port string) (q Question) {
	tb.Helper()
	var err error
	if q.From, err = ParseSubject("from", from, "blue"); err != nil {
		tb.Fatal(err)
	}
	if q.To, err = ParseSubject("to", to, "blue"); err != nil {
		tb.Fatal(err)
	}
	if q.Ports, err = ParsePort("port", port); err != nil {
		tb.Fatal(err)
	}
	return q
}

// BenchmarkReach asks in a large cluster. MB is what the Engine keeps between questions.
func BenchmarkReach(b *testing.B) {
	rows := bigCluster(b)
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	ask := func(b *testing.B, e *Engine, q Question) Reachable {
		b.Helper()
		out, err := e.Reach(b.Context(), q, everything{})
		if err != nil {
			b.Fatal(err)
		}
		return out
	}
	pair := question(b, "e1001", "e1", "tcp/443")
	b.Run("first", func(b *testing.B) {
		before := heap()
		var e *Engine
		for b.Loop() {
			e = New(rows, slog.New(slog.DiscardHandler))
			ask(b, e, pair)
		}
		b.ReportMetric(heap()-before, "MB")
	})
	e := New(rows, slog.New(slog.DiscardHandler))
	ask(b, e, pair)
	for name, q := range map[string]Question{
		"pair": pair, "to": question(b, "any", "e1", ""), "from": question(b, "e1", "any", ""), "group-to-group": question(b, "group:g1", "group:g2", ""),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if len(ask(b, e, q).Rows) == 0 {
					b.Fatal("no answer")
				}
			}
		})
	}
	b.Run("pair-after-change", func(b *testing.B) {
		k := model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "0"}
		for i := 0; b.Loop(); i++ {
			rule := model.Rule{Key: k, Direction: model.In, Priority: 10, Action: model.Allow, Protocol: model.ProtoTCP, Port: uint16(1000 + i%1000)}
			kv, err := tables.Encode(k, rule.General())
			if err != nil {
				b.Fatal(err)
			}
			kv.Create, kv.Mod = 1, store.Revision(2+i)
			e.Apply(store.Batch{Revision: kv.Mod, Events: []store.Event{{KV: kv}}})
			ask(b, e, pair)
		}
	})
}
