package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

const (
	servicePath = "/api/v1/services"
	slicePath   = "/apis/discovery.k8s.io/v1/endpointslices"
	nodePath    = "/api/v1/nodes"
	cidrPath    = "/apis/networking.k8s.io/v1/servicecidrs"
)

// whole are objects with all that a Trim takes.
func whole() map[string]metav1.Object {
	full := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: name, Namespace: "a", Labels: map[string]string{"l": "v"}, Annotations: map[string]string{"long": "text"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}}, OwnerReferences: []metav1.OwnerReference{{Name: "o"}}, GenerateName: name + "-",
		}
	}
	host, node, zone, t, f, port := "h", "n1", "z", true, false, int32(80)
	n := full("n1")
	n.Namespace = ""
	web := full("web")
	web.Annotations[corev1.AnnotationTopologyMode] = "Auto"
	web.Annotations["kubernetes.io/egress-bandwidth"], web.Annotations["kubernetes.io/ingress-bandwidth"] = "1M", "2M"
	return map[string]metav1.Object{
		servicePath: &corev1.Service{ObjectMeta: web, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}}},
		slicePath: &discoveryv1.EndpointSlice{
			ObjectMeta: full("web-x"), AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
			Endpoints: []discoveryv1.Endpoint{
				{
					Addresses: []string{"10.1.0.7", "10.1.0.8"}, Hostname: &host, NodeName: &node, Zone: &zone, Conditions: discoveryv1.EndpointConditions{Ready: &t, Terminating: &f},
					TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "a", Name: "web-1", UID: "u-1"}, DeprecatedTopology: map[string]string{"a": "b"},
					Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}}},
				},
				{Addresses: []string{"10.1.0.9"}, TargetRef: &corev1.ObjectReference{Kind: "Node", Name: "n1", UID: "u-2"}},
			},
		},
		nodePath: &corev1.Node{ObjectMeta: n, Spec: corev1.NodeSpec{PodCIDR: "10.1.0.0/24"}, Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.7.1"}}, Images: []corev1.ContainerImage{{Names: []string{"i"}}},
		}},
		cidrPath: &networkingv1.ServiceCIDR{ObjectMeta: n, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}},
	}
}

// TestServicesAreReadFromListAndWatch: of services, slices, nodes and ranges there is what is read, from
// a list as from a watch.
func TestServicesAreReadFromListAndWatch(t *testing.T) {
	s := &web{version: 10, objects: map[string][]metav1.Object{}, events: map[string][]watch.Event{}, absent: map[string]bool{cidrPath: true}, cut: make(chan struct{})}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	sources, err := ServiceSources(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	m := New(sources, func(string, Name, metav1.Object, metav1.Object) {})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	for path, o := range whole() {
		if path != cidrPath {
			s.change(path, watch.Added, o)
		}
	}
	if err := within(t, m, s.now(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	// An API server from before 1.33 has no ranges, and gets them by its upgrade.
	if n := len(m.All(ServiceCIDRs)); n != 0 {
		t.Errorf("%d ranges", n)
	}
	s.set(func() { s.absent = map[string]bool{} })
	for path, o := range whole() {
		o.SetName("late" + o.GetName())
		s.change(path, watch.Added, o)
	}
	if err := within(t, m, s.now(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{servicePath: Services, slicePath: EndpointSlices, nodePath: Nodes, cidrPath: ServiceCIDRs} {
		all := m.All(kind)
		if want := map[string]int{cidrPath: 1}[path]; want == 0 && len(all) != 2 || want == 1 && len(all) != 1 {
			t.Errorf("%d %s", len(all), kind)
		}
		for _, o := range all {
			want := whole()[path]
			want.SetName(o.GetName())
			want.SetUID(o.GetUID())
			want.SetResourceVersion(o.GetResourceVersion())
			obj, _ := want.(runtime.Object)
			Trim(obj)
			if fmt.Sprint(o) != fmt.Sprint(want) {
				t.Errorf("%s: %s, want %s", kind, o, want)
			}
		}
	}
	web, _ := m.Get(Services, Name{Namespace: "a", Name: "web"}).(*corev1.Service)
	slice, _ := m.Get(EndpointSlices, Name{Namespace: "a", Name: "lateweb-x"}).(*discoveryv1.EndpointSlice)
	node, _ := m.Get(Nodes, Name{Name: "n1"}).(*corev1.Node)
	if web == nil || web.Spec.Selector != nil || fmt.Sprint(web.Annotations) != "map[kubernetes.io/egress-bandwidth:1M kubernetes.io/ingress-bandwidth:2M service.kubernetes.io/topology-mode:Auto]" || web.Spec.ClusterIP != "10.96.0.1" || web.Labels["l"] != "v" {
		t.Errorf("the service %v", web)
	}
	if slice == nil || len(slice.Endpoints) != 2 || slice.OwnerReferences != nil || slice.Labels["l"] != "v" {
		t.Fatalf("the slice %v", slice)
	}
	e := slice.Endpoints[0]
	if len(e.Addresses) != 1 || e.Hostname != nil || *e.NodeName != "n1" || *e.Zone != "z" || !*e.Conditions.Ready || e.Conditions.Serving != nil || *e.Conditions.Terminating ||
		*e.TargetRef != (corev1.ObjectReference{Kind: "Pod", UID: "u-1"}) || e.DeprecatedTopology != nil || len(e.Hints.ForZones) != 1 || slice.Endpoints[1].TargetRef != nil {
		t.Errorf("the endpoint %v", e)
	}
	if node == nil || node.Spec.PodCIDR != "" || node.Status.Images != nil || len(node.Status.Addresses) != 1 {
		t.Errorf("the node %v", node)
	}
}
