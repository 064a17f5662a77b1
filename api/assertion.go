package api

import (
	"context"
	"net/http"
)

// OverrideHeader says why a change may break assertions: for cluster administrators.
const OverrideHeader = "X-Contiv-Override"

// Verdicts of an Assertion.
const (
	AssertNever  = "never"  // nothing of it is allowed
	AssertAlways = "always" // all of it is allowed
)

// Assertion says of connections that they are never allowed, or always: changes that break it are
// refused.
type Assertion struct {
	Key           string         `json:"key,omitempty"`
	AssertionName string         `json:"assertionName,omitempty"`
	TenantName    string         `json:"tenantName,omitempty"`  // whose endpoints are meant
	Verdict       string         `json:"verdict,omitempty"`     // never, always
	From          string         `json:"from,omitempty"`        // as in a ReachabilityRequest
	To            string         `json:"to,omitempty"`          // likewise
	Ports         []string       `json:"ports,omitempty"`       // PROTOCOL or PROTOCOL/PORT; none = all
	ClusterWide   bool           `json:"clusterWide,omitempty"` // about endpoints of all tenants: cluster administrators write it
	Owner         string         `json:"owner,omitempty"`       // who answers for it
	Reason        string         `json:"reason,omitempty"`
	Overridden    string         `json:"overridden,omitempty"` // why a change that broke it was made nevertheless; told, not asked for
	Links         AssertionLinks `json:"links"`
}

// AssertionLinks are what an assertion refers to.
type AssertionLinks struct {
	Tenant Link `json:"Tenant"`
}

// ObjectKey returns "tenant:assertion".
func (o Assertion) ObjectKey() string { return o.TenantName + ":" + o.AssertionName }

// States of an AssertionVerdict.
const (
	AssertionHolds     = "holds"
	AssertionBroken    = "broken"
	AssertionUnchecked = "unchecked"
)

// AssertionVerdict says whether an assertion holds (GET /api/v1/analysis/assertions).
type AssertionVerdict struct {
	Assertion Assertion `json:"assertion"`
	State     string    `json:"state"`         // holds, broken, or unchecked: it is not known
	Why       string    `json:"why,omitempty"` // a flow that breaks it, with the rules that decide; or why it is not checked
	// SelectNothing are the sides, such as "from app=web", to which no endpoint belongs now.
	SelectNothing []string `json:"selectNothing,omitempty"`
}

// AssertionVerdicts asks which assertions hold.
func (c *Client) AssertionVerdicts(ctx context.Context) (out []AssertionVerdict, err error) {
	err = c.Do(ctx, http.MethodGet, "/api/v1/analysis/assertions", nil, &out)
	return out, err
}

// Assertions is the collection of assertions; they have no operational state.
func (c *Client) Assertions() Resource[Assertion, struct{}] {
	return Resource[Assertion, struct{}]{c, "assertions"}
}
