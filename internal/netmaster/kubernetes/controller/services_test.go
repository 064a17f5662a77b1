package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	served "k8s.io/client-go/tools/cache/testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

type servicesLab struct {
	*lab
	services *Services
	balanced map[string]string // by service: the status that it is to have
}

func newServicesLab(t *testing.T, change func(*ServicesConfig)) *servicesLab {
	t.Helper()
	return newServicesLabOn(t, memory.New(), change)
}

func newServicesLabOn(t *testing.T, st *memory.Store, change func(*ServicesConfig)) *servicesLab {
	t.Helper()
	l := &servicesLab{lab: &lab{t: t, st: st, sources: map[string]*source{}}, balanced: map[string]string{}}
	l.ctrl = control.New(l.st, control.Options{})
	c := ServicesConfig{Control: l.ctrl, Sources: map[string]mirror.Source{}, Tell: func(r Report) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.reported = append(l.reported, fmt.Sprint(r.Kind, " ", r.Name, " ", r.Problems, " ", r.Err))
		if r.Balanced != nil {
			l.balanced[r.String()] = fmt.Sprint(*r.Balanced)
		}
	}}
	if change != nil {
		change(&c)
	}
	for _, kind := range serviceOrder {
		l.sources[kind] = &source{FakeControllerSource: served.NewFakeControllerSource()}
		c.Sources[kind] = l.sources[kind]
	}
	l.services = NewServices(c)
	return l
}

// lead follows and leads until the test's end, or the returned function is called.
func (l *servicesLab) lead(fence store.Fence) (stop func() error) {
	return l.start(func(ctx context.Context) error { return l.services.Lead(ctx, fence) })
}

func (l *servicesLab) rows() []string {
	l.t.Helper()
	v, err := l.ctrl.View(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	var out []string
	for _, s := range v.Kubernetes.ClusterServices() {
		out = append(out, fmt.Sprint("service ", s.Key.Name, " ", s.Addrs, s.Balanced, s.External, len(s.Ports)))
	}
	for _, s := range v.Kubernetes.ServiceSlices() {
		var at []string
		for _, b := range s.Backends {
			at = append(at, b.Addr.String()+string(b.State))
		}
		out = append(out, fmt.Sprint("slice ", s.Key, " of ", s.Service, " ", at))
	}
	for _, n := range v.Kubernetes.ClusterNodes() {
		out = append(out, fmt.Sprint("node ", n.Name, " ", n.Addrs))
	}
	if r := v.AddressOwners.ServiceRanges().Ranges; len(r) > 0 {
		out = append(out, fmt.Sprint("ranges ", r))
	}
	for _, k := range v.AddressOwners.BalancedServices() {
		out = append(out, fmt.Sprint("pool ", k, " ", v.AddressOwners.BalancedAddrs(k)))
	}
	slices.Sort(out)
	return out
}

func (l *servicesLab) want(rows ...string) {
	l.t.Helper()
	slices.Sort(rows)
	var got []string
	l.until(func() bool { got = l.rows(); return slices.Equal(got, rows) }, func() string {
		return "rows\n" + strings.Join(got, "\n") + "\nwant\n" + strings.Join(rows, "\n")
	})
}

func (l *servicesLab) until(holds func() bool, what func() string) {
	l.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(end) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.t.Fatalf("%s\ntold %v", what(), l.reported)
		}
	}
}

// tells waits until a report contains a part.
func (l *servicesLab) tells(part string) {
	l.t.Helper()
	l.until(func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.ContainsFunc(l.reported, func(s string) bool { return strings.Contains(s, part) })
	}, func() string { return "nobody is told " + part })
}

