package apiserver

import (
	"context"
	"fmt"
	"net/http"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Pods tells what endpoints of Kubernetes' pods are.
type Pods interface {
	// Endpoint returns a pod's endpoint without id, host and addresses. It waits until
	// the store has what policies there were when the pod was last changed; what that
	// lags behind with is model.ErrUnavailable, and so is a pod that is gone or has
	// another UID; without one it is the pod that has the name now. A place that it may
	// not have is model.ErrInvalid.
	Endpoint(ctx context.Context, namespace, name, uid string) (model.Endpoint, error)
	// CheckGroup returns model.ErrInvalid if pods of a namespace may not choose a group.
	CheckGroup(namespace string, group model.GroupName) error
	// Node is the node that a pod is on, "" where that is not known.
	Node(namespace, name, uid string) string
	// ReportRefused tells a pod's users why it cannot have the addresses for which it asks.
	ReportRefused(namespace, name, uid string, err error)
}

// placePod answers where an interface of a pod belongs, before an endpoint is made for it.
func (s *endpointHandlers) placePod(w http.ResponseWriter, r *request) (any, error) {
	req, err := endpointBody[api.PodPlacementRequest](w, r)
	if err != nil {
		return nil, err
	}
	pod := api.Pod{Namespace: req.Namespace, Name: req.Name, UID: req.UID}
	if s.pods == nil {
		v, err := s.control.View(r.Context())
		if err == nil && v.Settings.KubernetesCluster().UID != "" { // it would be under no policy of Kubernetes
			err = noKubernetes(pod)
		}
		return api.PodPlacement{}, err
	}
	e, err := s.podEndpoint(r.Context(), pod, false)
	if err != nil {
		return nil, err
	}
	if req.Interface != nil {
		return s.placeInterface(e, *req.Interface)
	}
	p := api.PodPlacement{
		Followed: true, UID: e.Pod.UID, TenantName: string(e.Key.Network.Tenant), NetworkName: string(e.Key.Network.Name), ServiceName: string(e.Group),
	}
	if e.IPv4.IsValid() {
		p.IPAddress = e.IPv4.String()
	}
	if e.IPv6.IsValid() {
		p.IPv6Address = e.IPv6.String()
	}
	return p, nil
}

// placeInterface answers in which tenant a further interface of a pod is. The author of its
// configuration, a NetworkAttachmentDefinition, may choose no more than the pod's labels may:
// a network of the pod's tenant, and a group that pods may choose.
func (s *endpointHandlers) placeInterface(pod model.Endpoint, asked api.PodInterface) (any, error) {
	tenant := string(pod.Key.Network.Tenant)
	if asked.TenantName != "" && asked.TenantName != tenant {
		return nil, model.InvalidField("tenant", asked.TenantName, fmt.Sprintf("must be left out: pod %s/%s is of tenant %s, and so are all its interfaces", pod.Namespace, pod.Pod.Name, tenant))
	}
	if asked.ServiceName != "" {
		if err := s.pods.CheckGroup(string(pod.Namespace), model.GroupName(asked.ServiceName)); err != nil {
			return nil, err
		}
	}
	return api.PodPlacement{Followed: true, UID: pod.Pod.UID, TenantName: tenant}, nil
}

// placeEndpoint answers on which network an endpoint is to be, before anybody makes it: a
// host knows nothing of a tenant that it has no endpoint of.
func (s *endpointHandlers) placeEndpoint(w http.ResponseWriter, r *request) (any, error) {
	p, err := endpointBody[api.EndpointPlacement](w, r)
	if err != nil {
		return nil, err
	}
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	t := model.TenantName(p.TenantName)
	if _, ok := v.Tenants.Get(t); !ok {
		return nil, model.Errorf(model.ErrNotFound, "tenant %q does not exist", t)
	}
	n, err := v.Groups.Place(model.GroupKey{Tenant: t, Name: model.GroupName(p.ServiceName)}, model.NetworkName(p.NetworkName), v.Networks)
	p.NetworkName = string(n)
	return p, err
}

// podEndpoint needs a pod's UID where an endpoint is made: between the question for its
// place and that another pod may have got the name.
func (s *endpointHandlers) podEndpoint(ctx context.Context, p api.Pod, needsUID bool) (model.Endpoint, error) {
	for _, f := range []struct{ name, value string }{{"Namespace", p.Namespace}, {"Name", p.Name}, {"UID", p.UID}} {
		if f.value == "" && (f.name != "UID" || needsUID) {
			return model.Endpoint{}, model.InvalidField(f.name, "", "must not be empty: Kubernetes is followed, and the pod must be known")
		}
	}
	return s.pods.Endpoint(ctx, p.Namespace, p.Name, p.UID)
}

// noKubernetes is the answer for a pod where netmaster has no Kubernetes and the store has.
func noKubernetes(p api.Pod) error {
	return model.Errorf(model.ErrUnavailable, "this netmaster does not watch Kubernetes and does not know pod %s/%s: give it the --kubeconfig of the other or the earlier netmasters", p.Namespace, p.Name)
}

// asPod makes an endpoint that is asked for the pod's: what Kubernetes says counts,
// not what the request does.
func (s *endpointHandlers) asPod(ctx context.Context, want *model.Endpoint, p api.Pod) error {
	if s.pods == nil {
		return noKubernetes(p)
	}
	e, err := s.podEndpoint(ctx, p, true)
	if err != nil {
		return err
	}
	if e.Key.Network != want.Key.Network {
		return model.Errorf(model.ErrConflict, "pod %s/%s belongs to network %s now, not to %s", p.Namespace, p.Name, e.Key.Network, want.Key.Network)
	}
	// One that is put back has the address that its container has, whatever the pod says now.
	if !want.IPv4.IsValid() {
		want.IPv4 = e.IPv4
	}
	if !want.IPv6.IsValid() {
		want.IPv6 = e.IPv6
	}
	e.Pod.KeepIPv4, e.Pod.KeepIPv6 = e.IPv4.IsValid() && e.IPv4 == want.IPv4, e.IPv6.IsValid() && e.IPv6 == want.IPv6
	want.Group, want.Labels, want.Namespace, want.Ports, want.Pod, want.LabelsLater = e.Group, e.Labels, e.Namespace, e.Ports, e.Pod, false
	want.Rates = e.Rates // what its runtime has told is what its annotations said then
	return nil
}
