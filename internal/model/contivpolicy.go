package model

var _ = register(Kind{
	Collection: "policys", Name: "policy", Order: 50,
})

// PolicyName names a policy within its tenant.
type PolicyName string

// PolicyKey names a policy within the cluster.
type PolicyKey struct {
	Tenant TenantName `json:"tenant"`
	Name   PolicyName `json:"name"`
}

func (k PolicyKey) String() string { return string(k.Tenant) + ":" + string(k.Name) }

// ParsePolicyKey parses "tenant:policy". The error is of kind ErrInvalid.
func ParsePolicyKey(s string) (PolicyKey, error) {
	t, n, err := split2("policy", s)
	return PolicyKey{TenantName(t), PolicyName(n)}, err
}

// ParsePolicyName checks a policy's name. The error is of kind ErrInvalid.
func ParsePolicyName(s string) (PolicyName, error) {
	return PolicyName(s), parseName("policyName", s, MaxName)
}

// ContivPolicy is a named list of rules (kept apart, as Rule) that groups refer to.
type ContivPolicy struct {
	Key PolicyKey `json:"key"`
	// Object is the object of Kubernetes that it belongs to, "" = it is the users'.
	Object string `json:"object,omitempty"`
}

// General returns the policy as it is stored and compiled.
func (p ContivPolicy) General() Policy {
	return Policy{Key: p.Key, Kind: KindContiv, Owner: OwnerUser, Object: p.Object, Tier: TierContiv, Order: OrderContiv, Attached: true}
}

// Contiv returns a policy as it was written in 1.x's words; false when it was not.
func (p Policy) Contiv() (ContivPolicy, bool) {
	return ContivPolicy{Key: p.Key, Object: p.Object}, p.Kind == KindContiv
}

// Validate checks the key. The error is of kind ErrInvalid.
func (p ContivPolicy) Validate() error {
	if _, err := ParseTenantName(string(p.Key.Tenant)); err != nil {
		return err
	}
	_, err := ParsePolicyName(string(p.Key.Name))
	return err
}
