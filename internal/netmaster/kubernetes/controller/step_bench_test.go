package controller

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	served "k8s.io/client-go/tools/cache/testing"

	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// BenchmarkBehind is what a pod's question costs, whether the store is in step, where
// nothing has changed since another one, beside few policies and many.
func BenchmarkBehind(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { benchBehind(b, n) })
	}
}

func benchBehind(b *testing.B, n int) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	st := memory.New()
	ctrl := control.New(st, control.Options{})
	go func() { _ = ctrl.Run(ctx) }() // it ends with ctx
	c := Config{Control: ctrl, Sources: map[string]mirror.Source{}, Tell: func(Report) {}}
	sources := map[string]*source{}
	for _, kind := range policyKinds {
		sources[kind] = &source{FakeControllerSource: served.NewFakeControllerSource()}
		c.Sources[kind] = sources[kind]
	}
	for i := range n {
		if i%10 == 0 {
			sources[mirror.Namespaces].Add(&corev1.Namespace{ObjectMeta: meta("", fmt.Sprint("ns", i/10), nil)})
		}
		sources[mirror.NetworkPolicies].Add(&networkingv1.NetworkPolicy{
			ObjectMeta: meta(fmt.Sprint("ns", i/10), fmt.Sprint("p", i), nil),
			Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": strconv.Itoa(i)}}},
		})
	}
	k := New(c)
	go func() { _ = k.Run(ctx) }() // likewise
	rev, err := st.Update(ctx, func(tx store.Tx) error { return tx.Create("/test/leader", []byte("x"), nil) })
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = k.Lead(ctx, store.Fence{Key: "/test/leader", Create: rev}) }() // likewise
	question := func() []Object {
		turn, _ := ctrl.Current().Revisions.PolicyGeneration()
		return k.notSynced(turn, "ns0")
	}
	for len(ctrl.Current().Policies.NetworkPolicies("")) < n || len(question()) > 0 {
		if _, err := ctrl.View(ctx); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if out := question(); len(out) > 0 {
			b.Fatalf("behind with %s", summary(out))
		}
	}
}
