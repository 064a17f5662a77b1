package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
)

// TestTooLargeNamespaceKeepsItsPreviousState: a namespace that no store could have is known by what it was
// before, and told; its pods do not start, those of others do.
func TestTooLargeNamespaceKeepsItsPreviousState(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	l.worlds()
	l.keeps()
	l.sources[mirror.Namespaces].Add(namespace("a", map[string]string{"x": "y"}))
	l.sources[mirror.Namespaces].Add(namespace("b", nil))
	l.want("namespace a map[x:y]", "namespace b map[]")
	many := map[string]string{"x": "z"}
	for n := range model.MaxLabels {
		many[fmt.Sprint("l", n)] = ""
	}
	l.sources[mirror.Namespaces].Modify(namespace("a", many))
	l.wantReport("its pods do not start")
	l.sources[mirror.Pods].Add(podNamed("u1", nil))
	other := &corev1.Pod{ObjectMeta: meta("b", "one", nil)}
	l.sources[mirror.Pods].Add(other)
	for range 2 { // the second look, by what the first found
		l.unavailable("u1", time.Second, "behind with namespaces a")
		if _, err := l.syncer.Endpoint(t.Context(), "b", "one", string(other.UID)); err != nil {
			t.Error(err)
		}
	}
	l.want("namespace a map[x:y]", "namespace b map[]")
	delete(many, "l0")
	l.sources[mirror.Namespaces].Modify(namespace("a", many))
	if _, err := l.asks("u1", time.Minute); err != nil {
		t.Error(err)
	}
}

// TestTooLargePolicyIsolatesItsPods: a NetworkPolicy with more rules than hosts hold isolates its pods and
// allows nothing; no pod waits for it. With fewer rules it is in force.
func TestTooLargePolicyIsolatesItsPods(t *testing.T) {
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	l.worlds()
	l.keeps()
	many := func(n int) func(*networkingv1.NetworkPolicySpec) {
		return func(s *networkingv1.NetworkPolicySpec) {
			var r networkingv1.NetworkPolicyIngressRule
			for i := range n {
				r.From = append(r.From, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("10.%d.%d.0/24", 100+i/256, i%256)}})
				port := intstr.FromInt32(int32(1 + 2*i))
				r.Ports = append(r.Ports, networkingv1.NetworkPolicyPort{Port: &port})
			}
			s.Ingress = []networkingv1.NetworkPolicyIngressRule{r}
		}
	}
	l.sources[mirror.Namespaces].Add(namespace("a", nil))
	l.sources[mirror.NetworkPolicies].Add(isolate("a", "p", many(1000)))
	l.want("default:kubernetes.a.p kubernetes kubernetes 0", "namespace a map[]")
	l.wantReport("nothing is allowed")
	l.sources[mirror.Pods].Add(podNamed("u1", nil))
	for end := time.Now().Add(2 * time.Minute); ; { // again, as runtimes do: rules by the million take a busy machine longer than one waits
		_, err := l.asks("u1", time.Minute)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	l.sources[mirror.NetworkPolicies].Modify(isolate("a", "p", many(2)))
	l.want("default:kubernetes.a.p kubernetes kubernetes 1", "namespace a map[]")
	l.sources[mirror.NetworkPolicies].Modify(isolate("a", "p", many(1000)))
	l.want("default:kubernetes.a.p kubernetes kubernetes 0", "namespace a map[]")
}
