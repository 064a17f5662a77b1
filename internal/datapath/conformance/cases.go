package conformance

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/base/covering"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The dimensions that cases cover pairwise: every value of each with every
// value of each other is in some case.
var dimensions = [][]string{
	dimSubject:   {"db", "lan"}, // group on the VXLAN, on the VLAN network
	dimDirection: {"in", "out"},
	dimAction:    {"allow", "deny"},
	dimProtocol:  {"any", "tcp", "tcp80", "udp", "udp8080", "icmp"},
	dimPeer:      {"any", "group", "network", "addr4", "cidr4", "addr6", "cidr6"},
	dimTie:       {"none", "same", "higher", "lower"},             // a second rule of the opposite action, and its priority
	dimSecond:    {"none", "samedir", "otherdir", "empty", "tie"}, // a second policy on the group
}

const (
	dimSubject = iota
	dimDirection
	dimAction
	dimProtocol
	dimPeer
	dimTie
	dimSecond
)

// Cases returns the generated cases for a topology that has the groups and
// networks of StandardTopology, whatever their addresses.
func Cases(t Topology) []Case {
	var out []Case
	for i, row := range pairwise(dimensions) {
		var v []string
		for d, j := range row {
			v = append(v, dimensions[d][j])
		}
		out = append(out, t.makeCase(i, v))
	}
	return out
}

func (t Topology) makeCase(i int, v []string) Case {
	const tenant model.TenantName = "blue"
	subject := model.GroupKey{Tenant: tenant, Name: model.GroupName(v[dimSubject])}
	c := Case{
		Name:   fmt.Sprintf("%02d-%s", i, strings.Join(v, "-")),
		Attach: map[model.GroupKey][]model.PolicyName{},
	}
	add := func(policy model.PolicyName, r model.Rule) {
		r.Key = model.RuleKey{Tenant: tenant, Policy: policy, Rule: model.RuleID(strconv.Itoa(len(c.Rules) + 1))}
		c.Rules = append(c.Rules, r)
	}
	attach := func(policy model.PolicyName) {
		c.Policies = append(c.Policies, model.ContivPolicy{Key: model.PolicyKey{Tenant: tenant, Name: policy}})
		c.Attach[subject] = append(c.Attach[subject], policy)
	}
	dir, action := model.Direction(v[dimDirection]), model.Action(v[dimAction])
	opposite := map[model.Action]model.Action{model.Allow: model.Deny, model.Deny: model.Allow}[action]
	otherDir := map[model.Direction]model.Direction{model.In: model.Out, model.Out: model.In}[dir]

	attach("p1")
	if action == model.Allow { // without a rule that denies, one that allows has no effect
		add("p1", model.Rule{Direction: dir, Priority: 1, Action: model.Deny, Protocol: model.AnyProtocol})
	}
	main := t.peer(subject, v[dimPeer])
	main.Direction, main.Priority, main.Action = dir, 50, action
	main.Protocol, main.Port = protocol(v[dimProtocol])
	add("p1", main)
	if tie := v[dimTie]; tie != "none" {
		second := model.Rule{Direction: dir, Action: opposite, Protocol: model.ProtoTCP, Port: 80}
		second.Priority = map[string]int{"same": 50, "higher": 60, "lower": 40}[tie]
		switch v[dimProtocol] {
		case "udp", "udp8080":
			second.Protocol, second.Port = model.ProtoUDP, 8080
		case "icmp":
			second.Protocol, second.Port = model.ProtoICMP, 0
		}
		add("p1", second)
	}
	if v[dimSecond] != "none" {
		attach("p2")
	}
	switch v[dimSecond] {
	case "samedir":
		add("p2", model.Rule{Direction: dir, Priority: 70, Action: model.Deny, Protocol: model.ProtoTCP, Port: 8080})
	case "otherdir":
		add("p2", model.Rule{Direction: otherDir, Priority: 50, Action: model.Deny, Protocol: model.AnyProtocol})
	case "tie":
		add("p2", model.Rule{Direction: dir, Priority: 50, Action: opposite, Protocol: model.ProtoUDP})
	}
	return c
}

// peer makes a rule with a kind of peer that some but not all endpoints of the
// subject's network match.
func (t Topology) peer(subject model.GroupKey, kind string) model.Rule {
	i := slices.IndexFunc(t.Groups, func(g model.Group) bool { return g.Key == subject })
	if i < 0 {
		return model.Rule{}
	}
	network := t.Network(t.Groups[i].NetworkKey())
	var others []model.Endpoint
	for _, e := range t.Endpoints {
		if e.Key.Network == network.Key && e.Group != subject.Name {
			others = append(others, e)
		}
	}
	switch kind {
	case "group":
		for _, e := range others {
			if e.Group != "" {
				return model.Rule{Group: e.Group}
			}
		}
		return model.Rule{Group: subject.Name}
	case "network":
		return model.Rule{Network: network.Key.Name}
	case "addr4":
		return model.Rule{Addr: netip.PrefixFrom(others[0].IPv4, 32)}
	case "cidr4":
		return model.Rule{Addr: netip.PrefixFrom(others[0].IPv4, 31).Masked()}
	case "addr6":
		return model.Rule{Addr: netip.PrefixFrom(others[0].IPv6, 128)}
	case "cidr6":
		return model.Rule{Addr: netip.PrefixFrom(others[0].IPv6, 127).Masked()}
	}
	return model.Rule{}
}

func protocol(s string) (model.Protocol, uint16) {
	switch s {
	case "tcp":
		return model.ProtoTCP, 0
	case "tcp80":
		return model.ProtoTCP, 80
	case "udp":
		return model.ProtoUDP, 0
	case "udp8080":
		return model.ProtoUDP, 8080
	case "icmp":
		return model.ProtoICMP, 0
	}
	return model.AnyProtocol, 0
}

// pairwise returns rows of indexes into the dimensions, in which every pair of values of
// two dimensions occurs.
func pairwise(dims [][]string) [][]int {
	sizes := make([]int, len(dims))
	for i, d := range dims {
		sizes[i] = len(d)
	}
	rows, _ := covering.Rows(sizes, covering.Pairs(len(dims)), nil)
	return rows
}
