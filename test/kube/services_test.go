//go:build integration

package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
)

// makeService makes a service of the pods app=web with a port.
func makeService(t *testing.T, client kubernetes.Interface, namespace, name string, change func(*corev1.ServiceSpec)) *corev1.Service {
	t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.Selector = map[string]string{"app": "web"}
	s.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	if change != nil {
		change(&s.Spec)
	}
	return ok[*corev1.Service](t)(client.CoreV1().Services(namespace).Create(t.Context(), s, metav1.CreateOptions{}))
}

// Services, the slices that Kubernetes' controllers make of ready pods, nodes, ranges and
// the addresses of load balancers, with a netmaster that may what the manifest says.
func TestServicesAndSlicesReachTheStore(t *testing.T) {
	c, client := control(t)
	ctx := t.Context()
	if err := c.Schedule(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, "there is kube-system", func() bool {
		_, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		return err == nil
	})
	admin := config(t, c)
	allow(t, admin)
	installCRD(t, admin)
	file := asNetmaster(t, client, admin)
	master, address := netmaster(t, "--kubeconfig", file, "--load-balancer-pool", "203.0.113.0/29", "--external-ip-ranges", "198.51.100.0/24")

	// The API server's own service, and the range that its address is of.
	until(t, "the service kubernetes", func() bool {
		s, err := master.ClusterService(ctx, "default", "kubernetes")
		return err == nil && slices.Equal(s.Addresses, []string{"10.96.0.1"}) && s.Owner == "kubernetes"
	})
	_, err := master.Networks().Create(ctx, api.Network{TenantName: "default", NetworkName: "n", Encap: "vxlan", Subnet: "10.96.5.0/24", Gateway: "10.96.5.1"})
	if !api.IsConflict(err) || !strings.Contains(err.Error(), "overlaps 10.96.0.0/16") {
		t.Errorf("a network in the services' range: %v", err)
	}
	until(t, "netmaster follows all kinds", func() bool {
		text := ready(ctx, address)
		return strings.HasPrefix(text, "ok\n") && !strings.Contains(text, "kubernetes")
	})

	// A load balancer gets an address, and a pod that is ready, and is not, and is again.
	now := metav1.Now()
	node := ok[*corev1.Node](t)(client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"topology.kubernetes.io/zone": "z"}}}, metav1.CreateOptions{}))
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.7.1"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now}}
	ok[*corev1.Node](t)(client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}))
	makeNamespace(t, client, "shop", nil)
	makeService(t, client, "shop", "web", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalIPs = corev1.ServiceTypeLoadBalancer, []string{"198.51.100.9", "192.168.7.1", "203.0.113.77"}
		s.SessionAffinity, s.ExternalTrafficPolicy = corev1.ServiceAffinityClientIP, corev1.ServiceExternalTrafficPolicyLocal
	})
	status := func(name string) (out []string) {
		for _, in := range ok[*corev1.Service](t)(client.CoreV1().Services("shop").Get(ctx, name, metav1.GetOptions{})).Status.LoadBalancer.Ingress {
			out = append(out, in.IP)
		}
		return out
	}
	until(t, "the load balancer's address", func() bool { return slices.Equal(status("web"), []string{"203.0.113.1"}) })
	is := func(what string, holds func(api.ClusterService) bool) {
		t.Helper()
		until(t, what, func() bool {
			s, err := master.ClusterService(ctx, "shop", "web")
			return err == nil && holds(s)
		})
	}
	is("the service", func(s api.ClusterService) bool {
		return slices.Equal(s.Balanced, []string{"203.0.113.1"}) && slices.Equal(s.External, []string{"198.51.100.9"}) && s.Affinity == "3h" &&
			s.ExternalPolicy == "local" && s.HealthPort > 0 && len(s.Ports) == 1 && s.Ports[0].NodePort > 0
	})
	until(t, "an event of the addresses that are not served", func() bool {
		list := ok[*eventsv1.EventList](t)(client.EventsV1().Events("shop").List(ctx, metav1.ListOptions{}))
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Kind == "Service" && e.Regarding.Name == "web" && e.Reason == "NotAsWritten" &&
				strings.Contains(e.Note, `"192.168.7.1" is an address of node n1`) && strings.Contains(e.Note, `"203.0.113.77" is not inside`)
		})
	})
	pod := ok[*corev1.Pod](t)(makePod(ctx, client, "shop", "web-1"))
	set := func(condition corev1.ConditionStatus) {
		t.Helper()
		p := pod.DeepCopy()
		p.ResourceVersion = ""
		p.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.1.0.7", PodIPs: []corev1.PodIP{{IP: "10.1.0.7"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: condition, LastTransitionTime: now}},
		}
		ok[*corev1.Pod](t)(client.CoreV1().Pods("shop").UpdateStatus(ctx, p, metav1.UpdateOptions{}))
	}
	set(corev1.ConditionTrue)
	is("a backend", func(s api.ClusterService) bool {
		return s.Ready == 1 && s.All == 1 && s.Backends[0].Address == "10.1.0.7" && s.Backends[0].Pod == string(pod.UID) && s.Backends[0].Node == "n1" && s.Backends[0].Zone == "z"
	})
	set(corev1.ConditionFalse)
	is("a backend that is not ready", func(s api.ClusterService) bool { return s.Ready == 0 && s.All == 1 && s.Backends[0].State == "unready" })
	set(corev1.ConditionTrue)
	is("the backend again", func(s api.ClusterService) bool { return s.Ready == 1 })

	// Another class is left alone; what somebody takes from a status comes back.
	class := "example.com/lb"
	makeService(t, client, "shop", "other", func(s *corev1.ServiceSpec) {
		s.Type, s.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, &class
	})
	empty := []byte(`{"status":{"loadBalancer":{"ingress":[]}}}`)
	ok[*corev1.Service](t)(client.CoreV1().Services("shop").Patch(ctx, "web", types.MergePatchType, empty, metav1.PatchOptions{}, "status"))
	until(t, "the address is in the status again", func() bool { return slices.Equal(status("web"), []string{"203.0.113.1"}) })
	if got := status("other"); got != nil {
		t.Errorf("another class' service has %v", got)
	}

	// No load balancer any more; then it is gone.
	ok[*corev1.Service](t)(client.CoreV1().Services("shop").Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"type":"ClusterIP","externalIPs":null,"externalTrafficPolicy":null}}`), metav1.PatchOptions{}))
	is("no load balancer", func(s api.ClusterService) bool {
		return s.Balanced == nil && s.External == nil && s.Ports[0].NodePort == 0
	})
	until(t, "no address in the status", func() bool { return status("web") == nil })
	if err := client.CoreV1().Services("shop").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the service is gone", func() bool {
		_, err := master.ClusterService(ctx, "shop", "web")
		return api.IsNotFound(err)
	})

	// A second range, which an administrator adds.
	ok[*networkingv1.ServiceCIDR](t)(client.NetworkingV1().ServiceCIDRs().Create(ctx, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.112.0.0/20"}},
	}, metav1.CreateOptions{}))
	until(t, "the second range", func() bool {
		_, err := master.Networks().Create(ctx, api.Network{TenantName: "default", NetworkName: "m", Encap: "vxlan", Subnet: "10.112.5.0/24", Gateway: "10.112.5.1"})
		if err == nil {
			err = master.Networks().Delete(ctx, "default:m")
			return err != nil // it may be gone already
		}
		return strings.Contains(err.Error(), "overlaps 10.112.0.0/20")
	})
}

// The mirror of services says that it lags while its line is cut, and has what changed
// meanwhile when it is not.
func TestLaggingServiceMirrorCatchesUp(t *testing.T) {
	c, client := control(t)
	l := &line{}
	admin := rest.CopyConfig(config(t, c))
	admin.Dial = l.dial
	sources := ok[map[string]mirror.Source](t)(mirror.ServiceSources(admin))
	m := mirror.New(sources, func(string, mirror.Name, metav1.Object, metav1.Object) {})
	background(t, m.Run)
	makeNamespace(t, client, "shop", nil)
	web := makeService(t, client, "shop", "web", nil)
	reaches(t, m, web.ResourceVersion, patience)
	got, _ := m.Get(mirror.Services, mirror.Name{Namespace: "shop", Name: "web"}).(*corev1.Service)
	if got == nil || got.Spec.ClusterIP != web.Spec.ClusterIP || got.Spec.Selector != nil || got.ManagedFields != nil {
		t.Errorf("the mirror has %v", got)
	}
	l.set(true)
	if err := client.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	late := makeService(t, client, "shop", "late", nil)
	lags(t, m, late.ResourceVersion, 2*time.Second, "services")
	if m.Get(mirror.Services, mirror.Name{Namespace: "shop", Name: "web"}) == nil {
		t.Error("what is not known is taken for gone")
	}
	l.set(false)
	reaches(t, m, late.ResourceVersion, patience)
	if m.Get(mirror.Services, mirror.Name{Namespace: "shop", Name: "web"}) != nil || m.Get(mirror.Services, mirror.Name{Namespace: "shop", Name: "late"}) == nil {
		t.Error("the mirror has not what there is")
	}
}

// 5,000 services of 10 endpoints each: what room they take in a mirror, how long a list
// takes, and how long a netmaster needs until the store has them. The figures are
// logged; the bounds are far beyond them.
func TestManyServicesReachTheStoreInTime(t *testing.T) {
	const services, endpoints, namespaces = 5000, 10, 50
	c, client := control(t)
	ctx := t.Context()
	fast := ok[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config(t, c)))
	for i := range namespaces {
		makeNamespace(t, client, fmt.Sprint("ns", i), nil)
	}
	began := time.Now()
	var g errgroup.Group
	g.SetLimit(32)
	for i := range services {
		g.Go(func() error {
			return makeServed(ctx, fast, fmt.Sprint("ns", i%namespaces), fmt.Sprint("s", i), i, endpoints)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("made %d services and slices of %d endpoints in %v", services, endpoints, time.Since(began).Round(time.Millisecond))

	before := heap()
	began = time.Now()
	m := mirror.New(ok[map[string]mirror.Source](t)(mirror.ServiceSources(config(t, c))), func(string, mirror.Name, metav1.Object, metav1.Object) {})
	background(t, m.Run)
	if err := m.AwaitLists(ctx); err != nil {
		t.Fatal(err)
	}
	listed := time.Since(began)
	room := heap() - before
	if n, k := len(m.All(mirror.Services)), len(m.All(mirror.EndpointSlices)); n < services || k < services {
		t.Fatalf("%d services and %d slices", n, k)
	}
	t.Logf("listed in %v; %.1f MB: %d bytes a service with %d endpoints", listed.Round(time.Millisecond), float64(room)/1e6, room/services, endpoints)

	admin := config(t, c)
	until(t, "there is kube-system", func() bool {
		_, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		return err == nil
	})
	allow(t, admin)
	installCRD(t, admin)
	file := asNetmaster(t, client, admin)
	began = time.Now()
	master, _ := netmaster(t, "--kubeconfig", file)
	until(t, "the store has all services and backends", func() bool {
		<-time.After(300 * time.Millisecond) // the answer is long
		all, err := master.ClusterServices(ctx)
		n := 0
		for _, s := range all {
			n += s.All
		}
		return err == nil && len(all) > services && n >= services*endpoints
	})
	stood := time.Since(began)
	began = time.Now()
	if err := makeServed(ctx, fast, "ns0", "late", services, endpoints); err != nil {
		t.Fatal(err)
	}
	made := time.Since(began)
	until(t, "the late service is there", func() bool {
		s, err := master.ClusterService(ctx, "ns0", "late")
		return err == nil && s.All == endpoints
	})
	t.Logf("netmaster has them %v after its build and start; one more, made in %v, %v after that began", stood.Round(time.Millisecond), made.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if room > services*endpoints*5000 || listed > time.Minute {
		t.Errorf("%d bytes, listed in %v", room, listed)
	}
}

// makeServed makes a service and a slice as the controllers make them.
func makeServed(ctx context.Context, client kubernetes.Interface, namespace, name string, n, endpoints int) error {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}}
	s.Spec.Selector, s.Spec.Ports = map[string]string{"app": name}, []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "metrics", Port: 9090}}
	if _, err := client.CoreV1().Services(namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
		return err
	}
	x := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name + "-x7k2p", Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4}
	http, metrics, port, port2, yes, no := "http", "metrics", int32(8080), int32(9090), true, false
	x.Ports = []discoveryv1.EndpointPort{{Name: &http, Port: &port}, {Name: &metrics, Port: &port2}}
	for i := range endpoints {
		at, node, zone := n*endpoints+i, fmt.Sprint("node-", i%100), fmt.Sprint("zone-", i%3)
		x.Endpoints = append(x.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+at>>16, at>>8&255, at&255)}, NodeName: &node, Zone: &zone,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: fmt.Sprint(name, "-5b8c9d-", i), UID: types.UID(fmt.Sprintf("8f6d2c1a-0000-4000-8000-%012d", at))},
		})
	}
	_, err := client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, x, metav1.CreateOptions{})
	return err
}
