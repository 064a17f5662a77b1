package analysis

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

func (w *town) plan(ctx context.Context, changes ...PlannedRow) (Effects, error) {
	w.Helper()
	return w.engineOf().Plan(ctx, changes, everything{})
}

func TestPlanSaysWhatChangesOfServices(t *testing.T) {
	w := newTown(t)
	key := model.ServiceKey{Tenant: "blue", Name: "dbsvc"}
	s := model.Service{
		Key: key, Network: model.NetworkKey{Tenant: "blue", Name: "db"}, Addrs: []netip.Addr{netip.MustParseAddr("10.1.2.9"), netip.MustParseAddr("fd00:2::1")},
		Ports: []model.ServicePort{{Protocol: model.ProtoTCP, Port: 3306, Target: 5433}}, Selectors: []model.ServiceSelector{{Key: "app", Value: "db"}}, Affinity: model.NoAffinity,
	}
	got, err := w.plan(t.Context(), w.rows.planned(t, key, s))
	if err != nil || len(got.Flows) > 0 || len(got.Services) != 1 || fmt.Sprint(got.Services[0].Parts) != "[addresses ports]" || got.Services[0].Before != 1 || got.Services[0].After != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	const clients = "[{false [network:blue/db network:blue/web] [10.1.2.1 tcp/3306]} {true [network:blue/db network:blue/web] [10.1.2.9 tcp/3306]}]"
	if len(got.Services) == 1 && fmt.Sprint(got.Services[0].Clients) != clients {
		t.Errorf("clients %v, want %s", got.Services[0].Clients, clients)
	}
}

func TestPlanThatUnjoinsNetworksOpensNothing(t *testing.T) {
	w := newTown(t)
	db := model.NetworkKey{Tenant: "blue", Name: "db"}
	for i, kv := range w.rows {
		for name, with := range map[model.TenantName]model.Tenant{
			"blue": {Name: "blue", Router: 1, Clients: []model.TenantName{"red"}},
			"red":  {Name: "red", Router: 2, Shared: []model.NetworkKey{db}},
		} {
			if row := w.rows.planned(t, name, with); row.Now.Key == kv.Key {
				w.rows[i].Value = row.Then
			}
		}
	}
	k := model.PolicyKey{Tenant: "blue", Name: "shared"}
	w.put(k, model.ContivPolicy{Key: k}.General())
	got, err := w.plan(t.Context(), w.rows.planned(t, model.TenantName("blue"), model.Tenant{Name: "blue", Router: 1}), w.rows.planned(t, model.TenantName("red"), model.Tenant{Name: "red", Router: 2}))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range got.Flows {
		if f.Opens {
			t.Errorf("opens %v to %v: %+v, %+v", f.From, f.To, f.Before, f.After)
		}
	}
}

// expiringContext is a context whose deadline has passed after some looks at it.
type expiringContext struct {
	context.Context
	looks int
}

func (c *expiringContext) Err() error {
	if c.looks--; c.looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

func TestPlanStopsWithItsRequest(t *testing.T) {
	w := newTown(t)
	rule := model.Rule{Key: model.RuleKey{Tenant: "blue", Policy: "plain", Rule: "z"}, Direction: model.In, Priority: 99, Action: model.Deny, Protocol: model.AnyProtocol}
	change := w.rows.planned(t, rule.Key, rule.General())
	for looks := range 5 {
		if got, err := w.plan(&expiringContext{t.Context(), looks}, change); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %d looks: %+v, %v", looks, got, err)
		}
		w.expect([4]string{"web1", "10.1.2.4", "tcp/80", "yes"})
	}
	if got, err := w.plan(t.Context(), change); err != nil || len(got.Flows) == 0 {
		t.Errorf("in time: %+v, %v", got, err)
	}
}
