//go:build integration

package kube

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"
)

var (
	crds  = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	cnpOf = schema.GroupVersionResource{Group: "policy.networking.k8s.io", Version: "v1beta1", Resource: "clusternetworkpolicies"}
)

// installCRD makes ClusterNetworkPolicy a resource, from the file that the pinned
// network-policy-api has for users, with names of ports, and waits until it is served. The returned function
// takes it away, with all its objects.
func installCRD(t *testing.T, config *rest.Config) (remove func()) {
	t.Helper()
	dir := strings.TrimSpace(string(ok[[]byte](t)(exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/network-policy-api").Output())))
	text := ok[[]byte](t)(os.ReadFile(filepath.Join(dir, "config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml")))
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &crd.Object); err != nil {
		t.Fatal(err)
	}
	client := ok[*dynamic.DynamicClient](t)(dynamic.NewForConfig(config))
	ok[*unstructured.Unstructured](t)(client.Resource(crds).Create(t.Context(), crd, metav1.CreateOptions{}))
	until(t, "the resource is served", func() bool {
		_, err := client.Resource(cnpOf).List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	return func() {
		t.Helper()
		if err := client.Resource(crds).Delete(t.Context(), crd.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, "the resource is gone", func() bool {
			_, err := client.Resource(crds).Get(t.Context(), crd.GetName(), metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
}

// policies writes ClusterNetworkPolicies.
type policies struct{ dynamic.ResourceInterface }

func clusterPolicies(t *testing.T, config *rest.Config) policies {
	t.Helper()
	return policies{ok[*dynamic.DynamicClient](t)(dynamic.NewForConfig(config)).Resource(cnpOf)}
}

func (p policies) create(t *testing.T, policy *policyv1beta1.ClusterNetworkPolicy) *unstructured.Unstructured {
	t.Helper()
	return ok[*unstructured.Unstructured](t)(p.offer(t, policy))
}

// offer creates a policy, unless the API server finds it invalid.
func (p policies) offer(t *testing.T, policy *policyv1beta1.ClusterNetworkPolicy) (out *unstructured.Unstructured, invalid error) {
	t.Helper()
	policy.APIVersion, policy.Kind = policyv1beta1.GroupVersion.String(), "ClusterNetworkPolicy"
	o := ok[map[string]any](t)(runtime.DefaultUnstructuredConverter.ToUnstructured(policy))
	delete(o, "status")                         // its conditions may not be empty
	until(t, "a policy is taken", func() bool { // a resource that is new may be refused by one who does not know it yet
		var err error
		out, err = p.Create(t.Context(), &unstructured.Unstructured{Object: o}, metav1.CreateOptions{})
		if apierrors.IsInvalid(err) {
			invalid = err
			return true
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	return out, invalid
}

// denyAll denies all pods what comes from all pods.
func denyAll(priority int32) policyv1beta1.ClusterNetworkPolicySpec {
	return policyv1beta1.ClusterNetworkPolicySpec{
		Tier: policyv1beta1.AdminTier, Priority: priority,
		Subject: policyv1beta1.ClusterNetworkPolicySubject{Namespaces: &metav1.LabelSelector{}},
		Ingress: []policyv1beta1.ClusterNetworkPolicyIngressRule{{
			Name: "all", Action: policyv1beta1.ClusterNetworkPolicyRuleActionDeny,
			From: []policyv1beta1.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{}}},
		}},
	}
}
