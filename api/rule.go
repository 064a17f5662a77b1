package api

// Rule is one rule of a policy.
type Rule struct {
	Key               string       `json:"key,omitempty"`
	Action            string       `json:"action,omitempty"`            // allow, deny
	Direction         string       `json:"direction,omitempty"`         // in, out
	FromEndpointGroup string       `json:"fromEndpointGroup,omitempty"` // direction in only
	FromIPAddress     string       `json:"fromIpAddress,omitempty"`     // direction in only; address or CIDR
	FromNetwork       string       `json:"fromNetwork,omitempty"`       // direction in only
	PolicyName        string       `json:"policyName,omitempty"`
	Port              int          `json:"port,omitempty"`     // 0 = any
	Priority          int          `json:"priority,omitempty"` // 1-100, higher wins
	Protocol          string       `json:"protocol,omitempty"` // tcp, udp, icmp, a number, empty = any
	RuleID            string       `json:"ruleId,omitempty"`
	TenantName        string       `json:"tenantName,omitempty"`
	ToEndpointGroup   string       `json:"toEndpointGroup,omitempty"` // direction out only
	ToIPAddress       string       `json:"toIpAddress,omitempty"`     // direction out only; address or CIDR
	ToNetwork         string       `json:"toNetwork,omitempty"`       // direction out only
	LinkSets          RuleLinkSets `json:"link-sets"`
	Links             RuleLinks    `json:"links"`
}

// RuleLinkSets are the policies that a rule belongs to: one.
type RuleLinkSets struct {
	Policies LinkSet `json:"Policies,omitempty"`
}

// RuleLinks names the group that a rule names as its peer.
type RuleLinks struct {
	MatchEndpointGroup Link `json:"MatchEndpointGroup"`
}

// ObjectKey returns "tenant:policy:rule".
func (o Rule) ObjectKey() string { return o.TenantName + ":" + o.PolicyName + ":" + o.RuleID }

// Rules is the collection of rules; they have no operational state.
func (c *Client) Rules() Resource[Rule, struct{}] {
	return Resource[Rule, struct{}]{c, "rules"}
}
