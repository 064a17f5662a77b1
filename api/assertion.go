package api

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
	TenantName    string         `json:"tenantName,omitempty"` // whose endpoints are meant
	Verdict       string         `json:"verdict,omitempty"`    // never, always
	From          string         `json:"from,omitempty"`       // as in a ReachabilityRequest
	To            string         `json:"to,omitempty"`         // likewise
	Ports         []string       `json:"ports,omitempty"`      // PROTOCOL or PROTOCOL/PORT; none = all
	Owner         string         `json:"owner,omitempty"`      // who answers for it
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

// Assertions is the collection of assertions; they have no operational state.
func (c *Client) Assertions() Resource[Assertion, struct{}] {
	return Resource[Assertion, struct{}]{c, "assertions"}
}
