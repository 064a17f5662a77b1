//go:build integration

package kube

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// TestObjectsOfATeam: a user who may use one tenant writes the objects of that one alone.
func TestObjectsOfATeam(t *testing.T) {
	c, client := control(t)
	i := installIntents(t, config(t, c))
	ok[*rbacv1.ClusterRole](t)(client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "contiv-tenant-blue"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"contiv.io"}, Resources: []string{"policies", "endpointgroups", "netprofiles"}, Verbs: []string{"create", "update", "patch", "delete"}},
		{APIGroups: []string{"contiv.io"}, Resources: []string{"tenants"}, ResourceNames: []string{"blue"}, Verbs: []string{"use"}},
	}}, metav1.CreateOptions{}))
	ok[*rbacv1.ClusterRoleBinding](t)(client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "anna"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "contiv-tenant-blue"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "anna"}},
	}, metav1.CreateOptions{}))
	as := rest.CopyConfig(i.config)
	as.Impersonate.UserName = "anna"
	anna := intents{t, ok[*dynamic.DynamicClient](t)(dynamic.NewForConfig(as)), as}
	i.create("policies", "red", `{tenantName: red}`)
	const no = "anna may not write objects of tenant red: that needs the verb use on tenants.contiv.io, resourceName red"
	n := 0
	until(t, "the policy is in force", func() bool { // a policy, and a role, may be refused and taken a moment later
		n++
		err := anna.try("policies", fmt.Sprint("reds-", n), `{tenantName: red}`)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), no)
	})
	anna.create("policies", "blue", `{tenantName: blue}`)
	anna.delete("policies", "blue")
	for what, err := range map[string]error{
		"delete":   anna.of("policies").Delete(t.Context(), "red", metav1.DeleteOptions{}),
		"label":    anna.patch("policies", "red", `{"metadata":{"labels":{"a":"b"}}}`),
		"networks": anna.try("networks", "n", `{tenantName: blue, subnet: 10.1.0.0/16}`),
		"default":  anna.try("policies", "d", `{}`),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	i.create("policies", "fine", `{tenantName: red}`)
	if err := i.patch("policies", "fine", `{"metadata":{"annotations":{"contiv.io/adopt":"yes"}}}`); err == nil || !strings.Contains(err.Error(), "annotation contiv.io/adopt") {
		t.Errorf("an annotation without effect: %v", err)
	}
}
