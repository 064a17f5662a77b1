package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/model"
)

// NamespaceTenants is a namespace's labels, and the tenants in which it can have pods.
type NamespaceTenants struct {
	Labels  map[string]string
	Tenants []model.TenantName
}

// namedTenants is how many tenants a problem names.
const namedTenants = 4

// AcrossTenants tells of the rules of a ClusterNetworkPolicy whose subject and peers are
// pods of different tenants. Between tenants a rule by labels matches no connection: by
// services these carry the address of the client's node.
func (c Cluster) AcrossTenants(in *policyv1beta1.ClusterNetworkPolicy, all []NamespaceTenants) (out []Problem) {
	c.Named = nil
	_, said := c.ClusterNetworkPolicy(model.DefaultTenant, in)
	var found problems
	if subject, closed := c.subject(model.DefaultTenant, in.Spec.Subject, &found); subject == nil || closed {
		return nil
	}
	subjects := tenantsSelected(all, in.Spec.Subject.Namespaces, in.Spec.Subject.Pods)
	ingress, egress := clusterRules(in.Spec)
	for _, r := range slices.Concat(ingress, egress) {
		denied := func(p Problem) bool { // that field denies everybody, whatever the tenant
			direction, _, _ := strings.Cut(r.field, "[")
			return p.Field == "spec.tier" || p.Field == "spec."+direction || strings.HasPrefix(p.Field, "spec."+r.field+".")
		}
		if slices.ContainsFunc(said, denied) {
			continue
		}
		for i, peer := range r.peers {
			others := map[model.TenantName]bool{}
			for _, t := range tenantsSelected(all, peer.Namespaces, peer.Pods) {
				if slices.ContainsFunc(subjects, func(s model.TenantName) bool { return s != t }) {
					others[t] = true
				}
			}
			if len(others) > 0 {
				found.add(fmt.Sprintf("spec.%s.%s[%d]", r.field, r.side, i), "selects pods of other tenants than the subject's (%s): between tenants, connections by services carry a node's address and no labels: this rule does not %s them",
					tenantNames(others), strings.ToLower(string(r.action)))
			}
		}
	}
	return found
}

// tenantsSelected returns the tenants in which namespaces that a subject or peer selects can
// have pods.
func tenantsSelected(all []NamespaceTenants, namespaces *metav1.LabelSelector, pods *policyv1beta1.NamespacedPod) (out []model.TenantName) {
	switch {
	case pods != nil:
		namespaces = &pods.NamespaceSelector
	case namespaces == nil:
		return nil // networks
	}
	of := requirements(namespaces)
	for _, n := range all {
		if !slices.ContainsFunc(of, func(r model.Requirement) bool { return !r.Holds(n.Labels) }) {
			out = append(out, n.Tenants...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func tenantNames(of map[model.TenantName]bool) string {
	var names []string
	for _, t := range slices.Sorted(maps.Keys(of)) {
		names = append(names, string(t))
	}
	if more := len(names) - namedTenants; more > 0 {
		names = append(names[:namedTenants], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