func (l *servicesLab) network(key, subnet string) {
	l.t.Helper()
	k, err := model.ParseNetworkKey(key)
	if err != nil {
		l.t.Fatal(err)
	}
	valid, err := model.Check(model.Network{Key: k, Type: model.NetworkData, Encap: model.EncapVXLAN, Subnet: netip.MustParsePrefix(subnet)})
	if err == nil {
		_, err = l.ctrl.Put(context.Background(), control.Admin(), l.ctrl.Networks.ChangeNetwork(valid))
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func service(name, addr string, change ...func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: meta("ns", name, nil)}
	s.Spec.Type, s.Spec.ClusterIPs, s.Spec.Ports = corev1.ServiceTypeClusterIP, []string{addr}, []corev1.ServicePort{{Port: 80}}
	for _, f := range change {
		f(&s.Spec)
	}
	return s
}

func balancer(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer }

func endpointSlice(name, service string, addrs ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: meta("ns", name, map[string]string{discoveryv1.LabelServiceName: service}), AddressType: discoveryv1.AddressTypeIPv4}
	for _, a := range addrs {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

func node(name, addr string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: meta("", name, nil)}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}
	return n
}

func serviceCIDR(name, cidr string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: meta("", name, nil), Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}
}

// TestServicesAreWrittenToTheStore: services, slices, nodes and ranges that are created, changed and
// deleted have the same fate in the store. A change of one endpoint writes one row. The
// next leader deletes rows of objects that were deleted while there was no leader.
func TestServicesAreWrittenToTheStore(t *testing.T) {
	l := newServicesLab(t, func(c *ServicesConfig) {
		c.Ranges = []netip.Prefix{netip.MustParsePrefix("fd00:96::/112")}
		c.External = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	})
	l.start(l.ctrl.Run)
	l.start(l.services.Run)
	fence := l.leader()
	stop := l.lead(fence)
	const ranges, n1 = "ranges [10.96.0.0/16 fd00:96::/112]", "node n1 [192.168.7.1]"
	l.sources[mirror.ServiceCIDRs].Add(serviceCIDR("kubernetes", "10.96.0.0/16"))
	l.sources[mirror.Nodes].Add(node("n1", "192.168.7.1"))
	l.sources[mirror.Services].Add(service("web", "10.96.0.9"))
	l.sources[mirror.EndpointSlices].Add(endpointSlice("web-1", "web", "10.1.0.1", "10.1.0.2"))
	l.sources[mirror.EndpointSlices].Add(endpointSlice("web-2", "web", "10.1.0.3"))
	const web, web1, web2 = "service ns/web [10.96.0.9] [] [] 1", "slice ns/web-1 of web [10.1.0.1 10.1.0.2]", "slice ns/web-2 of web [10.1.0.3]"
	l.want(ranges, n1, web, web1, web2)

	before, err := l.ctrl.View(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	at := before.Revision()
	l.sources[mirror.EndpointSlices].Modify(endpointSlice("web-1", "web", "10.1.0.1"))
	l.want(ranges, n1, web, "slice ns/web-1 of web [10.1.0.1]", web2)
	if wrote := l.written(at); !slices.Equal(wrote, []string{"slice ns/web-1"}) {
		t.Errorf("one endpoint's end wrote %v", wrote)
	}

	// An external address that is a node's some time.
	l.sources[mirror.Services].Modify(service("web", "10.96.0.9", func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"203.0.113.7"} }))
	l.want(ranges, n1, "service ns/web [10.96.0.9] [] [203.0.113.7] 1", "slice ns/web-1 of web [10.1.0.1]", web2)
	l.sources[mirror.Nodes].Add(node("n2", "203.0.113.7"))
	l.want(ranges, n1, "node n2 [203.0.113.7]", web, "slice ns/web-1 of web [10.1.0.1]", web2)
	l.tells("is an address of node n2")
	if s := l.services.State(); len(s.Kinds) != 4 || s.Failed[mirror.Services] != 1 {
		t.Errorf("state %+v", s)
	}
	l.sources[mirror.Nodes].Delete(node("n2", ""))
	l.want(ranges, n1, "service ns/web [10.96.0.9] [] [203.0.113.7] 1", "slice ns/web-1 of web [10.1.0.1]", web2)

	// Headless from now on, and the slice another's.
	l.sources[mirror.Services].Modify(service("web", "None", func(s *corev1.ServiceSpec) { s.ClusterIP = "None" }))
	l.sources[mirror.EndpointSlices].Modify(endpointSlice("web-2", "other"))
	l.want(ranges, n1, "slice ns/web-1 of web [10.1.0.1]", "slice ns/web-2 of other []")

	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Lead: %v", err)
	}
	if s := l.services.State(); s.Failed != nil {
		t.Errorf("who does not lead knows of trouble: %+v", s)
	}
	l.sources[mirror.EndpointSlices].Delete(endpointSlice("web-1", "web"))
	l.sources[mirror.Nodes].Delete(node("n1", ""))
	l.sources[mirror.ServiceCIDRs].Delete(serviceCIDR("kubernetes", ""))
	l.want(ranges, n1, "slice ns/web-1 of web [10.1.0.1]", "slice ns/web-2 of other []")
	l.lead(fence)
	l.want("ranges [fd00:96::/112]", "slice ns/web-2 of other []")
	l.services.AddRanges([]netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}) // found out late
	l.want("ranges [10.97.0.0/16 fd00:96::/112]", "slice ns/web-2 of other []")
}

