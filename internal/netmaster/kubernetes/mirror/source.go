package mirror

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/objects"
)

// The kinds for policy and for services, as an API server names them.
const (
	Pods                   = "pods"
	Namespaces             = "namespaces"
	NetworkPolicies        = "networkpolicies"
	ClusterNetworkPolicies = "clusternetworkpolicies"

	Services       = "services"
	EndpointSlices = "endpointslices"
	Nodes          = "nodes"
	ServiceCIDRs   = "servicecidrs"
)

// appearEvery is how often the mirror checks whether a missing resource has come to an API
// server. Callers that wait for a moment do not wait for this.
const appearEvery = 10 * time.Second

// servedResource is a resource of an API server.
type servedResource struct {
	resource schema.GroupVersionResource
	list     func() runtime.Object
	optional bool // an API server without it has none of its objects
	format   string
}

// Sources returns the sources of the kinds for policy: the API server of a configuration.
// It sends no request yet. It drops the parts of objects that no reader here needs (Trim).
func Sources(config *rest.Config) (map[string]Source, error) {
	return sources(config, []servedResource{
		{corev1.SchemeGroupVersion.WithResource(Pods), func() runtime.Object { return &corev1.PodList{} }, false, runtime.ContentTypeProtobuf},
		{corev1.SchemeGroupVersion.WithResource(Namespaces), func() runtime.Object { return &corev1.NamespaceList{} }, false, runtime.ContentTypeProtobuf},
		{networkingv1.SchemeGroupVersion.WithResource(NetworkPolicies), func() runtime.Object { return &networkingv1.NetworkPolicyList{} }, false, runtime.ContentTypeProtobuf},
		{schema.GroupVersion(policyv1alpha2.GroupVersion).WithResource(ClusterNetworkPolicies), func() runtime.Object { return &policyv1alpha2.ClusterNetworkPolicyList{} }, true, runtime.ContentTypeJSON},
	})
}

// ServiceSources is Sources for the kinds that services are made of. They are of a Mirror
// of their own: no pod waits for them.
func ServiceSources(config *rest.Config) (map[string]Source, error) {
	return sources(config, []servedResource{
		{networkingv1.SchemeGroupVersion.WithResource(ServiceCIDRs), func() runtime.Object { return &networkingv1.ServiceCIDRList{} }, true, runtime.ContentTypeProtobuf},
		{corev1.SchemeGroupVersion.WithResource(Services), func() runtime.Object { return &corev1.ServiceList{} }, false, runtime.ContentTypeProtobuf},
		{discoveryv1.SchemeGroupVersion.WithResource(EndpointSlices), func() runtime.Object { return &discoveryv1.EndpointSliceList{} }, false, runtime.ContentTypeProtobuf},
		{corev1.SchemeGroupVersion.WithResource(Nodes), func() runtime.Object { return &corev1.NodeList{} }, false, runtime.ContentTypeProtobuf},
	})
}

// ObjectSources is Sources for Contiv's own objects, which an API server may lack.
func ObjectSources(config *rest.Config) (map[string]Source, error) {
	var all []servedResource
	for _, k := range objects.Kinds() {
		all = append(all, servedResource{objects.GroupVersion.WithResource(k.Plural), k.NewList, true, runtime.ContentTypeJSON})
	}
	return sources(config, all)
}

func sources(config *rest.Config, of []servedResource) (map[string]Source, error) {
	config = rest.CopyConfig(config)
	config.QPS = Unlimited // the API server limits lists of many pages
	config.Wrap(withoutRetryAfter)
	names, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	out := map[string]Source{}
	for _, k := range of {
		c := rest.CopyConfig(config)
		c.ContentType = k.format
		client, err := NewClient(c, k.resource.GroupVersion(), addTypes, Unlimited)
		if err != nil {
			return nil, err
		}
		out[k.resource.Resource] = &resource{
			name: k.resource.Resource, client: client, names: names.Resource(k.resource), empty: k.list, optional: k.optional,
		}
	}
	return out, nil
}

// addTypes registers all types that sources list.
func addTypes(to *runtime.Scheme) error {
	return errors.Join(corev1.AddToScheme(to), networkingv1.AddToScheme(to), discoveryv1.AddToScheme(to), policyv1alpha2.Install(to), objects.AddToScheme(to))
}

// resource is a Source: one resource of an API server.
type resource struct {
	name   string
	client rest.Interface
	names  metadata.Getter
	empty  func() runtime.Object
	// optional: an API server without the resource has none of its objects, and may
	// get it any time.
	optional bool

	mu     sync.Mutex
	absent chan struct{} // nil = it is there; closed when it was seen to come
}

// List lists a page.
func (r *resource) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list := r.empty()
	err := r.get(o).Do(ctx).Into(list)
	if r.setAbsent(err) {
		return r.empty(), nil
	}
	if err == nil {
		err = meta.EachListItem(list, func(item runtime.Object) error { Trim(item); return nil })
	}
	return list, err
}

func (r *resource) get(o metav1.ListOptions) *rest.Request {
	return r.client.Get().MaxRetries(0).Resource(r.name).VersionedParams(&o, metav1.ParameterCodec)
}

// Versions lists the metadata alone.
func (r *resource) Versions(ctx context.Context) (runtime.Object, error) {
	all, _, err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.names.List(ctx, o)
	}).List(ctx, metav1.ListOptions{})
	if r.optional && apierrors.IsNotFound(err) {
		return r.empty(), nil
	}
	if err == nil {
		r.noteAppeared() // a watch that waits for it ends now
	}
	return all, err
}

// setAbsent remembers whether the resource is absent, which the answer to a request tells.
func (r *resource) setAbsent(err error) (absent bool) {
	if !r.optional {
		return false
	}
	if !apierrors.IsNotFound(err) {
		if err == nil {
			r.noteAppeared()
		}
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.absent == nil {
		r.absent = make(chan struct{})
	}
	return true
}

func (r *resource) noteAppeared() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.absent != nil {
		close(r.absent)
		r.absent = nil
	}
}

// Watch watches from a resource version on. Of a resource that is absent the watch
// has nothing to tell, and ends as expired when it comes; one that went expires, so
// that the list after it says that there is nothing.
func (r *resource) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	r.mu.Lock()
	came := r.absent
	r.mu.Unlock()
	switch {
	case came != nil:
		return r.await(ctx, came), nil
	case r.optional && o.ResourceVersion == "": // it came since the list
		return nil, errGone
	}
	o.Watch = true
	w, err := once(ctx, r.get(o).Watch)
	if err != nil {
		if r.optional && apierrors.IsNotFound(err) {
			return nil, errGone
		}
		return nil, err
	}
	return drained{watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if e.Type != watch.Error {
			Trim(e.Object)
		}
		return e, true
	})}, nil
}

// await is the watch of a resource that is absent.
func (r *resource) await(ctx context.Context, came <-chan struct{}) watch.Interface {
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan watch.Event, 1)
	go func() {
		defer close(events)
		tick := time.NewTicker(appearEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-came:
				gone := apierrors.NewResourceExpired("the resource has come").ErrStatus
				events <- watch.Event{Type: watch.Error, Object: &gone} // the buffer has room for it
				return
			case <-tick.C:
				// What fails is asked again at the next tick; an API server that has it
				// closes came.
				if _, err := r.names.List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
					r.noteAppeared()
				}
			}
		}
	}()
	return &absentWatch{events: events, stop: cancel}
}

type absentWatch struct {
	events chan watch.Event
	stop   context.CancelFunc
}

func (a *absentWatch) Stop()                          { a.stop() }
func (a *absentWatch) ResultChan() <-chan watch.Event { return a.events }
