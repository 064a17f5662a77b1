package model

import (
	"maps"
	"net/netip"
	"slices"
)

// Tier orders policies of different worlds; lower tiers decide first.
type Tier uint8

const (
	// TierContiv holds Contiv policies: no match passes to the next tier.
	TierContiv Tier = 10
	// TierKubernetes holds Kubernetes NetworkPolicies: being selected means default deny.
	TierKubernetes Tier = 20
)

// Selector selects endpoints of one tenant by what their identity stands for.
// Empty fields select everything; MatchLabels are all required.
type Selector struct {
	Tenant      TenantName        `json:"tenant"`
	Network     NetworkName       `json:"network,omitempty"`
	Group       GroupName         `json:"group,omitempty"`
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// Selects tells whether an identity belongs to the selection.
func (s Selector) Selects(r IdentityRecord) bool {
	if s.Tenant != r.Network.Tenant || s.Network != "" && s.Network != r.Network.Name ||
		s.Group != "" && s.Group != r.Group {
		return false
	}
	for k, v := range s.MatchLabels {
		if got, ok := r.Labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Equal compares two selectors.
func (s Selector) Equal(o Selector) bool {
	return s.Tenant == o.Tenant && s.Network == o.Network && s.Group == o.Group &&
		maps.Equal(s.MatchLabels, o.MatchLabels)
}

// Policy is the general policy that all data planes enforce: within its tier
// and direction the rule of the highest priority that matches decides; on a
// tie Deny wins over Pass over Allow. When none matches, Default decides.
type Policy struct {
	Name    string // unique within the cluster, such as "contiv/blue:p1"
	Tier    Tier
	Applies Selector
	Rules   []PolicyRule
	Default map[Direction]Action // absent direction = Pass (policy says nothing about it)
}

// PolicyRule is one rule of a Policy.
type PolicyRule struct {
	ID        string // unique within the cluster; shown by counters and monitors
	Direction Direction
	Priority  int
	Action    Action
	Peers     []Peer      // empty = any peer
	Ports     []PortMatch // empty = any protocol
}

// Peer names the other side of a connection by selector, by addresses with
// exceptions, or by network; exactly one is set.
type Peer struct {
	Selector *Selector
	CIDR     netip.Prefix
	Except   []netip.Prefix // inside CIDR
	Network  NetworkKey     // endpoints of the network; on a VLAN network also outside addresses of its subnets
}

// PortMatch matches a protocol and, if it has ports, an inclusive range of
// destination ports; Lo = 0 and Hi = 65535 match all.
type PortMatch struct {
	Protocol Protocol
	Lo, Hi   uint16
}

// Matches tells whether a packet's protocol and destination port match. ICMP
// matches ICMPv6 too.
func (m PortMatch) Matches(p Protocol, port uint16) bool {
	if m.Protocol == AnyProtocol {
		return true
	}
	if m.Protocol == ProtoICMP && p == ProtoICMPv6 {
		return true
	}
	return m.Protocol == p && (!p.HasPorts() || m.Lo <= port && port <= m.Hi)
}

// Compile expresses Contiv policies of one group in the general model: one
// Policy per attached name whose selector is the group.
func ContivToPolicy(key PolicyKey, group GroupKey, rules []Rule) Policy {
	p := Policy{
		Name:    "contiv/" + key.String() + "/" + string(group.Name),
		Tier:    TierContiv,
		Applies: Selector{Tenant: group.Tenant, Group: group.Name},
	}
	for _, r := range rules {
		pr := PolicyRule{ID: r.Key.String(), Direction: r.Direction, Priority: r.Priority, Action: r.Action}
		switch {
		case r.Group != "":
			pr.Peers = []Peer{{Selector: &Selector{Tenant: r.Key.Tenant, Group: r.Group}}}
		case r.Network != "":
			pr.Peers = []Peer{{Network: NetworkKey{r.Key.Tenant, r.Network}}}
		case r.Addr.IsValid():
			pr.Peers = []Peer{{CIDR: r.Addr}}
		}
		if r.Protocol != AnyProtocol {
			m := PortMatch{Protocol: r.Protocol, Hi: 65535}
			if r.Port != 0 {
				m.Lo, m.Hi = r.Port, r.Port
			}
			pr.Ports = []PortMatch{m}
		}
		p.Rules = append(p.Rules, pr)
	}
	slices.SortFunc(p.Rules, ComparePolicyRules)
	return p
}

// ComparePolicyRules orders rules as they decide: higher priority first, then
// Deny before Pass before Allow, then by ID.
func ComparePolicyRules(a, b PolicyRule) int {
	if a.Priority != b.Priority {
		return b.Priority - a.Priority
	}
	if d := actionRank(a.Action) - actionRank(b.Action); d != 0 {
		return d
	}
	switch {
	case a.ID < b.ID:
		return -1
	case a.ID > b.ID:
		return 1
	}
	return 0
}

func actionRank(a Action) int {
	switch a {
	case Deny:
		return 0
	case Pass:
		return 1
	case Allow:
		return 2
	}
	return 0
}