// written are the rows that were written after a revision.
func (l *servicesLab) written(after store.Revision) (out []string) {
	l.t.Helper()
	kvs, _, err := l.st.Range(context.Background(), "/contiv.io/state/global/")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, kv := range kvs {
		if kv.Mod > after {
			out = append(out, strings.NewReplacer("/contiv.io/state/global/serviceslices/", "slice ", "/contiv.io/state/global/", "").Replace(kv.Key))
		}
	}
	return out
}

// TestPoolAddressesFollowTheirServices: addresses of the pool are a service's while it is to have them: its
// row's and its status', and one that waits gets what another gives back.
func TestPoolAddressesFollowTheirServices(t *testing.T) {
	pool, err := model.ParseAddressPool("pool", []string{"203.0.113.1-203.0.113.2"})
	if err != nil {
		t.Fatal(err)
	}
	l := newServicesLab(t, func(c *ServicesConfig) { c.Pool = pool })
	l.start(l.ctrl.Run)
	l.start(l.services.Run)
	l.lead(l.leader())
	status := func(name, want string) {
		t.Helper()
		l.until(func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.balanced["ns/"+name] == want
		}, func() string { return "the status of " + name + " is " + l.balanced["ns/"+name] + ", want " + want })
	}
	l.sources[mirror.Services].Add(service("a", "10.96.0.1", balancer, func(s *corev1.ServiceSpec) { s.LoadBalancerIP = "203.0.113.2" }))
	status("a", "[203.0.113.2]")
	l.sources[mirror.Services].Add(service("b", "10.96.0.2", balancer))
	status("b", "[203.0.113.1]")
	const a, b = "service ns/a [10.96.0.1] [203.0.113.2] [] 1", "service ns/b [10.96.0.2] [203.0.113.1] [] 1"
	l.want(a, b, "pool ns/a [203.0.113.2]", "pool ns/b [203.0.113.1]")

	// No more, and others' class.
	l.sources[mirror.Services].Add(service("c", "10.96.0.3", balancer))
	other := "example.com/lb"
	l.sources[mirror.Services].Add(service("d", "10.96.0.4", balancer, func(s *corev1.ServiceSpec) { s.LoadBalancerClass = &other }))
	l.tells("the load balancers' pool has no free IPv4 address")
	l.want(a, b, "service ns/c [10.96.0.3] [] [] 1", "service ns/d [10.96.0.4] [] [] 1", "pool ns/a [203.0.113.2]", "pool ns/b [203.0.113.1]")
	status("c", "[]")
	if s, told := l.balanced["ns/d"]; told {
		t.Errorf("the status of another class' service is written: %s", s)
	}

	// A load balancer no more: another one gets the address.
	l.sources[mirror.Services].Modify(service("b", "10.96.0.2"))
	l.want(a, "service ns/b [10.96.0.2] [] [] 1", "service ns/c [10.96.0.3] [203.0.113.1] [] 1", "service ns/d [10.96.0.4] [] [] 1", "pool ns/a [203.0.113.2]", "pool ns/c [203.0.113.1]")
	status("c", "[203.0.113.1]")
	l.sources[mirror.Services].Delete(service("a", ""))
	l.sources[mirror.Services].Delete(service("c", ""))
	l.want("service ns/b [10.96.0.2] [] [] 1", "service ns/d [10.96.0.4] [] [] 1")

	// A network takes the addresses away.
	l.sources[mirror.Services].Add(service("e", "10.96.0.5", balancer))
	status("e", "[203.0.113.2]")
	l.network("default:late", "203.0.113.0/30")
	status("e", "[]")
	l.want("service ns/b [10.96.0.2] [] [] 1", "service ns/d [10.96.0.4] [] [] 1", "service ns/e [10.96.0.5] [] [] 1")
	l.sources[mirror.Services].Add(service("f", "203.0.113.1"))
	l.tells(`"203.0.113.1" lies in network default:late: it is not served`)
}

