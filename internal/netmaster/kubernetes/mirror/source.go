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
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

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
	earlier  []servedVersion // in which an API server may have it instead, of the same schema
}

// servedVersion is a version of a resource, and how its types are registered.
type servedVersion struct {
	version schema.GroupVersion
	add     func(*runtime.Scheme) error
}

// policyV1alpha2 is ClusterNetworkPolicy as network-policy-api before v0.3.0 has it.
var policyV1alpha2 = schema.GroupVersion{Group: policyv1beta1.GroupName, Version: "v1alpha2"}

func addPolicyV1alpha2(to *runtime.Scheme) error {
	to.AddKnownTypes(policyV1alpha2, &policyv1beta1.ClusterNetworkPolicy{}, &policyv1beta1.ClusterNetworkPolicyList{})
	metav1.AddToGroupVersion(to, policyV1alpha2)
	return nil
}

// Sources returns the sources of the kinds for policy: the API server of a configuration.
// It sends no request yet. It drops the parts of objects that no reader here needs (Trim).
func Sources(config *rest.Config) (map[string]Source, error) {
	return sources(config, []servedResource{
		{corev1.SchemeGroupVersion.WithResource(Pods), func() runtime.Object { return &corev1.PodList{} }, false, runtime.ContentTypeProtobuf, nil},
		{corev1.SchemeGroupVersion.WithResource(Namespaces), func() runtime.Object { return &corev1.NamespaceList{} }, false, runtime.ContentTypeProtobuf, nil},
		{networkingv1.SchemeGroupVersion.WithResource(NetworkPolicies), func() runtime.Object { return &networkingv1.NetworkPolicyList{} }, false, runtime.ContentTypeProtobuf, nil},
		{schema.GroupVersion(policyv1beta1.GroupVersion).WithResource(ClusterNetworkPolicies), func() runtime.Object { return &policyv1beta1.ClusterNetworkPolicyList{} }, true, runtime.ContentTypeJSON, []servedVersion{{policyV1alpha2, addPolicyV1alpha2}}},
	})
}

// ServiceSources is Sources for the kinds that services are made of. They are of a Mirror
// of their own: no pod waits for them.
func ServiceSources(config *rest.Config) (map[string]Source, error) {
	return sources(config, []servedResource{
		{networkingv1.SchemeGroupVersion.WithResource(ServiceCIDRs), func() runtime.Object { return &networkingv1.ServiceCIDRList{} }, true, runtime.ContentTypeProtobuf, nil},
		{corev1.SchemeGroupVersion.WithResource(Services), func() runtime.Object { return &corev1.ServiceList{} }, false, runtime.ContentTypeProtobuf, nil},
		{discoveryv1.SchemeGroupVersion.WithResource(EndpointSlices), func() runtime.Object { return &discoveryv1.EndpointSliceList{} }, false, runtime.ContentTypeProtobuf, nil},
		{corev1.SchemeGroupVersion.WithResource(Nodes), func() runtime.Object { return &corev1.NodeList{} }, false, runtime.ContentTypeProtobuf, nil},
	})
}

// ObjectSources is Sources for Contiv's own objects, which an API server may lack.
func ObjectSources(config *rest.Config) (map[string]Source, error) {
	var all []servedResource
	for _, k := range objects.Kinds() {
		all = append(all, servedResource{objects.GroupVersion.WithResource(k.Plural), k.NewList, true, runtime.ContentTypeJSON, nil})
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
		r := &resource{name: k.resource.Resource, empty: k.list, optional: k.optional}
		for _, v := range append([]servedVersion{{k.resource.GroupVersion(), addTypes}}, k.earlier...) {
			client, err := NewClient(c, v.version, v.add, Unlimited)
			if err != nil {
				return nil, err
			}
			r.versions = append(r.versions, version{v.version, client, names.Resource(v.version.WithResource(r.name))})
		}
		out[r.name] = r
	}
	return out, nil
}

// addTypes registers all types that sources list.
func addTypes(to *runtime.Scheme) error {
	return errors.Join(corev1.AddToScheme(to), networkingv1.AddToScheme(to), discoveryv1.AddToScheme(to), policyv1beta1.Install(to), objects.AddToScheme(to))
}

// version is a resource in one of the versions in which API servers have it.
type version struct {
	group  schema.GroupVersion
	client rest.Interface
	names  metadata.Getter
}

// resource is a Source: one resource of an API server.
type resource struct {
	name     string
	versions []version
	empty    func() runtime.Object
	// optional: an API server without the resource has none of its objects, and may
	// get it any time.
	optional bool

	mu     sync.Mutex
	at     int           // of versions, the one that the API server had last
	absent chan struct{} // nil = it is there; closed when it was seen to come
}

// List lists a page.
func (r *resource) List(ctx context.Context, o metav1.ListOptions) (list runtime.Object, err error) {
	err = r.inVersion(func(v version) error {
		list = r.empty()
		if err := v.get(r.name, o).Do(ctx).Into(list); err != nil {
			return err
		}
		return meta.EachListItem(list, func(item runtime.Object) error { r.trim(item, v); return nil })
	})
	if r.setAbsent(err) {
		return r.empty(), nil
	}
	return list, err
}

// inVersion makes a request in the version that the API server had last, and in the others
// while it has not that one.
func (r *resource) inVersion(request func(version) error) (err error) {
	r.mu.Lock()
	first := r.at
	r.mu.Unlock()
	for i := range r.versions {
		at := (first + i) % len(r.versions)
		if err = request(r.versions[at]); err == nil {
			r.mu.Lock()
			r.at = at
			r.mu.Unlock()
		}
		if !apierrors.IsNotFound(err) {
			break
		}
	}
	return err
}

// trim drops parts of an object, and says in which version it came, where there are several.
func (r *resource) trim(o runtime.Object, v version) {
	if len(r.versions) > 1 {
		kind := o.GetObjectKind()
		kind.SetGroupVersionKind(v.group.WithKind(kind.GroupVersionKind().Kind))
	}
	Trim(o)
}

func (v version) get(name string, o metav1.ListOptions) *rest.Request {
	return v.client.Get().MaxRetries(0).Resource(name).VersionedParams(&o, metav1.ParameterCodec)
}

// Versions lists the metadata alone.
func (r *resource) Versions(ctx context.Context) (runtime.Object, error) {
	var all runtime.Object
	err := r.inVersion(func(v version) (err error) {
		all, _, err = pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return v.names.List(ctx, o)
		}).List(ctx, metav1.ListOptions{})
		return err
	})
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
	came, v := r.absent, r.versions[r.at]
	r.mu.Unlock()
	switch {
	case came != nil:
		return r.await(ctx, came), nil
	case r.optional && o.ResourceVersion == "": // it came since the list
		return nil, errGone
	}
	o.Watch = true
	w, err := once(ctx, v.get(r.name, o).Watch)
	if err != nil {
		if r.optional && apierrors.IsNotFound(err) {
			return nil, errGone
		}
		return nil, err
	}
	return drained{watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if e.Type != watch.Error {
			r.trim(e.Object, v)
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
				if err := r.inVersion(func(v version) error {
					_, err := v.names.List(ctx, metav1.ListOptions{Limit: 1})
					return err
				}); err == nil {
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
