package apiconv

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Rule parses a rule.
func Rule(o api.Rule) (r model.Rule, err error) {
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
	if r.Group, err = Optional(group, model.ParseGroupName); err != nil {
		return r, Renamed(err, side+"EndpointGroup")
	}
	if r.Network, err = Optional(network, model.ParseNetworkName); err != nil {
		return r, Renamed(err, side+"Network")
	}
	if addr != "" {
		r.RawAddr = addr
		if r.Addr, err = model.ParsePeerAddr(side+"IpAddress", addr); err != nil {
			return r, err
		}
	}
	return r, nil
}
