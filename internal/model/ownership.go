package model

import "fmt"

// Owned names an object that an object of Kubernetes may own.
type Owned struct {
	Kind string `json:"kind"` // as in Kind: "network"
	Key  string `json:"key"`  // as text
}

func (o Owned) String() string { return fmt.Sprintf("%s %q", o.Kind, o.Key) }

// Ownership names the Kubernetes object that an object belongs to: only its controller
// changes or deletes it. Objects of users have none.
type Ownership struct {
	Owned
	Object string `json:"object"` // its name among those of the kind in Kubernetes
}

// OwnedResources are the resources of Kubernetes whose objects may own such of ours, by
// our kind.
var OwnedResources = map[string]string{
	"tenant": "tenants.contiv.io", "network": "networks.contiv.io", "endpointGroup": "endpointgroups.contiv.io",
	"policy": "policies.contiv.io", "netprofile": "netprofiles.contiv.io",
}

// Resource is the object of Kubernetes, as kubectl takes it.
func (o Ownership) Resource() string { return OwnedResources[o.Kind] + "/" + o.Object }

// PolicyWithRules is a ContivPolicy with all of its rules.
type PolicyWithRules struct {
	Policy ContivPolicy
	Rules  []Rule // each id once
}

// General returns the policy and its rules as they are stored and compiled.
func (p PolicyWithRules) General() NetworkPolicy {
	out := NetworkPolicy{Policy: p.Policy.General()}
	for _, r := range p.Rules {
		out.Rules = append(out.Rules, r.General())
	}
	return out
}

// MaxPolicyRules is how many rules a PolicyWithRules may have.
const MaxPolicyRules = 1024

// Validate checks all fields. The error is of kind ErrInvalid.
func (p PolicyWithRules) Validate() error {
	if err := p.Policy.Validate(); err != nil {
		return err
	}
	if len(p.Rules) > MaxPolicyRules {
		return InvalidField("rules", len(p.Rules), fmt.Sprintf("must be at most %d", MaxPolicyRules))
	}
	ids := map[RuleID]bool{}
	for i, r := range p.Rules {
		field := fmt.Sprintf("rules[%d]", i)
		if r.Key.PolicyKey() != p.Policy.Key {
			return InvalidField(field, r.Key, "must be of policy "+p.Policy.Key.String())
		}
		if ids[r.Key.Rule] {
			return InvalidField(field+".ruleId", r.Key.Rule, "must be another one for each rule")
		}
		ids[r.Key.Rule] = true
		if err := r.Validate(); err != nil {
			return InField(field, err)
		}
	}
	return nil
}
