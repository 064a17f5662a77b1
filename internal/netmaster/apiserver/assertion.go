package apiserver

import (
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
		From: o.From, To: o.To, Owner: o.Owner, Reason: o.Reason,
		Overridden: o.Overridden,
	}
	if len(o.Ports) > 0 {
		a.Ports = o.Ports
	}
	return a, analysis.CheckAssertion(a)
}

func assertionToAPI(a model.Assertion) api.Assertion {
	return api.Assertion{
		Key: a.Key.String(), AssertionName: a.Key.Name, TenantName: string(a.Key.Tenant), Verdict: string(a.Verdict),
		From: a.From, To: a.To, Ports: a.Ports, Owner: a.Owner, Reason: a.Reason, Overridden: a.Overridden,
		Links: api.AssertionLinks{Tenant: tenantLink(a.Key.Tenant)},
	}
}
