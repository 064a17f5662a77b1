package model

import (
	"strings"
)

// Names follow the 1.x contract: DNS-like labels of letters, digits and inner
// hyphens, joined by dots.
type (
	TenantName  string
	NetworkName string
	GroupName   string
	PolicyName  string
	RuleID      string
	HostName    string // at most 256 characters, otherwise as the other names
	EndpointID  string // chosen by the runtime; see ParseEndpointID
)

// DefaultTenant exists from the start and cannot be deleted.
const DefaultTenant TenantName = "default"

// MaxName is the length limit of names, in characters, unless said otherwise.
const MaxName = 64

// isName tells whether s is labels joined by dots. Names and ids are matched by
// hand: compiling two regular expressions took a third of contivk8s' start.
func isName(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !isAlnum(c) && c != '-' {
				return false
			}
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

const wantName = "must be letters, digits and inner hyphens, in labels joined by dots, at most 64 characters"

func parseName(field, s string, limit int) error {
	switch {
	case s == "":
		return InvalidField(field, s, "must not be empty")
	case len(s) > limit || !isName(s):
		if limit != MaxName {
			return InvalidField(field, s, strings.Replace(wantName, "64", itoa(limit), 1))
		}
		return InvalidField(field, s, wantName)
	}
	return nil
}

// ParseTenantName checks a tenant's name. The error is of kind ErrInvalid.
func ParseTenantName(s string) (TenantName, error) {
	return TenantName(s), parseName("tenantName", s, MaxName)
}

// ParseNetworkName checks a network's name. The error is of kind ErrInvalid.
func ParseNetworkName(s string) (NetworkName, error) {
	return NetworkName(s), parseName("networkName", s, MaxName)
}

// ParseGroupName checks an endpoint group's name. The error is of kind ErrInvalid.
func ParseGroupName(s string) (GroupName, error) {
	return GroupName(s), parseName("groupName", s, MaxName)
}

// ParsePolicyName checks a policy's name. The error is of kind ErrInvalid.
func ParsePolicyName(s string) (PolicyName, error) {
	return PolicyName(s), parseName("policyName", s, MaxName)
}

// ParseRuleID checks a rule's id. The error is of kind ErrInvalid.
func ParseRuleID(s string) (RuleID, error) { return RuleID(s), parseName("ruleId", s, MaxName) }

// ParseHostName checks a host's name. The error is of kind ErrInvalid.
func ParseHostName(s string) (HostName, error) { return HostName(s), parseName("host", s, 256) }

const maxEndpointID = 253

func isEndpointID(s string) bool {
	if s == "" || len(s) > maxEndpointID || !isAlnum(s[0]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '_' && c != '.' && c != ':' && c != '-' {
			return false
		}
	}
	return true
}

// ParseEndpointID checks an endpoint's id: 1-253 letters, digits and "_.:-",
// the first a letter or digit. A slash is refused: 1.x accepted one and then
// lost every endpoint listing (known fault 5).
func ParseEndpointID(s string) (EndpointID, error) {
	if !isEndpointID(s) {
		return "", InvalidField("EndpointID", s, "must be 1-253 letters, digits or any of _.:-, and start with a letter or digit")
	}
	return EndpointID(s), nil
}

// NetworkKey names a network within the cluster.
type NetworkKey struct {
	Tenant TenantName  `json:"tenant"`
	Name   NetworkName `json:"name"`
}

// GroupKey names an endpoint group within the cluster.
type GroupKey struct {
	Tenant TenantName `json:"tenant"`
	Name   GroupName  `json:"name"`
}

// PolicyKey names a policy within the cluster.
type PolicyKey struct {
	Tenant TenantName `json:"tenant"`
	Name   PolicyName `json:"name"`
}

// RuleKey names a rule within the cluster.
type RuleKey struct {
	Tenant TenantName `json:"tenant"`
	Policy PolicyName `json:"policy"`
	Rule   RuleID     `json:"rule"`
}

// EndpointKey names an endpoint within the cluster: ids are unique within a
// network, as in 1.x.
type EndpointKey struct {
	Network NetworkKey `json:"network"`
	ID      EndpointID `json:"id"`
}

func (k NetworkKey) String() string { return string(k.Tenant) + ":" + string(k.Name) }
func (k GroupKey) String() string   { return string(k.Tenant) + ":" + string(k.Name) }
func (k PolicyKey) String() string  { return string(k.Tenant) + ":" + string(k.Name) }
func (k RuleKey) String() string {
	return string(k.Tenant) + ":" + string(k.Policy) + ":" + string(k.Rule)
}
func (k EndpointKey) String() string { return k.Network.String() + ":" + string(k.ID) }

// Policy returns the key of the rule's policy.
func (k RuleKey) PolicyKey() PolicyKey { return PolicyKey{k.Tenant, k.Policy} }

// ParseNetworkKey parses "tenant:network". The error is of kind ErrInvalid.
func ParseNetworkKey(s string) (NetworkKey, error) {
	t, n, err := split2("network", s)
	return NetworkKey{TenantName(t), NetworkName(n)}, err
}

// ParseGroupKey parses "tenant:group". The error is of kind ErrInvalid.
func ParseGroupKey(s string) (GroupKey, error) {
	t, n, err := split2("endpointGroup", s)
	return GroupKey{TenantName(t), GroupName(n)}, err
}

// ParsePolicyKey parses "tenant:policy". The error is of kind ErrInvalid.
func ParsePolicyKey(s string) (PolicyKey, error) {
	t, n, err := split2("policy", s)
	return PolicyKey{TenantName(t), PolicyName(n)}, err
}

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

// ParseEndpointKey parses "tenant:network:id"; the id may hold colons. The
// error is of kind ErrInvalid.
func ParseEndpointKey(s string) (EndpointKey, error) {
	p := strings.SplitN(s, ":", 3)
	if len(p) != 3 {
		return EndpointKey{}, InvalidField("key", s, "must be tenant:network:endpoint")
	}
	n, err := ParseNetworkKey(p[0] + ":" + p[1])
	if err != nil {
		return EndpointKey{}, err
	}
	id, err := ParseEndpointID(p[2])
	return EndpointKey{n, id}, err
}

func split2(kind, s string) (tenant, name string, err error) {
	p := strings.Split(s, ":")
	if len(p) != 2 {
		return "", "", InvalidField("key", s, "must be tenant:"+kind)
	}
	if err := parseName("tenantName", p[0], MaxName); err != nil {
		return "", "", err
	}
	if err := parseName(kind+"Name", p[1], MaxName); err != nil {
		return "", "", err
	}
	return p[0], p[1], nil
}
