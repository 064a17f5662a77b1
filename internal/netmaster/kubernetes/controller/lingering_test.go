package controller

import (
	"context"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
)

// Rows of the tests below.
const (
	inBlue, inDefault = "blue:kubernetes.a.p kubernetes kubernetes 0", "default:kubernetes.a.p kubernetes kubernetes 0"
	bluer             = "namespace a map[io.contiv.tenant:blue]"
)

// moves is a lab whose namespace a, with a policy and a pod asked for in the default
// tenant, names another tenant when leave is called. The pod comes when come is.
func moves(t *testing.T, linger time.Duration) (l *lab, leave, come, end func()) {
	t.Helper()
	l = newLab(t, nil)
	l.syncer.lingering = linger
	l.start(l.ctrl.Run)
	l.worlds()
	l.tenant("blue")
	l.keeps()
	l.sources[mirror.Namespaces].Add(namespace("a", nil))
	l.sources[mirror.NetworkPolicies].Add(isolate("a", "p"))
	l.sources[mirror.Pods].Add(podNamed("u1", nil))
	want, err := l.asks("u1", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	want.Key.ID = "e1"
	come = func() {
		l.makeEndpoint(want)
	}
	end = func() {
		l.make(func() error {
			_, _, err := l.ctrl.Endpoints.DeleteEndpoint(context.Background(), control.Admin(), want.Key)
			return err
		})
	}
	leave = func() {
		l.sources[mirror.Namespaces].Modify(namespace("a", map[string]string{"io.contiv.tenant": "blue"}))
	}
	return l, leave, come, end
}

// TestPoliciesStayWithPods: pods stay in their tenant when their namespace names another
// one, and so do its policies, later ones too, until the last pod has gone.
func TestPoliciesStayWithPods(t *testing.T) {
	l, leave, come, end := moves(t, 0)
	come()
	leave()
	l.want(inBlue, inDefault, bluer)
	l.sources[mirror.NetworkPolicies].Modify(isolate("a", "p", open))
	l.want("blue:kubernetes.a.p kubernetes kubernetes 1", "default:kubernetes.a.p kubernetes kubernetes 1", bluer)
	l.sources[mirror.NetworkPolicies].Add(isolate("a", "q"))
	const q = ":kubernetes.a.q kubernetes kubernetes 0"
	l.want("blue:kubernetes.a.p kubernetes kubernetes 1", "blue"+q, "default:kubernetes.a.p kubernetes kubernetes 1", "default"+q, bluer)
	l.sources[mirror.NetworkPolicies].Delete(isolate("a", "p", func(*networkingv1.NetworkPolicySpec) {}))
	l.want("blue"+q, "default"+q, bluer)
	end()
	l.want("blue"+q, bluer)
}

// TestPoliciesOutliveTheirNamespaceForAWhile: a policy stays for a while where its namespace was, for a pod that
// was asked for before and comes after; pods elsewhere do not wait for its end.
func TestPoliciesOutliveTheirNamespaceForAWhile(t *testing.T) {
	l, leave, come, _ := moves(t, time.Hour)
	leave()
	l.want(inBlue, inDefault, bluer)
	if behind := l.syncer.notSynced(0, "a"); len(behind) > 0 {
		t.Errorf("pods wait for %v", behind)
	}
	come()
	l.want(inBlue, inDefault, bluer)
}

// TestPoliciesFollowPodsThatComeLater: policies that have gone from a tenant come back with a pod
// that comes there later still.
func TestPoliciesFollowPodsThatComeLater(t *testing.T) {
	l, leave, come, end := moves(t, 0)
	leave()
	l.want(inBlue, bluer)
	come()
	l.want(inBlue, inDefault, bluer)
	end()
	l.want(inBlue, bluer)
}
