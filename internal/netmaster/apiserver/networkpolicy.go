package apiserver

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

const (
	modeEnforce = "enforce"
	modeAudit   = "audit"
)

var _ = register(kindSpec[api.NetworkPolicy, model.PolicyKey, model.NetworkPolicy]{
	collection: "networkPolicys", name: "networkPolicy", access: ofTenants, strict: strictPolicy, body: MaxApplyBody,
	key: model.ParsePolicyKey, list: listIn(viewPolicies, (*control.PolicyView).NetworkPolicies), get: getIn(viewPolicies, (*control.PolicyView).NetworkPolicy),
	missing: func(v *control.View, k model.PolicyKey) error {
		if _, there := v.Policies.GetContiv(k); there {
			return model.Errorf(model.ErrNotFound, "policy %q is no network policy: look at it as a group policy ('netctl policy inspect')", k)
		}
		return nil
	},
	parse: networkPolicyFromAPI, render: networkPolicyToAPI,
	change: changeAsIs(policyUseCases, (*control.Policies).ReplaceNetworkPolicy),
	delete: func(_ *control.Controller, k model.PolicyKey) control.Deletion {
		return control.DeleteNetworkPolicy(k, model.OwnerUser)
	},
	oper: api.PolicyOper{}, inspect: func(_ *serverContext, v *control.View, n model.NetworkPolicy) any { return networkPolicyOper(v, n) },
})

func networkPolicyFromAPI(o api.NetworkPolicy) (n model.NetworkPolicy, err error) {
	p := &n.Policy
	if p.Key.Tenant, err = model.ParseTenantName(o.TenantName); err != nil {
		return n, err
	}
	if p.Key.Name, err = model.ParsePolicyName(o.NetworkPolicyName); err != nil {
		return n, apiconv.Renamed(err, "networkPolicyName")
	}
	p.Kind, p.Owner, p.Tier, p.Order = model.KindNetwork, model.OwnerUser, model.TierContiv, model.OrderContiv
	if o.Tier != "" {
		if p.Tier, err = model.ParseTier(o.Tier); err != nil {
			return n, model.InvalidField("tier", o.Tier, "must be one of admin, contiv, baseline")
		}
	}
	if o.Order != 0 {
		p.Order = o.Order
	}
	if o.Mode != "" && o.Mode != modeEnforce && o.Mode != modeAudit {
		return n, model.InvalidField("mode", o.Mode, "must be one of enforce, audit")
	}
	p.Audit = o.Mode == modeAudit
	if o.Owner != "" && o.Owner != string(model.OwnerUser) {
		return n, model.InvalidField("owner", o.Owner, "must be empty or user: other owners cannot be set")
	}
	p.Applies = model.Selector{Tenant: p.Key.Tenant}
	if o.Applies != nil {
		p.Applies = selectorFromAPI(p.Key.Tenant, *o.Applies)
	}
	p.Default = model.Defaults{In: model.Action(o.DefaultIn), Out: model.Action(o.DefaultOut)}
	for i, x := range o.Rules {
		r, err := networkRuleFromAPI(p.Key, x)
		if err != nil {
			return n, model.InField(fmt.Sprintf("rules[%d]", i), err)
		}
		n.Rules = append(n.Rules, r)
	}
	return n, nil
}

func selectorFromAPI(t model.TenantName, o api.Selector) model.Selector {
	s := model.Selector{Tenant: t, Network: model.NetworkName(o.Network), Group: model.GroupName(o.Group)}
	if len(o.MatchLabels) > 0 {
		s.MatchLabels = o.MatchLabels
	}
	for _, e := range o.MatchExpressions {
		s.MatchExpressions = append(s.MatchExpressions, model.Requirement{Key: e.Key, Operator: model.Operator(e.Operator), Values: e.Values})
	}
	return s
}

func networkRuleFromAPI(k model.PolicyKey, o api.NetworkPolicyRule) (r model.PolicyRule, err error) {
	r = model.PolicyRule{
		Key: model.RuleKey{Tenant: k.Tenant, Policy: k.Name}, Direction: model.Direction(o.Direction),
		Priority: o.Priority, Action: model.Action(o.Action), Log: o.Log,
	}
	if r.Priority == 0 {
		r.Priority = 50
	}
	if r.Key.Rule, err = model.ParseRuleID(o.RuleID); err != nil {
		return r, err
	}
	for i, p := range o.Peers {
		field := fmt.Sprintf("peers[%d]", i)
		peer := model.Peer{Text: p.CIDR}
		if p.Selector != nil {
			s := selectorFromAPI(k.Tenant, *p.Selector)
			peer.Selector = &s
		}
		if p.CIDR != "" {
			if peer.CIDR, err = model.ParsePeerCIDR(field+".cidr", p.CIDR); err != nil {
				return r, err
			}
		}
		for j, x := range p.Except {
			except, err := model.ParsePeerCIDR(fmt.Sprintf("%s.except[%d]", field, j), x)
			if err != nil {
				return r, err
			}
			peer.Except = append(peer.Except, except)
		}
		if p.Network != "" {
			peer.Network = model.NetworkKey{Tenant: k.Tenant, Name: model.NetworkName(p.Network)}
		}
		r.Peers = append(r.Peers, peer)
	}
	for i, p := range o.Ports {
		list, err := portsFromAPI(p)
		if err != nil {
			return r, model.InField(fmt.Sprintf("ports[%d]", i), err)
		}
		r.Ports = append(r.Ports, list...)
	}
	return r, nil
}

