package statusreport

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// balanced is an outcome of a service at a version that has addresses, and is to have
// others.
func balanced(version string, has []string, wants ...string) Outcome {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u", ResourceVersion: version}}
	for _, a := range has {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	addrs := []netip.Addr{}
	for _, a := range wants {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	return Outcome{Kind: "Service", Version: "v1", Object: s, Balanced: &addrs}
}

// TestLoadBalancerAddressesAreWrittenOnce: the addresses of a service's load balancer are written once for each state
// of the service in which they are not there, of the service that is meant, and again
// when somebody takes them away.
func TestLoadBalancerAddressesAreWrittenOnce(t *testing.T) {
	w, n := serve(t)
	for _, o := range []Outcome{
		balanced("1", nil, "203.0.113.1", "2001:db8::1"),
		balanced("1", nil, "203.0.113.1", "2001:db8::1"), // told again
		balanced("2", []string{"203.0.113.1", "2001:db8::1"}, "203.0.113.1", "2001:db8::1"),
		balanced("3", nil, "203.0.113.1", "2001:db8::1"),
		balanced("4", []string{"203.0.113.1"}),
		balanced("5", nil),
		balanced("6", []string{"203.0.113.9"}, "203.0.113.1"), // another one
		balanced("7", []string{"203.0.113.9"}, "203.0.113.1"), // it was not there for that
	} {
		n.Report(o)
		idle(t, n)
	}
	o := balanced("8", []string{"203.0.113.9"})
	o.Balanced = nil // somebody else's
	n.Report(o)
	idle(t, n)
	if got := w.asked(); !slices.Equal(got, slices.Repeat([]string{"PATCH /api/v1/namespaces/ns/services/web/status"}, 5)) {
		t.Fatalf("asked %v", got)
	}
	const none = "map[metadata:map[uid:u] status:map[loadBalancer:map[ingress:[]]]]"
	const both = "map[metadata:map[uid:u] status:map[loadBalancer:map[ingress:[map[ip:203.0.113.1] map[ip:2001:db8::1]]]]]"
	const one = "map[metadata:map[uid:u] status:map[loadBalancer:map[ingress:[map[ip:203.0.113.1]]]]]"
	for i, want := range []string{both, both, none, one, one} {
		if got := fmt.Sprint(w.bodies[i]); got != want {
			t.Errorf("request %d says %s, want %s", i, got, want)
		}
	}
}

// TestStatusDoesNotWaitForEvents: a status does not wait for many events, and a problem of the service is
// reported too.
func TestStatusDoesNotWaitForEvents(t *testing.T) {
	n, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, "m1:9999", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		n.Report(policy(fmt.Sprint("p", i), "odd"))
	}
	o := balanced("1", nil, "203.0.113.1")
	o.Problems = policy("x", "odd").Problems
	n.Report(o)
	if next, _, _ := n.next(); next.Kind != "Service" {
		t.Errorf("%s %s is sent first", next.Kind, next.Object.GetName())
	}
	w, n := serve(t)
	n.Report(o)
	idle(t, n)
	if got := w.asked(); !slices.Equal(got, []string{"PATCH /api/v1/namespaces/ns/services/web/status", "POST /apis/events.k8s.io/v1/namespaces/ns/events"}) {
		t.Errorf("asked %v", got)
	}
}
