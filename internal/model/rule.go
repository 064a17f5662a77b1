package model

import (
	"fmt"
	"net/netip"
	"strings"
)

var _ = register(Kind{
	Collection: "rules", Name: "rule", Order: 60,
})

// RuleID names a rule within its policy.
type RuleID string

// RuleKey names a rule within the cluster.
type RuleKey struct {
	Tenant TenantName `json:"tenant"`
	Policy PolicyName `json:"policy"`
	Rule   RuleID     `json:"rule"`
}

func (k RuleKey) String() string {
	return string(k.Tenant) + ":" + string(k.Policy) + ":" + string(k.Rule)
}

// Policy returns the key of the rule's policy.
func (k RuleKey) PolicyKey() PolicyKey { return PolicyKey{k.Tenant, k.Policy} }

// ParseRuleKey parses "tenant:policy:rule". The error is of kind ErrInvalid.
func ParseRuleKey(s string) (RuleKey, error) {
	p := strings.Split(s, ":")
	if len(p) != 3 {
		return RuleKey{}, InvalidField("key", s, "must be tenant:policy:rule")
	}
	for i, field := range []string{"tenantName", "policyName", "ruleId"} {
		if err := parseName(field, p[i], MaxName); err != nil {
			return RuleKey{}, err
		}
	}
	return RuleKey{TenantName(p[0]), PolicyName(p[1]), RuleID(p[2])}, nil
}

// ParseRuleID checks a rule's id. The error is of kind ErrInvalid.
func ParseRuleID(s string) (RuleID, error) { return RuleID(s), parseName("ruleId", s, MaxName) }

// Rule is one rule of a ContivPolicy. At most one of Group, Network and Addr
// is set; none of them means any peer.
type Rule struct {
	Key       RuleKey      `json:"key"`
	Direction Direction    `json:"direction"`
	Priority  int          `json:"priority"` // 1-100, higher wins
	Action    Action       `json:"action"`   // Allow or Deny
	Protocol  Protocol     `json:"protocol"`
	Port      uint16       `json:"port,omitempty"` // 0 = any; only with tcp, udp, sctp
	Group     GroupName    `json:"group,omitempty"`
	Network   NetworkName  `json:"network,omitempty"`
	Addr      netip.Prefix `json:"addr,omitzero"`     // IPv4 or IPv6
	RawAddr   string       `json:"rawAddr,omitempty"` // as the user wrote it
}

// General returns the rule as it is stored and compiled.
func (r Rule) General() PolicyRule {
	out := PolicyRule{Key: r.Key, Direction: r.Direction, Priority: r.Priority, Action: r.Action}
	switch {
	case r.Group != "":
		out.Peers = []Peer{{Selector: &Selector{Tenant: r.Key.Tenant, Group: r.Group}}}
	case r.Network != "":
		out.Peers = []Peer{{Network: NetworkKey{r.Key.Tenant, r.Network}}}
	case r.Addr.IsValid():
		out.Peers = []Peer{{CIDR: r.Addr, Text: r.RawAddr}}
	}
	if r.Protocol != AnyProtocol {
		m := PortMatch{Protocol: r.Protocol, Hi: 65535}
		if r.Port != 0 {
			m.Lo, m.Hi = r.Port, r.Port
		}
		out.Ports = []PortMatch{m}
	}
	return out
}

// Contiv returns a rule of a ContivPolicy in 1.x's words; false when they cannot
// say it.
func (r PolicyRule) Contiv() (Rule, bool) {
	out := Rule{Key: r.Key, Direction: r.Direction, Priority: r.Priority, Action: r.Action, Protocol: AnyProtocol}
	if len(r.Peers) > 1 || len(r.Ports) > 1 || r.Log || r.Action == Pass {
		return out, false
	}
	for _, p := range r.Peers {
		switch {
		case p.Selector != nil:
			out.Group = p.Selector.Group
			if !p.Selector.Equal(Selector{Tenant: r.Key.Tenant, Group: out.Group}) || out.Group == "" {
				return out, false
			}
		case p.CIDR.IsValid():
			out.Addr, out.RawAddr = p.CIDR, p.Text
			if len(p.Except) > 0 {
				return out, false
			}
		default:
			out.Network = p.Network.Name
			if p.Network.Tenant != r.Key.Tenant || out.Network == "" {
				return out, false
			}
		}
	}
	for _, m := range r.Ports {
		if out.Protocol = m.Protocol; m.Lo == 0 && m.Hi == 65535 {
			continue
		}
		if out.Port = m.Lo; m.Lo != m.Hi || m.Lo == 0 || !m.Protocol.HasPorts() {
			return out, false
		}
	}
	return out, true
}

// ParsePriority checks a rule's priority: 1-100, and 0 (absent) means 1.
func ParsePriority(n int) (int, error) {
	if n == 0 {
		return 1, nil
	}
	if n < 1 || n > 100 {
		return 0, InvalidField("priority", n, "must be between 1 and 100")
	}
	return n, nil
}

// ParsePort checks a rule's port: 0 (any) to 65535.
func ParsePort(n int) (uint16, error) {
	if n < 0 || n > 65535 {
		return 0, InvalidField("port", n, "must be between 0 (any) and 65535")
	}
	return uint16(n), nil
}

// Validate checks all fields. The error is of kind ErrInvalid.
func (r Rule) Validate() error {
	if _, err := ParseRuleKey(r.Key.String()); err != nil {
		return err
	}
	if _, err := ParseDirection(string(r.Direction)); err != nil {
		return err
	}
	if _, err := ParseAction(string(r.Action)); err != nil {
		return err
	}
	if r.Priority < 1 || r.Priority > 100 {
		return InvalidField("priority", r.Priority, "must be between 1 and 100")
	}
	if r.Protocol < AnyProtocol || r.Protocol > 255 {
		return InvalidField("protocol", int(r.Protocol), "must be between 0 and 255")
	}
	if r.Port != 0 && !r.Protocol.HasPorts() {
		return InvalidField("port", r.Port, fmt.Sprintf("must be 0 unless protocol is tcp, udp or 132 (sctp); it is %q", r.Protocol))
	}
	side := "from"
	if r.Direction == Out {
		side = "to"
	}
	if err := optionalName(side+"EndpointGroup", string(r.Group), MaxName); err != nil {
		return err
	}
	if err := optionalName(side+"Network", string(r.Network), MaxName); err != nil {
		return err
	}
	var kinds []string
	if r.Group != "" {
		kinds = append(kinds, side+"EndpointGroup")
	}
	if r.Network != "" {
		kinds = append(kinds, side+"Network")
	}
	if r.Addr.IsValid() {
		kinds = append(kinds, side+"IpAddress")
	}
	if len(kinds) > 1 {
		return InvalidField("ruleId", r.Key.Rule, "must name one kind of peer at most, not "+strings.Join(kinds, " and "))
	}
	if r.Addr.IsValid() && r.Addr != r.Addr.Masked() {
		return InvalidField(side+"IpAddress", r.Addr, "must not have bits set beyond its length")
	}
	return checkRawText(side+"IpAddress", r.RawAddr, r.Addr, func(s string) (netip.Prefix, error) {
		return ParsePeerAddr(side+"IpAddress", s)
	})
}
