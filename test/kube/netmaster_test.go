//go:build integration

package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientapi "k8s.io/client-go/tools/clientcmd/api"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/api"
)

// allow applies packaging/kubernetes/netmaster-rbac.yaml.
func allow(t *testing.T, config *rest.Config) {
	t.Helper()
	applyFile(t, config, "../../packaging/kubernetes/netmaster-rbac.yaml")
}

// resourceOf is where an API server has a manifest's object.
func resourceOf(t *testing.T, o *unstructured.Unstructured) schema.GroupVersionResource {
	t.Helper()
	gv := ok[schema.GroupVersion](t)(schema.ParseGroupVersion(o.GetAPIVersion()))
	return gv.WithResource(strings.Replace(strings.ToLower(o.GetKind())+"s", "policys", "policies", 1))
}

// applyFile creates the objects of a manifest.
func applyFile(t *testing.T, config *rest.Config, file string) {
	t.Helper()
	client := ok[*dynamic.DynamicClient](t)(dynamic.NewForConfig(config))
	text := ok[[]byte](t)(os.ReadFile(file))
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		r := client.Resource(resourceOf(t, o)).Namespace(o.GetNamespace())
		ok[*unstructured.Unstructured](t)(r.Create(t.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}))
	}
}

// asNetmaster writes a kubeconfig with a token of netmaster's service account.
func asNetmaster(t *testing.T, client kubernetes.Interface, config *rest.Config) (file string) {
	t.Helper()
	token := ok[*authenticationv1.TokenRequest](t)(client.CoreV1().ServiceAccounts("kube-system").CreateToken(t.Context(), "contiv-netmaster", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))
	c := clientapi.NewConfig()
	c.Clusters["c"] = &clientapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	c.AuthInfos["u"] = &clientapi.AuthInfo{Token: token.Status.Token}
	c.Contexts["c"] = &clientapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "c"
	file = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// netmaster runs the program until the test's end.
func netmaster(t *testing.T, args ...string) (client *api.Client, address string) {
	t.Helper()
	client, address, _ = netmasterIn(t, t.TempDir(), args...)
	return client, address
}

// netmasterIn runs the program with its data in a directory until the test's end, or
// stop is called.
func netmasterIn(t *testing.T, dir string, args ...string) (client *api.Client, address string, stop func()) {
	t.Helper()
	program := filepath.Join(dir, "netmaster")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/netmaster").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	addresses := free(t, 3)
	var log bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, append([]string{
		"--external-address", addresses[0], "--agent-address", addresses[1], "--etcd-listen", addresses[2], "--data-dir", filepath.Join(dir, "etcd"),
	}, args...)...)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended; Wait tells
		if err := cmd.Wait(); err != nil {
			t.Errorf("netmaster ends with %v", err)
		}
		if t.Failed() {
			t.Logf("netmaster says\n%s", log.String())
		}
	})
	t.Cleanup(stop)
	return ok[*api.Client](t)(api.NewClient("http://" + addresses[0])), addresses[0], stop
}

