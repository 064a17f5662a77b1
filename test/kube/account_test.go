//go:build integration

package kube

import (
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/contiv/netplugin/v2/internal/kube/account"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestAccount: a real API server says of which node the pod is that a token is bound to,
// to a netmaster that has the right to ask; tokens of another account, for another
// audience, of no pod, and of a pod that is gone are refused.
func TestAccount(t *testing.T) {
	c, client := control(t)
	config := ok[*rest.Config](t)(c.Config())
	allow(t, config)
	const ns = "kube-system"
	for _, name := range []string{"contiv-netplugin", "other"} {
		ok[*corev1.ServiceAccount](t)(client.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
	}
	ok[*corev1.Node](t)(client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}, metav1.CreateOptions{}))
	pod := func(name, of string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: "node1", ServiceAccountName: of, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		return ok[*corev1.Pod](t)(client.CoreV1().Pods(ns).Create(t.Context(), p, metav1.CreateOptions{}))
	}
	token := func(of, audience string, bound *corev1.Pod) string {
		r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
		if bound != nil {
			r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: bound.Name, UID: bound.UID}
		}
		return ok[*authenticationv1.TokenRequest](t)(client.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), of, r, metav1.CreateOptions{})).Status.Token
	}
	mine, theirs := pod("netplugin-x", "contiv-netplugin"), pod("other-x", "other")
	good := token("contiv-netplugin", account.Audience, mine)

	own := ok[*rest.Config](t)(clientcmd.BuildConfigFromFlags("", asNetmaster(t, client, config)))
	j := ok[*account.Judge](t)(account.New(own, ns, "contiv-netplugin"))
	if _, _, err := j.Host(t.Context(), good); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "create tokenreviews") {
		t.Errorf("without the right to ask: %v", err)
	}
	ok[*rbacv1.ClusterRole](t)(client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reviews"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}}},
	}, metav1.CreateOptions{}))
	ok[*rbacv1.ClusterRoleBinding](t)(client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reviews"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reviews"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "contiv-netmaster", Namespace: ns}},
	}, metav1.CreateOptions{}))
	until(t, "netmaster may ask", func() bool { // the API server's authorizer follows by a watch
		host, by, err := j.Host(t.Context(), good)
		if err == nil && (host != "node1" || by != ns+"/netplugin-x") {
			t.Errorf("the node is %q, by %q", host, by)
		}
		return err == nil
	})
	for what, tc := range map[string]struct{ token, refused string }{
		"of another account": {token("other", account.Audience, theirs), `"system:serviceaccount:kube-system:other"`},
		"for the API server": {token("contiv-netplugin", "https://kubernetes.default.svc", mine), "does not take the token"},
		"of no pod":          {token("contiv-netplugin", account.Audience, nil), "bound to no pod"},
		"that was changed":   {good[:len(good)-8] + "AAAAAAAA", "does not take the token"},
	} {
		if host, _, err := j.Host(t.Context(), tc.token); !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), tc.refused) || host != "" {
			t.Errorf("%s: %q, %v", what, host, err)
		}
	}
	now := int64(0)
	must(t, client.CoreV1().Pods(ns).Delete(t.Context(), mine.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	until(t, "the token of a pod that is gone is refused", func() bool { // it is known for some seconds
		_, _, err := j.Host(t.Context(), good)
		return errors.Is(err, model.ErrInvalid)
	})
}
