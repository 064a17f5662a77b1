package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(kindSpec[api.Policy, model.PolicyKey, model.ContivPolicy]{
	collection: "policys", name: "policy", access: ofTenants,
	key: model.ParsePolicyKey, list: listIn(viewPolicies, (*control.PolicyView).ListContiv), get: getIn(viewPolicies, (*control.PolicyView).GetContiv),
	missing: func(v *control.View, k model.PolicyKey) error {
		if _, there := v.Policies.NetworkPolicy(k); there {
			return model.Errorf(model.ErrNotFound, "policy %q is a network policy: look at it as one ('netctl network-policy inspect')", k)
		}
		return nil
	},
	parse: apiconv.Policy, render: policyToAPI, linked: policyView,
	change: changeAsIs(policyUseCases, (*control.Policies).ChangePolicy), delete: byKey(control.DeletePolicy),
	oper: api.PolicyOper{}, inspect: func(_ *serverContext, v *control.View, p model.ContivPolicy) any { return policyOper(v, p) },
})

func policyToAPI(p model.ContivPolicy) api.Policy {
	return api.Policy{
		Key:        p.Key.String(),
		Owner:      apiconv.Owner(p.Object),
		PolicyName: string(p.Key.Name),
		TenantName: string(p.Key.Tenant),
		Links:      api.PolicyLinks{Tenant: tenantLink(p.Key.Tenant)},
	}
}

func policyView(v *control.View, p model.ContivPolicy) api.Policy {
	o := policyToAPI(p)
	for _, g := range v.Groups.OfPolicy(p.Key) {
		addLink(&o.LinkSets.EndpointGroups, "endpointGroup", g.Key.String())
	}
	for _, r := range v.Policies.RulesOfPolicy(p.Key) {
		addLink(&o.LinkSets.Rules, "rule", r.Key.String())
	}
	return o
}

func policyOper(v *control.View, p model.ContivPolicy) api.PolicyOper {
	var o api.PolicyOper
	for _, g := range v.Groups.OfPolicy(p.Key) {
		o.Endpoints = append(o.Endpoints, endpointOpers(v, v.Endpoints.OfGroup(g.Key))...)
	}
	o.NumEndpoints = len(o.Endpoints)
	return o
}