// TestFailingServiceDelaysNoOther: a row that no store takes holds up no other one, and who leads
// no more writes nothing.
func TestFailingServiceDelaysNoOther(t *testing.T) {
	l := newServicesLab(t, nil)
	l.start(l.ctrl.Run)
	l.start(l.services.Run)
	l.sources[mirror.Services].Add(service("NO NAME", "10.96.0.1"))
	l.sources[mirror.Services].Add(service("web", "10.96.0.2"))
	l.sources[mirror.EndpointSlices].Add(endpointSlice("..", "web"))
	l.sources[mirror.Nodes].Add(node("a b", "192.168.7.1"))
	fence := l.leader()
	gone := fence
	gone.Create++
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.services.Lead(ctx, gone); !errors.Is(err, store.ErrFenced) {
		t.Errorf("Lead: %v", err)
	}
	l.want()
	l.lead(fence)
	l.want("service ns/web [10.96.0.2] [] [] 1")
	l.tells(`services ns/NO NAME [] service "NO NAME"`)
	l.tells(`nodes /a b [] node "a b"`)
	l.tells(`endpointslices ns/..`)
}

// TestNetworksInServiceRangesAreReported: a network that lies in a range is reported there, and services with
// addresses in it are not served.
func TestNetworksInServiceRangesAreReported(t *testing.T) {
	l := newServicesLab(t, nil)
	l.start(l.ctrl.Run)
	l.network("default:old", "10.96.0.0/24")
	l.start(l.services.Run)
	l.lead(l.leader())
	l.sources[mirror.ServiceCIDRs].Add(serviceCIDR("kubernetes", "10.96.0.0/16"))
	l.sources[mirror.Services].Add(service("in", "10.96.0.1"))
	l.sources[mirror.Services].Add(service("out", "10.96.1.1"))
	l.want("ranges [10.96.0.0/16]", "service ns/in [] [] [] 1", "service ns/out [10.96.1.1] [] [] 1")
	l.tells("spec.cidrs: 10.96.0.0/16 overlaps 10.96.0.0/24 of network default:old: services with addresses there are not served")
}

// TestManyServicesStayBelowCommitLimits: rows of many namespaces and slices of many backends fit what any
// store takes in one commit, and all come.
func TestManyServicesStayBelowCommitLimits(t *testing.T) {
	l := newServicesLabOn(t, memory.NewWith(memory.Consul), nil)
	l.start(l.ctrl.Run)
	var rows []string
	for i := range 100 {
		s := service("web", netip.AddrFrom4([4]byte{10, 96, 1, byte(i)}).String())
		s.Namespace = fmt.Sprint("n", i)
		l.sources[mirror.Services].Add(s)
		x := endpointSlice("web-1", "web")
		x.Namespace = s.Namespace
		host, zone := "node-with-a-long-name.example.com", "zone"
		for j := range 10 * i {
			x.Endpoints = append(x.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{netip.AddrFrom4([4]byte{10, 1, byte(j >> 8), byte(j)}).String()}, NodeName: &host, Zone: &zone,
				TargetRef: &corev1.ObjectReference{Kind: "Pod", UID: "8f6d2c1a-0000-4000-8000-000000000000"},
			})
		}
		l.sources[mirror.EndpointSlices].Add(x)
		rows = append(rows, s.Namespace)
	}
	l.start(l.services.Run)
	fence := l.leader()
	l.lead(fence)
	l.until(func() bool {
		v, err := l.ctrl.View(context.Background())
		return err == nil && len(v.Kubernetes.ClusterServices()) == len(rows) && len(v.Kubernetes.ServiceSlices()) == len(rows)
	}, func() string { return "not all rows come" })
	v, err := l.ctrl.View(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if n := v.Revision() - fence.Create; n > 100 { // else what several rows are too much for was tried row by row
		t.Errorf("%d commits for 200 rows", n)
	}
}

