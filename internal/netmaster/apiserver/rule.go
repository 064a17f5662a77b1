package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(rest[api.Rule, model.RuleKey, model.Rule]{
	collection: "rules", name: "rule", access: ofTenants,
	key: model.ParseRuleKey, list: listIn(ofPolicies, (*control.PolicyView).Rules), get: getIn(ofPolicies, (*control.PolicyView).Rule),
	parse: apiconv.Rule, render: ruleToAPI,
	change: plain(inPolicies, (*control.Policies).ChangeRule), delete: by(inPolicies, (*control.Policies).DeleteRule),
	fields: map[string]field{
		"tenantName":        tenantField(),
		"policyName":        {text: "a policy of the tenant that exists", required: true},
		"ruleId":            {text: nameText, required: true},
		"direction":         {text: "in (towards the group's endpoints) or out (from them)", enum: []string{"in", "out"}, required: true},
		"priority":          {text: "1-100, higher wins; 0 = 1", min: 0, max: 100},
		"action":            {text: "allow or deny", enum: []string{"allow", "deny"}, required: true},
		"protocol":          {text: "tcp, udp, icmp or a number 0-255; empty = any"},
		"port":              {text: "1-65535, only with protocol tcp, udp or 132 (sctp); 0 = any", min: 0, max: 65535},
		"fromEndpointGroup": {text: "a group of the tenant that exists; in rules of direction in only, as the only kind of peer"},
		"fromNetwork":       {text: "a network of the tenant that exists; in rules of direction in only, as the only kind of peer"},
		"fromIpAddress":     {text: "an IPv4 or IPv6 address or CIDR; in rules of direction in only, as the only kind of peer"},
		"toEndpointGroup":   {text: "a group of the tenant that exists; in rules of direction out only, as the only kind of peer"},
		"toNetwork":         {text: "a network of the tenant that exists; in rules of direction out only, as the only kind of peer"},
		"toIpAddress":       {text: "an IPv4 or IPv6 address or CIDR; in rules of direction out only, as the only kind of peer"},
	},
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
