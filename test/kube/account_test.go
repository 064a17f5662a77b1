//go:build integration

package kube

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/serviceaccount"
)

// TestPodTokensNameTheirNode: a real API server says of which node the pod is that a token is bound to,
// to a netmaster that has the right to ask; tokens of another account, for another
// audience, of no pod, and of a pod that is gone are refused. It may write the ConfigMap
// of what netplugins trust, and no other.
func TestPodTokensNameTheirNode(t *testing.T) {
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
	good := token("contiv-netplugin", serviceaccount.Audience, mine)

	roles := client.RbacV1().ClusterRoles()
	role := ok[*rbacv1.ClusterRole](t)(roles.Get(t.Context(), "contiv-netmaster", metav1.GetOptions{}))
	shipped := role.Rules
	role.Rules = slices.DeleteFunc(slices.Clone(role.Rules), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "tokenreviews") })
	role = ok[*rbacv1.ClusterRole](t)(roles.Update(t.Context(), role, metav1.UpdateOptions{}))
	own := ok[*rest.Config](t)(clientcmd.BuildConfigFromFlags("", asNetmaster(t, client, config)))
	j := ok[*serviceaccount.Authenticator](t)(serviceaccount.New(own, ns, "contiv-netplugin"))
	until(t, "netmaster may not ask", func() bool { // the API server's authorizer follows by a watch
		_, _, err := j.Host(t.Context(), good)
		return errors.Is(err, model.ErrUnavailable)
	})
	if _, _, err := j.Host(t.Context(), good); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "create tokenreviews") {
		t.Errorf("without the right to ask: %v", err)
	}
	role.Rules = shipped
	ok[*rbacv1.ClusterRole](t)(roles.Update(t.Context(), role, metav1.UpdateOptions{}))
	until(t, "netmaster may ask", func() bool {
		host, by, err := j.Host(t.Context(), good)
		if err == nil && (host != "node1" || by != ns+"/netplugin-x") {
			t.Errorf("the node is %q, by %q", host, by)
		}
		return err == nil
	})
	for what, tc := range map[string]struct{ token, refused string }{
		"of another account": {token("other", serviceaccount.Audience, theirs), `"system:serviceaccount:kube-system:other"`},
		"for the API server": {token("contiv-netplugin", "https://kubernetes.default.svc", mine), "does not accept the service account's token"},
		"of no pod":          {token("contiv-netplugin", serviceaccount.Audience, nil), "not bound to a pod"},
		"that was changed":   {good[:len(good)-8] + "AAAAAAAA", "does not accept the service account's token"},
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

	maps := client.CoreV1().ConfigMaps(ns)
	for _, name := range []string{serviceaccount.BundleName, "other"} {
		ok[*corev1.ConfigMap](t)(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	must(t, os.WriteFile(file, []byte("an authority"), 0o600))
	k := ok[*serviceaccount.TrustBundle](t)(serviceaccount.NewTrustBundle(serviceaccount.TrustBundleConfig{API: own, Namespace: ns, File: file, Ours: func(context.Context) error { return nil }, Log: slog.New(slog.DiscardHandler)}))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = k.Run(ctx) }) // it ends with ctx
	until(t, "the ConfigMap has the file", func() bool {
		return ok[*corev1.ConfigMap](t)(maps.Get(t.Context(), serviceaccount.BundleName, metav1.GetOptions{})).Data[serviceaccount.BundleKey] == "an authority"
	})
	asItself := ok[*kubernetes.Clientset](t)(kubernetes.NewForConfig(own)).CoreV1().ConfigMaps(ns)
	_, made := asItself.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	_, written := asItself.Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Data: map[string]string{"x": "y"}}, metav1.UpdateOptions{})
	if !apierrors.IsForbidden(made) || !apierrors.IsForbidden(written) {
		t.Errorf("netmaster makes a ConfigMap: %v, and writes another: %v", made, written)
	}
}
