package controller

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
)

// TestLabelsThatPoliciesSelectByCount: a label that Kubernetes' controllers set is part of
// endpoints' identities while a NetworkPolicy selects by it, and attached pods get
// identities with it before the policy is in force. Other generated labels are not part of
// identities, nor are labels that a user has added to them.
func TestLabelsThatPoliciesSelectByCount(t *testing.T) {
	const name, index, hash = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "pod-template-hash"
	l := newLab(t, nil)
	l.start(l.ctrl.Run)
	l.worlds()
	l.make(func() error {
		change := model.DefaultGlobal()
		filter, err := model.ParseLabelFilter("generatedLabels", []string{"default", "com.acme."})
		if change.GeneratedLabels = filter; err != nil {
			return err
		}
		g, err := model.Check(change)
		if err == nil {
			_, err = l.ctrl.Put(context.Background(), control.Admin(), l.ctrl.Settings.ChangeGlobal(g))
		}
		return err
	})
	for i := range 2 {
		l.makeEndpoint(model.Endpoint{
			Key: model.EndpointKey{Network: model.NetworkKey{Tenant: model.DefaultTenant, Name: "default-net"}, ID: model.EndpointID(fmt.Sprint("e", i))}, Host: "h1",
			Namespace: "a", Labels: map[string]string{"app": "db", name: fmt.Sprint("db-", i), index: strconv.Itoa(i), hash: "x"},
		})
	}
	// told is how many identities the endpoints have, and which labels tell them apart.
	told := func() string {
		v, err := l.ctrl.View(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		ids := map[uint32]bool{}
		for _, e := range v.Endpoints.List("") {
			ids[uint32(e.Identity)] = true
		}
		out := []string{strconv.Itoa(len(ids))}
		for _, label := range []string{name, index, hash} {
			if len(v.Endpoints.EndpointsSelected(model.Selector{Tenant: model.DefaultTenant, MatchExpressions: []model.Requirement{{Key: label, Operator: model.OpExists}}})) > 0 {
				out = append(out, label)
			}
		}
		return strings.Join(out, " ")
	}
	if got := told(); got != "1" {
		t.Fatalf("before there is a policy: %s", got)
	}
	l.start(l.syncer.Run)
	fence := l.leader()
	l.start(func(ctx context.Context) error { return l.syncer.Lead(ctx, fence) })
	l.start(func(ctx context.Context) error {
		return l.ctrl.LabelFilter.FollowLabelFilter(ctx, control.Leader(fence))
	})

	first := isolate("a", "first", func(s *networkingv1.NetworkPolicySpec) {
		s.PodSelector.MatchLabels = map[string]string{index: "0"}
		s.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{name: "db-1"}}}}}}
	})
	l.sources[mirror.Namespaces].Add(namespace("a", nil))
	l.sources[mirror.NetworkPolicies].Add(first)
	l.want("default:kubernetes.a.first kubernetes kubernetes 1", "namespace a map[]")
	if got, want := told(), "2 "+name+" "+index; got != want {
		t.Errorf("under the policy: %s, want %s", got, want)
	}
	v, _ := l.ctrl.View(context.Background())
	p, _ := v.Policies.NetworkPolicy(model.PolicyKey{Tenant: model.DefaultTenant, Name: "kubernetes.a.first"})
	if !strings.Contains(fmt.Sprint(p.Policy.Applies), index) {
		t.Errorf("the policy applies to %v", p.Policy.Applies)
	}

	// A label that the cluster's settings exclude stays excluded.
	l.sources[mirror.NetworkPolicies].Add(isolate("a", "second", func(s *networkingv1.NetworkPolicySpec) {
		s.PodSelector.MatchLabels = map[string]string{"com.acme.build": "1"}
	}))
	l.want("default:kubernetes.a.first kubernetes kubernetes 1", "default:kubernetes.a.second kubernetes kubernetes 0", "namespace a map[]")
	l.wantReport("com.acme.build")

	// Without the policy they count no more.
	l.sources[mirror.NetworkPolicies].Delete(first)
	l.want("default:kubernetes.a.second kubernetes kubernetes 0", "namespace a map[]")
	l.sources[mirror.Namespaces].Add(namespace("b", nil)) // a look at all
	for end := time.Now().Add(time.Minute); told() != "1"; <-time.After(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("without the policy: %s", told())
		}
	}
}
