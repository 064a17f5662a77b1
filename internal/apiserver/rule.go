package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

var _ = register(rest[api.Rule, model.RuleKey, model.Rule]{
	collection: "rules", name: "rule",
	key: model.ParseRuleKey, list: func(v *control.View) []model.Rule { return v.Rules("") }, get: (*control.View).Rule,
	parse: ruleFromAPI, render: ruleToAPI,
	change: plain((*control.Controller).ChangeRule), delete: (*control.Controller).DeleteRule,
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

func ruleFromAPI(o api.Rule) (r model.Rule, err error) {
	if r.Key.Tenant, err = model.ParseTenantName(o.TenantName); err != nil {
		return r, err
	}
	if r.Key.Policy, err = model.ParsePolicyName(o.PolicyName); err != nil {
		return r, err
	}
	if r.Key.Rule, err = model.ParseRuleID(o.RuleID); err != nil {
		return r, err
	}
	if r.Direction, err = model.ParseDirection(o.Direction); err != nil {
		return r, err
	}
	if r.Priority, err = model.ParsePriority(o.Priority); err != nil {
		return r, err
	}
	if r.Action, err = model.ParseAction(o.Action); err != nil {
		return r, err
	}
	if r.Protocol, err = model.ParseProtocol(o.Protocol); err != nil {
		return r, err
	}
	if r.Port, err = model.ParsePort(o.Port); err != nil {
		return r, err
	}
	group, network, addr, side := o.FromEndpointGroup, o.FromNetwork, o.FromIPAddress, "from"
	otherSide := []struct{ field, value string }{{"toEndpointGroup", o.ToEndpointGroup}, {"toNetwork", o.ToNetwork}, {"toIpAddress", o.ToIPAddress}}
	if r.Direction == model.Out {
		otherSide = []struct{ field, value string }{{"fromEndpointGroup", group}, {"fromNetwork", network}, {"fromIpAddress", addr}}
		group, network, addr, side = o.ToEndpointGroup, o.ToNetwork, o.ToIPAddress, "to"
	}
	for _, f := range otherSide {
		if f.value != "" {
			return r, model.InvalidField(f.field, f.value, "must be empty in a rule of direction "+string(r.Direction))
		}
	}
	if r.Group, err = optional(group, model.ParseGroupName); err != nil {
		return r, renamed(err, side+"EndpointGroup")
	}
	if r.Network, err = optional(network, model.ParseNetworkName); err != nil {
		return r, renamed(err, side+"Network")
	}
	if addr != "" {
		r.RawAddr = addr
		if r.Addr, err = model.ParsePeerAddr(side+"IpAddress", addr); err != nil {
			return r, err
		}
	}
	return r, nil
}

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
