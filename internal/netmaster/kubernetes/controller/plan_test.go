package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	served "k8s.io/client-go/tools/cache/testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
)

// plannerLab has namespace a, whose policy p isolates all pods, and a service there.
type plannerLab struct {
	*servicesLab
	planner Planner
}

func newPlannerLab(t *testing.T) plannerLab {
	t.Helper()
	l := plannerLab{servicesLab: &servicesLab{lab: newLab(t, nil)}}
	c := ServicesConfig{Control: l.ctrl, Sources: map[string]mirror.Source{}, Tell: func(Report) {}}
	for _, kind := range serviceOrder {
		l.sources[kind] = &source{FakeControllerSource: served.NewFakeControllerSource()}
		c.Sources[kind] = l.sources[kind]
	}
	l.services = NewServices(c)
	l.planner = Planner{l.syncer, l.services}
	l.sources[mirror.Namespaces].Add(namespace("a", map[string]string{"team": "x"}))
	l.sources[mirror.NetworkPolicies].Add(isolate("a", "p"))
	l.sources[mirror.Services].Add(&corev1.Service{ObjectMeta: meta("a", "web", nil), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.9", Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080), NodePort: 30080}},
	}})
	l.start(l.ctrl.Run)
	l.start(l.syncer.Run)
	l.start(l.services.Run)
	fence := l.leader()
	for _, lead := range []func(context.Context) error{
		func(ctx context.Context) error { return l.syncer.Lead(ctx, fence) },
		func(ctx context.Context) error { return l.services.Lead(ctx, fence) },
	} {
		l.start(lead)
	}
	l.lab.want("default:kubernetes.a.p kubernetes kubernetes 0", "namespace a map[team:x]")
	l.until(func() bool {
		_, there := l.ctrl.Current().Kubernetes.ClusterService(translate.ServiceKey("a", "web"))
		return there
	}, func() string { return "the service is not stored" })
	return l
}

// plan plans manifests, and returns what each does: its kind and key, and created, updated or
// unchanged for each of its changes.
func (l plannerLab) plan(manifests ...string) (out []string, err error) {
	l.t.Helper()
	var all []json.RawMessage
	for _, m := range manifests {
		all = append(all, json.RawMessage(m))
	}
	objects, err := l.planner.Plan(l.t.Context(), all)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		outcomes, _, err := l.ctrl.Plan(l.t.Context(), control.Admin(), o.Changes)
		if err != nil {
			return nil, err
		}
		line := o.Kind + " " + o.Key
		for i, x := range outcomes {
			switch {
			case o.Changes[i].Delete != nil:
				line += " deleted"
			case x.Unchanged():
				line += " unchanged"
			case x.Before == nil:
				line += " created"
			default:
				line += " updated"
			}
		}
		out = append(out, strings.TrimSpace(fmt.Sprint(line, " ", strings.Join(o.Warnings, "; "))))
	}
	return out, nil
}

const (
	openPolicy      = `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"a"},"spec":{"podSelector":{},"ingress":[{}]}}`
	unchangedPolicy = `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"a"},"spec":{"podSelector":{}}}`
	selectsNoPod    = `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"a"},"spec":{"podSelector":{"matchLabels":{"app":"x"},"matchExpressions":[{"key":"app","operator":"DoesNotExist"}]}}}`
	partlyUnknown   = `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"q","namespace":"a"},"spec":{"podSelector":{},"ingress":[{"ports":[{"port":0}]}]}}`
	inNewSpace      = `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"b"},"spec":{"podSelector":{}}}`
	newSpace        = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"b"}}`
	relabelled      = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","labels":{"stage":"test"}}}`
	clusterPolicy   = `{"apiVersion":"policy.networking.k8s.io/v1beta1","kind":"ClusterNetworkPolicy","metadata":{"name":"c"},"spec":{"tier":"Admin","priority":1,"subject":{"namespaces":{}},"ingress":[{"action":"Deny","from":[{"namespaces":{}}]}]}}`
	localService    = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"a"},"spec":{"type":"NodePort","internalTrafficPolicy":"Local","ports":[{"port":80,"targetPort":8080}]}}`
	sameService     = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"a"},"spec":{"type":"NodePort","ports":[{"port":80,"targetPort":8080,"protocol":"TCP"}]}}`
)

