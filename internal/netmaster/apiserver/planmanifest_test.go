package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// manifests plans manifests with the texts close, which closes group web of tenant blue, and
// nothing; it refuses all others.
type manifests struct{ control *control.Controller }

func (m manifests) Plan(_ context.Context, all []json.RawMessage) (out []control.PlannedObject, err error) {
	var wrong control.ChangeErrors
	for i, text := range all {
		o := control.PlannedObject{Kind: "NetworkPolicy", Key: "shop/p", Warnings: []string{"spec: it is partly known"}}
		switch string(text) {
		case `"close"`:
			k := model.PolicyKey{Tenant: "blue", Name: "kubernetes.shop.p"}
			valid, err := model.Check(model.NetworkPolicy{Policy: model.Policy{
				Key: k, Kind: model.KindNetwork, Owner: model.OwnerKubernetes, Tier: model.TierAdmin, Order: model.OrderContiv,
				Applies: model.Selector{Tenant: "blue", Group: "web"}, Default: model.Defaults{In: model.Deny},
			}})
			if err != nil {
				return nil, err
			}
			ch := m.control.Policies.ReplaceNetworkPolicy(valid)
			o.Changes = []control.Planned{{Put: &ch}}
		case `"nothing"`:
		default:
			wrong = append(wrong, &control.ChangeError{Index: i, Err: model.Errorf(model.ErrInvalid, "Pod shop/x cannot be planned")})
		}
		out = append(out, o)
	}
	if wrong != nil {
		return nil, wrong
	}
	return out, nil
}

func TestPlanOfManifests(t *testing.T) {
	if status, said := serve(t, 0).do("POST", planRoute, `{"changes":[{"manifest":"close"}]}`); status != http.StatusBadRequest || !strings.Contains(said, "follows no Kubernetes") {
		t.Errorf("without Kubernetes: %d %s", status, said)
	}
	f := serveReachableWith(t, func(c *Config) { c.Manifests = manifests{c.Control} })
	got := f.plan(`{"manifest":"nothing"}`, allowHTTPS, `{"manifest":"close"}`)
	var actions []string
	for _, o := range got.Objects {
		actions = append(actions, o.Kind+" "+o.Action+" "+strings.Join(o.Warnings, ""))
	}
	if want := []string{"NetworkPolicy unchanged spec: it is partly known", "rule created ", "NetworkPolicy created spec: it is partly known"}; !slices.Equal(actions, want) {
		t.Errorf("got %q, want %q", actions, want)
	}
	if !slices.ContainsFunc(got.Flows, func(x api.PlannedFlow) bool {
		return x.Effect == api.FlowCloses && slices.Equal(x.To, []string{"blue:n:e1"}) && slices.Equal(x.Ports, []string{"tcp/80"})
	}) {
		t.Errorf("flows %+v", got.Flows)
	}
	if got := f.reach("d1", "e1", "tcp/80"); got.Verdict != "yes" {
		t.Errorf("after a plan: %+v", got)
	}
	// What is refused is said of the change of the request.
	status, said := f.do("POST", planRoute, `{"changes":[`+allowHTTPS+`,{"manifest":"close"},{"manifest":"other"}]}`)
	if status != http.StatusBadRequest || !strings.Contains(said, "objects[2]: Pod shop/x cannot be planned") {
		t.Errorf("%d %s", status, said)
	}
	if status, said := f.do("POST", "/api/v1/apply/plan", `{"changes":[{"manifest":"close"}],"revision":1,"id":"x"}`); status != http.StatusBadRequest || !strings.Contains(said, "'kubectl apply' applies it") {
		t.Errorf("applied: %d %s", status, said)
	}
}
