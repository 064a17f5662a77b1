package model

import (
	"fmt"
	"strings"
)

var _ = register(Kind{
	Collection: "assertions", Name: "assertion", Order: 115,
})

// Verdict is what an assertion says of connections.
type Verdict string

// The verdicts.
const (
	Never  Verdict = "never"  // nothing of it is allowed
	Always Verdict = "always" // all of it is allowed
)

// ParseVerdict parses an assertion's verdict. The error is of kind ErrInvalid.
func ParseVerdict(s string) (Verdict, error) { return parseEnum("verdict", s, Never, Always) }

// AssertionKey names an assertion within the cluster.
type AssertionKey struct {
	Tenant TenantName `json:"tenant"`
	Name   string     `json:"name"`
}

func (k AssertionKey) String() string { return string(k.Tenant) + ":" + k.Name }

// ParseAssertionKey parses "tenant:assertion". The error is of kind ErrInvalid.
func ParseAssertionKey(s string) (AssertionKey, error) {
	t, n, err := parseKey("assertionName", s, MaxName)
	return AssertionKey{t, n}, err
}

// Assertion says which connections policies must never allow, or always. From, To and Ports are
// texts that package analysis reads.
type Assertion struct {
	Key     AssertionKey `json:"key"`
	Verdict Verdict      `json:"verdict"`
	From    string       `json:"from"`
	To      string       `json:"to"`
	Ports   []string     `json:"ports,omitempty"` // none = all
	// ClusterWide: it is about the endpoints of all tenants.
	ClusterWide bool   `json:"clusterWide,omitempty"`
	Owner       string `json:"owner,omitempty"`
	Reason      string `json:"reason,omitempty"`
	// Overridden is why a change that broke it was committed nevertheless. Control writes it.
	Overridden string `json:"overridden,omitempty"`
}

// String is the assertion as a sentence's part.
func (a Assertion) String() string {
	s := fmt.Sprintf("%s %s -> %s", a.Verdict, a.From, a.To)
	if len(a.Ports) > 0 {
		s += " " + strings.Join(a.Ports, ",")
	}
	if a.ClusterWide {
		s += " of all tenants"
	}
	return s
}

// Limits of assertions.
const (
	MaxAssertedPorts = 32
	MaxAssertionText = 256 // characters
)

// Validate checks all fields by themselves. The error is of kind ErrInvalid.
func (a Assertion) Validate() error {
	if _, err := ParseTenantName(string(a.Key.Tenant)); err != nil {
		return err
	}
	if err := parseName("assertionName", a.Key.Name, MaxName); err != nil {
		return err
	}
	if _, err := ParseVerdict(string(a.Verdict)); err != nil {
		return err
	}
	if len(a.Ports) > MaxAssertedPorts {
		return InvalidField("ports", len(a.Ports), fmt.Sprintf("must be at most %d", MaxAssertedPorts))
	}
	for _, f := range []struct{ name, text string }{{"from", a.From}, {"to", a.To}, {"owner", a.Owner}, {"reason", a.Reason}, {"overridden", a.Overridden}} {
		if err := checkText(f.name, f.text, MaxAssertionText); err != nil {
			return err
		}
	}
	return nil
}
