package control

import (
	"github.com/contiv/netplugin/v2/internal/model"
)

// countFlows counts the flows of a rule of p that has come, or gone.
func (s *sizes) countFlows(p model.PolicyKey, r model.PolicyRule, by int) {
	if s.flows[p] == nil {
		s.flows[p] = &model.FlowMeter{}
	}
	s.flows[p].Add(r, by)
	if _, there := s.rules[p]; !there {
		delete(s.flows, p)
	}
}

// checkFlows is checkUnion for hosts whose rules are flows, if there are any. The rules
// at some indexes join, and others leave. identities bounds how many a selector
// selects.
func (pv *PolicyView) checkFlows(policies []model.PolicyKey, rules []model.PolicyRule, at []int, leaving []model.PolicyRule, identities int) (n int, err error) {
	var joining model.FlowMeter
	for _, i := range at {
		joining.Add(rules[i], 1)
	}
	for _, r := range leaving {
		joining.Add(r, -1)
	}
	meters := pv.policySizes.flows
	most := 0
	for _, p := range policies {
		if m := meters[p]; m != nil {
			most += m.AtMost(identities)
		}
	}
	if most+joining.AtMost(identities) <= model.MaxPolicyFlows || !pv.hosts.hasDriver(model.DriverOVS) {
		return 0, nil
	}
	all := joining.Flows(pv.countSelected)
	for _, p := range policies {
		if m := meters[p]; m != nil {
			all += m.Flows(pv.countSelected)
		}
	}
	if all <= model.MaxPolicyFlows {
		return 0, nil
	}
	err = model.Errorf(model.ErrExhausted, "its rules would take up to %d flows of a host with Open vSwitch, where each of a rule's peers counts each of its ports, for IPv4 and IPv6; at most %d are allowed: name fewer peers, by group or wider address range, or fewer ports, by protocol (docs/reference/restrictions.md)", all, model.MaxPolicyFlows)
	for left := all - model.MaxPolicyFlows; len(at) > 0; at = at[:len(at)-1] { // those before the one to blame fit
		var one model.FlowMeter
		one.Add(rules[at[len(at)-1]], 1)
		if left -= one.Flows(pv.countSelected); left <= 0 {
			return at[len(at)-1], err
		}
	}
	return -1, err
}

func (hv *HostView) hasDriver(name string) bool {
	for _, h := range hv.hostRows.all {
		if h.Driver == name {
			return true
		}
	}
	return false
}
