package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
)

// intent is what exists, as kube asks for it.
type intent struct{ *control.View }

func (i intent) Tenants() (out []model.TenantName) {
	for _, t := range i.View.Tenants.List() {
		out = append(out, t.Name)
	}
	return out
}

func (i intent) Networks(t model.TenantName) (out []model.NetworkName) {
	for _, n := range i.View.Networks.List(t) {
		out = append(out, n.Key.Name)
	}
	return out
}

func (i intent) Groups(t model.TenantName) (out []model.GroupName) {
	for _, g := range i.View.Groups.List(t) {
		out = append(out, g.Key.Name)
	}
	return out
}

// podOf is the pod that an endpoint is of.
func podOf(e model.Endpoint) Object {
	return Object{mirror.Pods, mirror.Name{Namespace: string(e.Namespace), Name: e.Pod.Name}}
}

// podWait is how long a pod's endpoint may wait: less than a request to netmaster may
// take, so that its answer says what lags.
const podWait = 7 * time.Second

// Endpoint returns what the endpoint of a pod is to be, without id, host and
// addresses, once the store has all policies that there were when the pod was last
// changed. Without a UID it is of the pod that has the name now. A pod that is gone or
// has another UID, and what is not in step within 7 s, is model.ErrUnavailable; a place
// that the pod may not have, model.ErrInvalid.
func (k *PolicySyncer) Endpoint(ctx context.Context, namespace, name, uid string) (model.Endpoint, error) {
	e, err := k.endpoint(ctx, mirror.Name{Namespace: namespace, Name: name}, uid)
	if err != nil {
		return e, fmt.Errorf("pod %s/%s: %w", namespace, name, err)
	}
	return e, nil
}

func (k *PolicySyncer) endpoint(ctx context.Context, name mirror.Name, uid string) (none model.Endpoint, err error) {
	ctx, cancel := context.WithTimeout(ctx, podWait)
	defer cancel()
	if err := k.work.ours(); err != nil {
		return none, model.Errorf(model.ErrUnavailable, "%v", err)
	}
	pod := k.podByUID(name, uid)
	if pod == nil { // ask whether there is one now
		if err := k.mirror.Await(ctx, ""); err != nil {
			return none, err
		}
		if pod, _ = k.mirror.Get(mirror.Pods, name).(*corev1.Pod); pod == nil || uid != "" && string(pod.UID) != uid {
			return none, model.Errorf(model.ErrUnavailable, "the API server has no such pod%s: it was deleted, or made again", withUID(uid))
		}
		uid = string(pod.UID)
	}
	l, err := k.await(ctx, pod.ResourceVersion, name, uid)
	if err != nil {
		return none, err
	}
	pod = l.pod
	_, _, wrong := translate.Addresses(pod)
	if _, rates := translate.Rates(pod); len(rates) > 0 {
		wrong = append(wrong, rates...)
	}
	if l.err == nil && len(wrong) > 0 {
		l.err = model.Errorf(model.ErrInvalid, "%s: %s", wrong[0].Field, wrong[0].Text)
	}
	if len(l.problems) > 0 {
		k.config.Tell(Report{Object: Object{mirror.Pods, name}, Live: pod, Problems: l.problems})
	}
	return l.endpoint, l.err
}

// withUID words a pod's UID, if it was asked for by one.
func withUID(uid string) string {
	if uid == "" {
		return ""
	}
	return " with UID " + uid
}

// podByUID returns a pod, nil when it is not there with that UID.
func (k *PolicySyncer) podByUID(name mirror.Name, uid string) *corev1.Pod {
	pod, ok := k.mirror.Get(mirror.Pods, name).(*corev1.Pod)
	if !ok || string(pod.UID) != uid {
		return nil
	}
	return pod
}

// podEndpoint is what a pod's endpoint is to be, and where it cannot be there what its
// labels name.
func (k *PolicySyncer) podEndpoint(v *control.View, pod *corev1.Pod) (e model.Endpoint, problems []translate.Problem, err error) {
	ns := k.mirror.Get(mirror.Namespaces, mirror.Name{Name: pod.Namespace})
	if ns == nil {
		return e, nil, model.Errorf(model.ErrUnavailable, "its namespace is not there")
	}
	e = model.Endpoint{Labels: pod.Labels, Namespace: model.NamespaceName(pod.Namespace), Pod: model.Pod{Name: pod.Name, UID: string(pod.UID)}}
	e.Ports, problems = translate.NamedPorts(pod)
	v4, v6, wrong := translate.Addresses(pod)
	problems = append(problems, wrong...)
	e.Rates, wrong = translate.Rates(pod)
	problems = append(problems, wrong...)
	e.IPv4, e.IPv6, e.Pod.KeepIPv4, e.Pod.KeepIPv6 = v4, v6, v4.IsValid(), v6.IsValid()
	place, err := translate.PlacementOf(pod.Labels, ns.GetLabels(), k.config.Choices, intent{v})
	e.Key.Network, e.Group = model.NetworkKey{Tenant: place.Tenant, Name: place.Network}, place.Group
	if err != nil {
		label := ""
		if r, ok := errors.AsType[translate.Refusal](err); ok {
			label = "[" + r.Label + "]"
		}
		problems = append(problems, translate.Problem{Field: "metadata.labels" + label, Text: err.Error()})
		return e, problems, model.Errorf(model.ErrInvalid, "%w", err)
	}
	return e, problems, nil
}