// free returns loopback addresses with unused ports.
func free(t *testing.T, n int) (addresses []string) {
	t.Helper()
	for range n {
		l := ok[net.Listener](t)(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

func ready(ctx context.Context, address string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return fmt.Sprint(string(text), err)
}

// netmaster with a service account that may what the manifest says: namespaces and
// policies come into the store and go, are read only there, and what cannot be had is
// told to their users by events and a condition, once.
func TestNamespacesAndPoliciesReachTheStore(t *testing.T) {
	c, client := control(t)
	ctx := t.Context()
	admin := config(t, c)
	until(t, "there is kube-system", func() bool {
		_, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		return err == nil
	})
	allow(t, admin)
	installCRD(t, admin)
	file := asNetmaster(t, client, admin)
	master, address := netmaster(t, "--kubeconfig", file)
	names := func() (all []string) {
		list, err := master.NetworkPolicies().List(ctx)
		if err != nil {
			return nil
		}
		for _, p := range list {
			all = append(all, p.TenantName+":"+p.NetworkPolicyName+" "+p.Owner+" "+p.Tier)
		}
		slices.Sort(all)
		return all
	}
	wants := func(want ...string) {
		t.Helper()
		until(t, fmt.Sprintf("policies %v", want), func() bool { return slices.Equal(names(), want) })
	}
	until(t, "netmaster follows Kubernetes", func() bool {
		text := ready(ctx, address)
		return strings.HasPrefix(text, "ok\n") && !strings.Contains(text, "kubernetes")
	})

	makeNamespace(t, client, "shop", nil)
	kubeSide := client.NetworkingV1().NetworkPolicies("shop")
	ok[*networkingv1.NetworkPolicy](t)(kubeSide.Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}, metav1.CreateOptions{}))
	const deny = "default:kubernetes.shop.deny kubernetes kubernetes"
	wants(deny)
	if err := master.NetworkPolicies().Delete(ctx, "default:kubernetes.shop.deny"); err == nil || !strings.Contains(err.Error(), "change it there") && !strings.Contains(err.Error(), "there") {
		t.Errorf("a user deletes Kubernetes' policy: %v", err)
	}

	// A label that an administrator has added to the generated ones cannot be selected by.
	ok[api.Global](t)(master.Globals().Create(ctx, api.Global{Name: "global", GeneratedLabels: []string{"default", "com.acme."}}))
	odd := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "odd"}}
	odd.Spec.PodSelector.MatchLabels = map[string]string{"com.acme.build": "x"}
	odd = ok[*networkingv1.NetworkPolicy](t)(kubeSide.Create(ctx, odd, metav1.CreateOptions{}))
	wants(deny, "default:kubernetes.shop.odd kubernetes kubernetes")
	var event *eventsv1.Event
	until(t, "an event on the policy", func() bool {
		list, err := client.EventsV1().Events("shop").List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return false
		}
		event = &list.Items[0]
		return true
	})
	if r := event.Regarding; r.Kind != "NetworkPolicy" || r.Name != "odd" || r.UID != odd.UID || event.Reason != "NotAsWritten" || event.Type != corev1.EventTypeWarning || !strings.Contains(event.Note, "com.acme.build") {
		t.Errorf("the event %v", event)
	}
	if text := ready(ctx, address); !strings.Contains(text, "warning: kubernetes-objects: not applied as written: 1 of kind NetworkPolicy") {
		t.Errorf("readyz says\n%s", text)
	}

	// A condition on a ClusterNetworkPolicy, beside others'.
	policies := clusterPolicies(t, admin)
	policies.create(t, &policyv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: denyAll(7)})
	state := func() (all []string) {
		o := ok[*unstructured.Unstructured](t)(policies.Get(ctx, "all", metav1.GetOptions{}))
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			c, _ := c.(map[string]any)
			all = append(all, fmt.Sprint(c["type"], " ", c["status"], " ", c["reason"], " ", c["observedGeneration"]))
		}
		slices.Sort(all)
		return all
	}
	until(t, "the condition", func() bool { return slices.Equal(state(), []string{"contiv.io/AsWritten True Kept 1"}) })
	o := ok[*unstructured.Unstructured](t)(policies.Get(ctx, "all", metav1.GetOptions{}))
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	conditions = append(conditions, map[string]any{"type": "example.com/Seen", "status": "True", "reason": "Other", "message": "", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)})
	if err := unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	o = ok[*unstructured.Unstructured](t)(policies.UpdateStatus(ctx, o, metav1.UpdateOptions{}))
	subject := map[string]any{"matchLabels": map[string]any{"com.acme.build": "x"}}
	if err := unstructured.SetNestedMap(o.Object, map[string]any{"pods": map[string]any{"namespaceSelector": map[string]any{}, "podSelector": subject}}, "spec", "subject"); err != nil {
		t.Fatal(err)
	}
	ok[*unstructured.Unstructured](t)(policies.Update(ctx, o, metav1.UpdateOptions{}))
	until(t, "the condition that it is not as written", func() bool {
		return slices.Equal(state(), []string{"contiv.io/AsWritten False NotAsWritten 2", "example.com/Seen True Other <nil>"})
	})

	// Deleted objects go, and the event was sent once.
	for _, name := range []string{"deny", "odd"} {
		if err := kubeSide.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wants("default:kubernetes-cluster.all kubernetes admin")
	if list := ok[*eventsv1.EventList](t)(client.EventsV1().Events("shop").List(ctx, metav1.ListOptions{})); len(list.Items) != 1 {
		t.Errorf("%d events, want one", len(list.Items))
	}

	// What the service account may not is said.
	if err := client.RbacV1().ClusterRoleBindings().Delete(ctx, "contiv-netmaster", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil { // watches that are open stay
		t.Fatal(err)
	}
	if err := c.Restart(ctx, false); err != nil {
		t.Fatal(err)
	}
	until(t, "what is forbidden", func() bool {
		text := ready(ctx, address)
		return strings.HasPrefix(text, "ok\n") && strings.Contains(text, "networkpolicies are as they were at ") && strings.Contains(text, "forbidden")
	})
	wants("default:kubernetes-cluster.all kubernetes admin")
}
