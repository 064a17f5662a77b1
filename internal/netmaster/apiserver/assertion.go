package apiserver

import (
	"net/http"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(kindSpec[api.Assertion, model.AssertionKey, model.Assertion]{
	collection: "assertions", name: "assertion", access: ofTenants,
	key: model.ParseAssertionKey, list: control.Assertions, get: control.Assertion,
	parse: assertionFromAPI, render: assertionToAPI,
	change: changeByValue(control.ChangeAssertion), delete: byKey(control.DeleteAssertion),
})

func assertionFromAPI(o api.Assertion) (a model.Assertion, err error) {
	a = model.Assertion{
		Key: model.AssertionKey{Tenant: model.TenantName(o.TenantName), Name: o.AssertionName}, Verdict: model.Verdict(o.Verdict),
		From: o.From, To: o.To, ClusterWide: o.ClusterWide, Owner: o.Owner, Reason: o.Reason, Overridden: o.Overridden,
	}
	if len(o.Ports) > 0 {
		a.Ports = o.Ports
	}
	return a, analysis.CheckAssertion(a)
}

func assertionToAPI(a model.Assertion) api.Assertion {
	return api.Assertion{
		Key: a.Key.String(), AssertionName: a.Key.Name, TenantName: string(a.Key.Tenant), Verdict: string(a.Verdict),
		From: a.From, To: a.To, Ports: a.Ports, ClusterWide: a.ClusterWide, Owner: a.Owner, Reason: a.Reason, Overridden: a.Overridden,
		Links: api.AssertionLinks{Tenant: tenantLink(a.Key.Tenant)},
	}
}

// assertions answers GET /api/v1/analysis/assertions.
func (s *analysisHandlers) assertions(_ http.ResponseWriter, r *request) (any, error) {
	all, err := s.control.AssertionVerdicts(r.Context(), r.actor)
	out := make([]api.AssertionVerdict, len(all))
	for i, v := range all {
		out[i] = api.AssertionVerdict{Assertion: assertionToAPI(v.Assertion), State: string(v.State), Why: v.Why, SelectNothing: s.control.Analysis.SelectNothing(v.Assertion)}
	}
	return out, err
}

// assertionWarnings says of an assertion which of its sides select nothing, and may be misspelt.
func assertionWarnings(c *control.Controller, a model.Assertion) (out []string) {
	for _, side := range c.Analysis.SelectNothing(a) {
		out = append(out, side+" selects no endpoint now, so that the assertion holds: check the spelling, unless such endpoints are still to come")
	}
	return out
}