// CheckGroup returns model.ErrInvalid if pods of a namespace may not choose a group.
func (k *PolicySyncer) CheckGroup(namespace string, group model.GroupName) error {
	ns := k.mirror.Get(mirror.Namespaces, mirror.Name{Name: namespace})
	if ns == nil {
		return model.Errorf(model.ErrUnavailable, "namespace %s is not there", namespace)
	}
	if why := k.config.Choices.GroupRefusal(group, ns.GetLabels()); why != "" {
		return model.InvalidField("group", group, why)
	}
	return nil
}

// Node is the node that a pod is on, "" where that is not known.
func (k *PolicySyncer) Node(namespace, name, uid string) string {
	if pod := k.podByUID(mirror.Name{Namespace: namespace, Name: name}, uid); pod != nil {
		return pod.Spec.NodeName
	}
	return ""
}

// ReportRefused tells a pod's users that it cannot have the addresses for which it asks.
func (k *PolicySyncer) ReportRefused(namespace, name, uid string, err error) {
	n := mirror.Name{Namespace: namespace, Name: name}
	if pod := k.podByUID(n, uid); pod != nil {
		k.config.Tell(Report{Object: Object{mirror.Pods, n}, Live: pod, Problems: []translate.Problem{{
			Field: "metadata.annotations",
			Text:  fmt.Sprintf("%v: name a free address of its network in %s or %s, then delete the pod", err, translate.AnnotationIPv4, translate.AnnotationIPv6),
		}}})
	}
}

// pod makes the endpoint of a pod what the pod is now. One without an endpoint, or with
// another pod's, has nothing to follow.
func (p *policySync) pod(ctx context.Context, o Object, pod *corev1.Pod) ([]translate.Problem, error) {
	have, ok := p.view.Pods.PodEndpoint(string(pod.UID))
	if !ok || podOf(have) != o {
		return nil, nil
	}
	want, problems, err := p.k.podEndpoint(p.view, pod)
	switch {
	case errors.Is(err, model.ErrUnavailable):
		return problems, err
	case err != nil: // labels follow; it stays where it is
		want.Group = have.Group
	case want.Key.Network != have.Key.Network:
		problems = append(problems, translate.Problem{
			Field: "metadata.labels",
			Text:  fmt.Sprintf("they name network %s now: a pod stays on its network, %s, until it is made again", want.Key.Network, have.Key.Network),
		})
		want.Group = have.Group
	}
	for _, a := range []struct {
		name     string
		want, is netip.Addr
	}{{translate.AnnotationIPv4, want.IPv4, have.IPv4}, {translate.AnnotationIPv6, want.IPv6, have.IPv6}} {
		if a.want.IsValid() && a.want != a.is {
			problems = append(problems, translate.Problem{
				Field: "metadata.annotations[" + a.name + "]", Text: fmt.Sprintf("it requests %s now: a pod keeps its address, %s, until it is created again", a.want, a.is),
			})
		}
	}
	want.Key = have.Key
	if _, wrong := translate.Rates(pod); len(wrong) > 0 { // what cannot be understood lifts no limit
		want.Rates = have.Rates
	}
	if !control.SamePod(have, want) {
		if failed := p.k.config.Control.Endpoints.FollowPod(ctx, p.leader, want); failed != nil {
			if want.Group == have.Group || !refuses(failed) {
				return problems, failed
			}
			problems = append(problems, translate.Problem{Field: "metadata.labels[" + translate.LabelGroup + "]", Text: fmt.Sprintf("it stays in its group: %v", failed)})
			want.Group = have.Group
			return problems, p.k.config.Control.Endpoints.FollowPod(ctx, p.leader, want)
		}
	}
	return problems, nil
}

// refuses reports whether an error is about what was asked for.
func refuses(err error) bool {
	return errors.Is(err, model.ErrNotFound) || errors.Is(err, model.ErrConflict) || errors.Is(err, model.ErrInvalid)
}

// countOrphans counts the endpoints whose pods are not there, once all pods are known.
func (k *PolicySyncer) countOrphans() (n int) {
	for _, s := range k.mirror.States() {
		if s.Kind == mirror.Pods && !s.Listed {
			return 0
		}
	}
	for _, e := range k.config.Control.Current().Pods.PodEndpoints() {
		if k.podByUID(podOf(e).Name, e.Pod.UID) == nil {
			n++
		}
	}
	return n
}
