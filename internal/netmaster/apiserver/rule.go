package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(kindSpec[api.Rule, model.RuleKey, model.Rule]{
	collection: "rules", name: "rule", access: ofTenants,
	key: model.ParseRuleKey, list: listIn(viewPolicies, (*control.PolicyView).Rules), get: getIn(viewPolicies, (*control.PolicyView).Rule),
	parse: apiconv.Rule, render: ruleToAPI,
	change: changeAsIs(policyUseCases, (*control.Policies).ChangeRule), delete: deleteFor(policyUseCases, (*control.Policies).DeleteRule),
})

func ruleToAPI(r model.Rule) api.Rule {
	o := api.Rule{
		Key:        r.Key.String(),
		Action:     string(r.Action),
		Direction:  string(r.Direction),
		PolicyName: string(r.Key.Policy),
		Port:       int(r.Port),
		Priority:   r.Priority,
		Protocol:   r.Protocol.String(),
		RuleID:     string(r.Key.Rule),
		TenantName: string(r.Key.Tenant),
	}
	addr := r.RawAddr
	if addr == "" && r.Addr.IsValid() {
		addr = r.Addr.String()
	}
	if r.Direction == model.Out {
		o.ToEndpointGroup, o.ToNetwork, o.ToIPAddress = string(r.Group), string(r.Network), addr
	} else {
		o.FromEndpointGroup, o.FromNetwork, o.FromIPAddress = string(r.Group), string(r.Network), addr
	}
	addLink(&o.LinkSets.Policies, "policy", r.Key.PolicyKey().String())
	if r.Group != "" {
		o.Links.MatchEndpointGroup = api.Link{Type: "endpointGroup", Key: model.GroupKey{Tenant: r.Key.Tenant, Name: r.Group}.String()}
	}
	return o
}
