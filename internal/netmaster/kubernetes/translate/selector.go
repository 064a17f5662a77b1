package translate

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Cluster is what the meaning of an object depends on beside the object.
type Cluster struct {
	// Labels are no part of identities: selectors of them match no endpoint.
	Labels model.LabelFilter
	// Named gets the labels by which pods are selected; nil = not needed.
	Named map[string]bool
}

// requirements are those of a selector.
func requirements(s *metav1.LabelSelector) (out []model.Requirement) {
	if s == nil {
		return nil
	}
	for k, v := range s.MatchLabels {
		out = append(out, model.Requirement{Key: k, Operator: model.OpIn, Values: []string{v}})
	}
	slices.SortFunc(out, func(a, b model.Requirement) int { return cmp.Compare(a.Key, b.Key) })
	for _, e := range s.MatchExpressions {
		out = append(out, model.Requirement{Key: e.Key, Operator: model.Operator(e.Operator), Values: slices.Clone(e.Values)})
	}
	return out
}

// inNamespace are the requirements of being in a namespace.
func inNamespace(name string) []model.Requirement {
	return []model.Requirement{{Key: model.NamespaceNameLabel, Operator: model.OpIn, Values: []string{name}}}
}

// inAny are those of being in any namespace, which is being a pod.
func inAny() []model.Requirement {
	return []model.Requirement{{Key: model.NamespaceNameLabel, Operator: model.OpExists}}
}

// podSelector is a selector of pods as it was read.
type podSelector struct {
	selector model.Selector
	nobody   bool   // it contradicts itself
	wrong    string // it cannot be had; the selector is not to be used
}

// pods reads a selector of a tenant's pods, in the namespaces that meet what is
// required of them.
func (c Cluster) pods(t model.TenantName, of *metav1.LabelSelector, namespaces []model.Requirement) podSelector {
	s := model.Selector{Tenant: t, Namespaces: namespaces, MatchExpressions: requirements(of)}
	if len(s.Namespaces) == 0 {
		s.Namespaces = inAny()
	}
	for _, k := range s.LabelKeys() {
		if c.Named != nil {
			c.Named[k] = true
		}
	}
	for _, k := range s.LabelKeys() {
		if c.Labels.Covers(k) {
			return podSelector{wrong: "label \"" + k + "\" is no part of identities here (label filter of the cluster)"}
		}
	}
	if s.MatchesNone() {
		return podSelector{nobody: true}
	}
	if err := s.Validate("selector"); err != nil {
		return podSelector{wrong: cause(err)}
	}
	return podSelector{selector: s}
}
