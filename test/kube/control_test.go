//go:build integration

package kube

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// version is what test/kube/kubernetes/go.mod pins.
const version = "v1.35.4"

// lacks skips a test that the machine cannot run, or fails it where everything must run.
func lacks(t *testing.T, what any) {
	t.Helper()
	if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// must takes what the start of a cluster came to: where no Kubernetes is built the test cannot run.
func must(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, cluster.ErrNotBuilt) {
		lacks(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// control starts an API server for a test, and ends it with the test.
func control(t *testing.T) (*cluster.Control, *kubernetes.Clientset) {
	t.Helper()
	c, err := cluster.Start(t.Context(), t.TempDir())
	must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	config, err := c.Config()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c, client
}

// The API server is the pinned one, keeps objects, tells watches of them, and refuses
// what its validation refuses; nothing of it listens once it is closed.
func TestControlPlaneKeepsAndRefusesObjects(t *testing.T) {
	c, client := control(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	v, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if v.GitVersion != version {
		t.Errorf("the API server is %s, want %s", v.GitVersion, version)
	}

	policies := client.NetworkingV1().NetworkPolicies("shop")
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watch, err := policies.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	deny := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}
	if _, err := policies.Create(ctx, deny, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-watch.ResultChan():
		if p, ok := e.Object.(*networkingv1.NetworkPolicy); !ok || p.Name != "deny" {
			t.Errorf("the watch told %s of %v, want the policy deny", e.Type, e.Object)
		}
	case <-ctx.Done():
		t.Error("the watch told nothing of a new policy")
	}
	wrong := deny.DeepCopy()
	wrong.Name, wrong.Spec.PolicyTypes = "wrong", []networkingv1.PolicyType{"Sideways"}
	if _, err := policies.Create(ctx, wrong, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a policy of an unknown type: %v, want that it is invalid", err)
	}

	config, err := c.Config()
	if err != nil {
		t.Fatal(err)
	}
	watch.Stop()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for _, server := range []string{config.Host, c.Etcd()} {
		u, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		var d net.Dialer
		if conn, err := d.DialContext(ctx, "tcp", u.Host); err == nil {
			conn.Close()
			t.Errorf("%s still listens after Close", server)
		}
	}
}
