//go:build integration

package kube

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReinstalledKubernetesDeletesNothing: the API server of a running netmaster is reinstalled at the same
// address, with Contiv's kinds and none of its objects. Then nothing is deleted and nothing
// of the new one is stored, until netmaster is restarted for it.
func TestReinstalledKubernetesDeletesNothing(t *testing.T) {
	c, client := control(t)
	ctx := t.Context()
	admin := config(t, c)
	intents := installIntents(t, admin)
	dir := t.TempDir()
	master, address, stop := netmasterIn(t, dir, "--kubeconfig", c.Kubeconfig)
	makeNamespace(t, client, "shop", nil)
	deny := func() {
		t.Helper()
		ok[*networkingv1.NetworkPolicy](t)(client.NetworkingV1().NetworkPolicies("shop").Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}, metav1.CreateOptions{}))
	}
	deny()
	intents.create("tenants", "blue", "{}")
	names := func() (all []string) {
		policies, err := master.NetworkPolicies().List(ctx)
		tenants, err2 := master.Tenants().List(ctx)
		if err != nil || err2 != nil {
			return []string{"none"}
		}
		for _, p := range policies {
			all = append(all, p.NetworkPolicyName)
		}
		for _, x := range tenants {
			all = append(all, x.TenantName)
		}
		slices.Sort(all)
		return all
	}
	has := func(want ...string) {
		t.Helper()
		until(t, strings.Join(want, ", "), func() bool { return slices.Equal(names(), want) })
	}
	before := []string{"blue", "default", "kubernetes.shop.deny"}
	has(before...)

	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(ctx, true); err != nil {
		t.Fatal(err)
	}
	var uid string
	until(t, "there is another kube-system", func() bool {
		ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err == nil {
			uid = string(ns.UID)
		}
		return err == nil
	})
	installIntents(t, admin)
	until(t, "netmaster sees that it is another one", func() bool {
		text := ready(ctx, address)
		return strings.HasPrefix(text, "ok\n") && strings.Contains(text, "the API server belongs to the cluster "+uid) && strings.Contains(text, "--kubernetes-cluster "+uid)
	})
	makeNamespace(t, client, "new", nil)
	// It is longer than until a kind that comes is noticed, and what failed is tried again.
	for end := time.Now().Add(25 * time.Second); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		if got := names(); !slices.Equal(got, before) {
			t.Fatalf("there is %v, want %v", got, before)
		}
	}
	stop()
	if said := refusal(ctx, t, dir, c.Kubeconfig); !strings.Contains(said, "--kubeconfig: the API server belongs to the cluster "+uid) {
		t.Errorf("netmaster says\n%s", said)
	}

	master, address, _ = netmasterIn(t, dir, "--kubeconfig", c.Kubeconfig, "--kubernetes-cluster", uid)
	has("default")
	makeNamespace(t, client, "shop", nil)
	deny()
	has("default", "kubernetes.shop.deny")
	until(t, "all is well", func() bool { return !strings.Contains(ready(ctx, address), "kubernetes") })
}

// refusal is what netmaster says when it ends at its start.
func refusal(ctx context.Context, t *testing.T, dir, kubeconfig string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	at := free(t, 3)
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "netmaster"), "--external-address", at[0], "--agent-address", at[1], "--etcd-listen", at[2],
		"--data-dir", filepath.Join(dir, "etcd"), "--kubeconfig", kubeconfig).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Errorf("it ends with %v, %v\n%s", err, ctx.Err(), out)
	}
	return string(out)
}