// TestRefusedSliceDelaysNoOtherRow: a slice that the store refuses is reported, and the other rows of
// its batch are written.
func TestRefusedSliceDelaysNoOtherRow(t *testing.T) {
	l := newServicesLabOn(t, memory.NewWith(memory.Consul), nil)
	large := endpointSlice("large", "web")
	for i := range model.MaxSliceBackends {
		hints := &discoveryv1.EndpointHints{}
		for j := range model.MaxHints {
			hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: fmt.Sprint(j, strings.Repeat("z", 100))})
		}
		large.Endpoints = append(large.Endpoints, discoveryv1.Endpoint{Addresses: []string{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String()}, Hints: hints})
	}
	l.sources[mirror.EndpointSlices].Add(large)
	l.sources[mirror.EndpointSlices].Add(endpointSlice("a", "web"))
	l.sources[mirror.EndpointSlices].Add(endpointSlice("z", "web"))
	l.start(l.ctrl.Run)
	l.start(l.services.Run)
	l.lead(l.leader())
	l.want("slice ns/a of web []", "slice ns/z of web []")
	l.tells("endpointslices ns/large [] record services of Kubernetes: ")
}

// TestLeftoverPoolAddressesAreFreed: an address of the pool whose service is gone, since a leader
// ended in between, is free with the next one.
func TestLeftoverPoolAddressesAreFreed(t *testing.T) {
	pool, err := model.ParseAddressPool("pool", []string{"203.0.113.1"})
	if err != nil {
		t.Fatal(err)
	}
	l := newServicesLab(t, func(c *ServicesConfig) { c.Pool = pool })
	l.start(l.ctrl.Run)
	l.start(l.services.Run)
	fence := l.leader()
	if _, err := l.ctrl.Kubernetes.Balance(context.Background(), control.Leader(fence), control.PoolRequest{Service: model.ClusterServiceKey{Namespace: "ns", Name: "gone"}, Pool: pool, V4: true}); err != nil {
		t.Fatal(err)
	}
	l.want("pool ns/gone [203.0.113.1]")
	l.lead(fence)
	l.want()
}

// TestServicesBeyondLimitsAreReported: more than hosts hold is not kept, told, and kept when there is
// room; what is there may change.
func TestServicesBeyondLimitsAreReported(t *testing.T) {
	l := newServicesLab(t, nil)
	many := func(name, addr string, ports int) *corev1.Service {
		return service(name, addr, func(s *corev1.ServiceSpec) {
			s.Ports = nil
			for i := range ports {
				s.Ports = append(s.Ports, corev1.ServicePort{Port: int32(i + 1)})
			}
		})
	}
	const each = model.MaxClusterPorts
	var rows []string
	for i := range model.MaxServiceFrontends / each { // as many fronts as there may be
		name, addr := fmt.Sprintf("s%03d", i), netip.AddrFrom4([4]byte{10, 96, 1, byte(i)}).String()
		l.sources[mirror.Services].Add(many(name, addr, each))
		rows = append(rows, fmt.Sprintf("service ns/%s [%s] [] [] %d", name, addr, each))
	}
	l.start(l.ctrl.Run)
	l.start(l.services.Run)
	l.lead(l.leader())
	l.want(rows...)
	l.sources[mirror.Services].Add(many("more", "10.96.2.1", 1))
	l.tells("services ns/more [] ports: with 1 at its addresses all services would have 65537, more than a host's limit of 65536")
	l.sources[mirror.Services].Modify(many("s000", "10.96.3.1", each)) // another address
	rows[0] = fmt.Sprintf("service ns/s000 [10.96.3.1] [] [] %d", each)
	l.want(rows...)
	l.sources[mirror.Services].Modify(many("s000", "10.96.3.1", each-1))
	rows[0] = fmt.Sprintf("service ns/s000 [10.96.3.1] [] [] %d", each-1)
	l.want(append(rows, "service ns/more [10.96.2.1] [] [] 1")...)
}
