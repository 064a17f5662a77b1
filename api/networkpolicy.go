package api

import (
	"context"
	"net/http"
	"net/url"
)

// NetworkPolicy is a policy that selects the endpoints it applies to, and the
// peers of its rules, by group, network and labels.
type NetworkPolicy struct {
	Key               string              `json:"key,omitempty"`
	Applies           *Selector           `json:"applies,omitempty"`    // absent = all endpoints of the tenant
	DefaultIn         string              `json:"defaultIn,omitempty"`  // allow, deny, pass; empty = it says nothing
	DefaultOut        string              `json:"defaultOut,omitempty"` // likewise
	Mode              string              `json:"mode,omitempty"`       // enforce, audit
	NetworkPolicyName string              `json:"networkPolicyName,omitempty"`
	Order             int                 `json:"order,omitempty"` // 1-200, lower decides first; 0 = 100
	Owner             string              `json:"owner,omitempty"` // user, kubernetes; told, not asked for
	Rules             []NetworkPolicyRule `json:"rules,omitempty"`
	TenantName        string              `json:"tenantName,omitempty"`
	Tier              string              `json:"tier,omitempty"` // admin, contiv, kubernetes, baseline
	Links             NetworkPolicyLinks  `json:"links"`
}

// NetworkPolicyRule is one rule of a network policy.
type NetworkPolicyRule struct {
	RuleID    string              `json:"ruleId,omitempty"`
	Direction string              `json:"direction,omitempty"` // in, out
	Priority  int                 `json:"priority,omitempty"`  // 1-100, higher decides first; 0 = 50
	Action    string              `json:"action,omitempty"`    // allow, deny, pass
	Log       bool                `json:"log,omitempty"`       // tell of each connection that it decides about
	Peers     []NetworkPolicyPeer `json:"peers,omitempty"`     // absent = any peer
	Ports     []NetworkPolicyPort `json:"ports,omitempty"`     // absent = any protocol
}

// NetworkPolicyPeer names the other end of connections in one of three ways.
type NetworkPolicyPeer struct {
	Selector *Selector `json:"selector,omitempty"` // endpoints of the tenant; empty = all of them
	CIDR     string    `json:"cidr,omitempty"`     // address or CIDR
	Except   []string  `json:"except,omitempty"`   // parts of CIDR
	Network  string    `json:"network,omitempty"`  // as fromNetwork of Rule
}

// NetworkPolicyPort is a protocol with destination ports.
type NetworkPolicyPort struct {
	Protocol string `json:"protocol,omitempty"` // tcp, udp, icmp or a number
	Ports    string `json:"ports,omitempty"`    // such as 80,443,8000-8080; empty = any
}

// Selector selects endpoints of one tenant; all that is set is required.
type Selector struct {
	Network          string             `json:"network,omitempty"`
	Group            string             `json:"group,omitempty"`
	MatchLabels      map[string]string  `json:"matchLabels,omitempty"`
	MatchExpressions []LabelRequirement `json:"matchExpressions,omitempty"`
}

// LabelRequirement is a requirement about a label, as in Kubernetes.
type LabelRequirement struct {
	Key      string   `json:"key,omitempty"`
	Operator string   `json:"operator,omitempty"` // In, NotIn, Exists, DoesNotExist
	Values   []string `json:"values,omitempty"`
}

// NetworkPolicyLinks are what a network policy refers to.
type NetworkPolicyLinks struct {
	Tenant Link `json:"Tenant"`
}

// ObjectKey returns "tenant:policy".
func (o NetworkPolicy) ObjectKey() string { return o.TenantName + ":" + o.NetworkPolicyName }

// NetworkPolicies is the collection of network policies ("networkPolicys" on the
// wire).
func (c *Client) NetworkPolicies() Resource[NetworkPolicy, PolicyOper] {
	return Resource[NetworkPolicy, PolicyOper]{c, "networkPolicys"}
}

// NetworkPolicyRule returns one rule of a network policy.
func (c *Client) NetworkPolicyRule(ctx context.Context, policyKey, ruleID string) (NetworkPolicyRule, error) {
	var out NetworkPolicyRule
	err := c.Do(ctx, http.MethodGet, networkRulePath(policyKey, ruleID), nil, &out)
	return out, err
}

// PutNetworkPolicyRule adds a rule to a network policy, or replaces the one with its id, and
// returns it as stored. The policy's other rules stay as they are.
func (c *Client) PutNetworkPolicyRule(ctx context.Context, policyKey string, r NetworkPolicyRule) (NetworkPolicyRule, error) {
	var out NetworkPolicyRule
	err := c.Do(ctx, http.MethodPut, networkRulePath(policyKey, r.RuleID), r, &out)
	return out, err
}

// DeleteNetworkPolicyRule deletes one rule of a network policy.
func (c *Client) DeleteNetworkPolicyRule(ctx context.Context, policyKey, ruleID string) error {
	return c.Do(ctx, http.MethodDelete, networkRulePath(policyKey, ruleID), nil, nil)
}

func networkRulePath(policyKey, ruleID string) string {
	return "/api/v1/networkPolicys/" + url.PathEscape(policyKey) + "/rules/" + url.PathEscape(ruleID) + "/"
}