func TestManifestsArePlannedAsTheyWouldBeSynced(t *testing.T) {
	l := newPlannerLab(t)
	before := slices.Concat(l.lab.rows(), l.rows())
	for _, tc := range []struct {
		manifests, want []string
	}{
		{[]string{openPolicy}, []string{"NetworkPolicy a/p updated"}},
		{[]string{unchangedPolicy}, []string{"NetworkPolicy a/p"}},
		{[]string{selectsNoPod}, []string{"NetworkPolicy a/p deleted"}},
		{[]string{partlyUnknown}, []string{"NetworkPolicy a/q created spec.ingress[0].ports[0]: is no port, name of a port or range of TCP, UDP or SCTP: it allows nothing"}},
		{[]string{inNewSpace, newSpace}, []string{"NetworkPolicy b/p created", "Namespace b created"}},
		{[]string{relabelled}, []string{"Namespace a updated"}},
		{[]string{clusterPolicy}, []string{"ClusterNetworkPolicy c created"}},
		{[]string{localService}, []string{"Service a/web updated"}},
		{[]string{sameService}, []string{"Service a/web unchanged"}},
	} {
		if got, err := l.plan(tc.manifests...); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%v: %q, %v; want %q", tc.manifests, got, err, tc.want)
		}
	}
	if after := slices.Concat(l.lab.rows(), l.rows()); !slices.Equal(after, before) {
		t.Errorf("plans have changed the store from\n%s\nto\n%s", before, after)
	}
	l.sources[mirror.NetworkPolicies].Modify(isolate("a", "p", open))
	l.lab.want("default:kubernetes.a.p kubernetes kubernetes 1", "namespace a map[team:x]")
	if got, err := l.plan(openPolicy); err != nil || !slices.Equal(got, []string{"NetworkPolicy a/p"}) {
		t.Errorf("after a sync of the same: %q, %v", got, err)
	}
}

func TestManifestsThatCannotBePlannedAreNamed(t *testing.T) {
	l := newPlannerLab(t)
	for manifest, want := range map[string]string{
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"a"}}`:                                          "Deployment a/web cannot be planned: plans take NetworkPolicy, ClusterNetworkPolicy, Service, Namespace; leave it out",
		`{"apiVersion":"extensions/v1beta1","kind":"NetworkPolicy","metadata":{"name":"p"}}`:                                              "NetworkPolicy p cannot be planned: its apiVersion is extensions/v1beta1; plans take networking.k8s.io/v1",
		`{"apiVersion":"policy.networking.k8s.io/v1alpha1","kind":"AdminNetworkPolicy","metadata":{"name":"p"}}`:                          "AdminNetworkPolicy p cannot be planned",
		`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"namespace":"a"}}`:                                       "metadata.name is missing",
		`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"p","namespace":"a"},"spec":{"podSelectors":{}}}`: `NetworkPolicy a/p cannot be planned: unknown field "podSelectors"`,
		inNewSpace: "NetworkPolicy b/p cannot be planned: namespace b does not exist",
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","labels":{"io.contiv.tenant":"blue"}}}`:                                                   "Namespace a cannot be planned: its labels io.contiv.tenant",
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"new","namespace":"a"},"spec":{"ports":[{"port":80}]}}`:                                         "Service a/new cannot be planned: it is new",
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"a"},"spec":{"ports":[{"port":80,"targetPort":8081}]}}`:                       "Service a/web cannot be planned: its port 80 gets another target port",
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"a"},"spec":{"ports":[{"port":80,"targetPort":8080},{"name":"x","port":9}]}}`: "its port 9 is new",
		`[]`: "is not a manifest of Kubernetes",
	} {
		_, err := l.plan(openPolicy, manifest)
		all, ok := errors.AsType[control.ChangeErrors](err)
		if !ok || len(all) != 1 || all[0].Index != 1 || !errors.Is(err, model.ErrInvalid) || !strings.Contains(all[0].Err.Error(), want) {
			t.Errorf("%s: %v; want %q", manifest, err, want)
		}
	}
}
