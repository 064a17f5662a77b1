package api

// Policy is a named list of rules.
type Policy struct {
	Key        string         `json:"key,omitempty"`
	Owner      string         `json:"owner,omitempty"` // kubernetes: an object of Kubernetes has it; told, not asked for
	PolicyName string         `json:"policyName,omitempty"`
	TenantName string         `json:"tenantName,omitempty"`
	LinkSets   PolicyLinkSets `json:"link-sets"`
	Links      PolicyLinks    `json:"links"`
}

// PolicyLinkSets are a policy's rules and the groups that it is attached to.
type PolicyLinkSets struct {
	EndpointGroups LinkSet `json:"EndpointGroups,omitempty"`
	Rules          LinkSet `json:"Rules,omitempty"`
}

// PolicyLinks are what a policy refers to.
type PolicyLinks struct {
	Tenant Link `json:"Tenant"`
}

// ObjectKey returns "tenant:policy".
func (o Policy) ObjectKey() string { return o.TenantName + ":" + o.PolicyName }

// PolicyOper is the operational state of a policy.
type PolicyOper struct {
	Endpoints        []EndpointOper `json:"endpoints,omitempty"`
	NumEndpoints     int            `json:"numEndpoints,omitempty"`
	PolicyViolations int            `json:"policyViolations,omitempty"`
}

// Policies is the collection of policies ("policys" on the wire).
func (c *Client) Policies() Resource[Policy, PolicyOper] {
	return Resource[Policy, PolicyOper]{c, "policys"}
}