// portsFromAPI parses a protocol with its ports: "80,443,8000-8080".
func portsFromAPI(o api.NetworkPolicyPort) (out []model.PortMatch, err error) {
	if o.Protocol == "" {
		return nil, model.InvalidField("protocol", o.Protocol, "must not be empty; a rule without ports is of any protocol")
	}
	proto, err := model.ParseProtocol(o.Protocol)
	if err != nil {
		return nil, err
	}
	if o.Ports == "" {
		return []model.PortMatch{{Protocol: proto, Hi: 65535}}, nil
	}
	if !proto.HasPorts() {
		return nil, model.InvalidField("ports", o.Ports, "must be empty unless protocol is tcp, udp or 132 (sctp)")
	}
	for part := range strings.SplitSeq(o.Ports, ",") {
		first, last, isRange := strings.Cut(part, "-")
		lo, ok := model.PortNumber(first)
		hi := lo
		if ok && isRange {
			hi, ok = model.PortNumber(last)
		}
		if !ok || lo > hi {
			return nil, model.InvalidField("ports", o.Ports, "must be ports from 1 to 65535 and ranges of them, such as 80,443,8000-8080")
		}
		out = append(out, model.PortMatch{Protocol: proto, Lo: lo, Hi: hi})
	}
	return out, nil
}

func networkPolicyToAPI(n model.NetworkPolicy) api.NetworkPolicy {
	p := n.Policy
	o := api.NetworkPolicy{
		Key: p.Key.String(), NetworkPolicyName: string(p.Key.Name), TenantName: string(p.Key.Tenant),
		Tier: p.Tier.String(), Order: p.Order, Mode: modeEnforce, Owner: string(p.Owner),
		DefaultIn: string(p.Default.In), DefaultOut: string(p.Default.Out),
		Links: api.NetworkPolicyLinks{Tenant: tenantLink(p.Key.Tenant)},
	}
	if p.Audit {
		o.Mode = modeAudit
	}
	if !p.Applies.Equal(model.Selector{Tenant: p.Key.Tenant}) {
		o.Applies = selectorToAPI(p.Applies)
	}
	for _, r := range n.Rules {
		o.Rules = append(o.Rules, networkRuleToAPI(r))
	}
	return o
}

func networkRuleToAPI(r model.PolicyRule) api.NetworkPolicyRule {
	o := api.NetworkPolicyRule{
		RuleID: string(r.Key.Rule), Direction: string(r.Direction), Priority: r.Priority, Action: string(r.Action), Log: r.Log,
		Ports: portsToAPI(r.Ports),
	}
	for _, p := range r.Peers {
		o.Peers = append(o.Peers, peerToAPI(p))
	}
	return o
}

func selectorToAPI(s model.Selector) *api.Selector {
	o := &api.Selector{Network: string(s.Network), Group: string(s.Group), MatchLabels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		o.MatchExpressions = append(o.MatchExpressions, api.LabelRequirement{Key: e.Key, Operator: string(e.Operator), Values: e.Values})
	}
	return o
}

func peerToAPI(p model.Peer) (o api.NetworkPolicyPeer) {
	switch {
	case p.Selector != nil:
		o.Selector = selectorToAPI(*p.Selector)
	case p.CIDR.IsValid():
		if o.CIDR = p.Text; o.CIDR == "" {
			o.CIDR = p.CIDR.String()
		}
		for _, x := range p.Except {
			o.Except = append(o.Except, prefixText(x))
		}
	default:
		o.Network = string(p.Network.Name)
	}
	return o
}

// prefixText is a prefix as users write it: a single address without a length.
func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// portsToAPI joins what follows each other with one protocol.
func portsToAPI(list []model.PortMatch) (out []api.NetworkPolicyPort) {
	for _, m := range list {
		text := ""
		switch {
		case m.Lo == 0 && m.Hi == 65535:
		case m.Lo == m.Hi:
			text = strconv.Itoa(int(m.Lo))
		default:
			text = fmt.Sprintf("%d-%d", m.Lo, m.Hi)
		}
		if n := len(out); n > 0 && text != "" && out[n-1].Protocol == m.Protocol.String() && out[n-1].Ports != "" {
			out[n-1].Ports += "," + text
			continue
		}
		out = append(out, api.NetworkPolicyPort{Protocol: m.Protocol.String(), Ports: text})
	}
	return out
}

// networkPolicyOper lists the endpoints that a policy applies to.
func networkPolicyOper(v *control.View, n model.NetworkPolicy) api.PolicyOper {
	es := v.Endpoints.EndpointsSelected(n.Policy.Applies)
	return api.PolicyOper{Endpoints: endpointOpers(v, es), NumEndpoints: len(es)}
}
