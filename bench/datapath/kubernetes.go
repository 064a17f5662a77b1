package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// How many services of Kubernetes there are, and the backends of each.
const manyClusterServices, backendsOfEach = 5000, 3

// kubeRig is an API server, a host with netplugin that serves what netmaster keeps of
// it, and hosts with a kube-proxy each, in its modes; on each of them pods with the same
// addresses, which are behind the same services.
type kubeRig struct {
	testbed
	client   *kubernetes.Clientset
	config   string
	services int
	pods     [fewProviders + 2]string // UIDs: a client, the providers, another client
	sides    []*side                  // ours first
}

// side is one of the service proxies that are compared.
type side struct {
	path
	host   *testcluster.Host
	mode   string  // of kube-proxy; "" = ours
	kernel float64 // MB of the kernel's memory that it is found to take
	asked  int     // how often its client has asked one service after the other
}

func (s *side) who() string {
	if s.mode == "" {
		return "netplugin on ebpf"
	}
	return "kube-proxy by " + s.mode
}

// kube makes everything but the services and the service proxies. The kubeconfig is in dir.
func (r testbed) kube(ctx context.Context, dir string) (k *kubeRig, err error) {
	k = &kubeRig{testbed: r, config: filepath.Join(dir, "kubeconfig")}
	c, client, err := cluster.Beside(ctx, r.Lab, dir)
	if err != nil {
		return nil, err
	}
	k.client = client
	r.OnClose(c.Close)
	for i, mode := range []string{"", "iptables", "nftables"} {
		s := &side{host: r.Lab.Hosts()[i], mode: mode}
		k.sides = append(k.sides, s)
		if mode != "" {
			if s.path, err = r.podsOf(ctx, s.host.NS); err != nil {
				return nil, err
			}
		}
	}
	if err := k.objects(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(r.Lab.Store.StartEtcd(ctx), r.Lab.Masters.StartMaster(ctx), k.sides[0].host.StartAgent(ctx)); err != nil {
		return nil, err
	}
	return k, k.attach(ctx)
}

// objects makes the nodes, the namespace and its pods.
func (k *kubeRig) objects(ctx context.Context) error {
	core := k.client.CoreV1()
	for _, h := range k.Lab.Hosts() {
		n, err := core.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.Name}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: h.Address.String()}}
		if _, err := core.Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if _, err := core.ServiceAccounts("shop").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range k.pods {
		p, err := core.Pods("shop").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: podName(i), Annotations: map[string]string{"contiv.io/ipv4": pod(i + 1).String()}},
			Spec:       corev1.PodSpec{NodeName: k.sides[0].host.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		k.pods[i] = string(p.UID)
	}
	return nil
}

func podName(i int) string { return "p" + strconv.Itoa(i) }

// attach attaches our pods.
func (k *kubeRig) attach(ctx context.Context) error {
	s := k.sides[0]
	for i, uid := range k.pods {
		if _, err := k.Lab.AddContainer(ctx, testcluster.ContainerSpec{Name: podName(i), Host: s.host.Name, Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", podName(i)}, {"K8S_POD_UID", uid},
		}}); err != nil {
			return err
		}
		ns, err := k.Lab.Space(podName(i))
		switch {
		case err != nil:
			return err
		case i == 0:
			s.client = ns
		case i <= fewProviders:
			s.servers = append(s.servers, ns)
		}
	}
	s.server = s.servers[0]
	return nil
}

// itself is the way to the providers without a service, from a client that asks none: a
// service's connection keeps its tuple for a while.
func (k *kubeRig) itself() (path, error) {
	p := k.sides[0].path
	p.name, p.addr = nameProvider, pod(2)
	for i := range fewProviders {
		p.each = append(p.each, pod(i+2))
	}
	var err error
	p.client, err = k.Lab.Space(podName(fewProviders + 1))
	return p, err
}

// clusterAddress returns the address of the i-th service of Kubernetes.
func clusterAddress(i int) netip.Addr { return clusterIP(i + 256) }

// create makes services, with a slice of backends each, until there are n.
func (k *kubeRig) create(ctx context.Context, n int) error {
	g, making := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for ; k.services < n; k.services++ {
		i := k.services
		g.Go(func() error { return k.service(making, i) })
	}
	return g.Wait()
}

// service makes the i-th service. It makes the endpoint slice first, so that a watcher that
// sees the service already has its backends.
func (k *kubeRig) service(ctx context.Context, i int) error {
	name := "s" + strconv.Itoa(i)
	x := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(port)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for j := range backendsOfEach {
		at := 1 + (i+j)%fewProviders
		x.Endpoints = append(x.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{pod(at + 1).String()}, NodeName: new(k.sides[0].host.Name), Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: podName(at), UID: types.UID(k.pods[at])},
		})
	}
	if _, err := k.client.DiscoveryV1().EndpointSlices("shop").Create(ctx, x, metav1.CreateOptions{}); err != nil {
		return err
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.ClusterIP, s.Spec.Ports = clusterAddress(i).String(), []corev1.ServicePort{{Port: port}}
	_, err := k.client.CoreV1().Services("shop").Create(ctx, s, metav1.CreateOptions{})
	return err
}

// start starts what serves on a side; it is not waited for.
func (k *kubeRig) start(s *side) error {
	if s.mode == "" {
		_, err := s.host.LaunchAgent()
		return err
	}
	_, err := s.host.Start("kube-proxy", nil, os.Getenv(cluster.Program), "kube-proxy", "--kubeconfig="+k.config, "--hostname-override="+s.host.Name, "--proxy-mode="+s.mode,
		"--cluster-cidr="+netip.PrefixFrom(pod(0), 16).Masked().String(),
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0", "--bind-address="+s.host.Address.String())
	return err
}

// process is what serves on a side.
func (s *side) process() *testcluster.Process {
	if s.mode == "" {
		return s.host.Agent()
	}
	return s.host.Process("kube-proxy")
}

// answers waits until a side's client has a connection to each of some services, and
// returns when the last had one. Connections are begun every 2 ms.
func (k *kubeRig) answers(ctx context.Context, s *side, services ...int) (time.Time, error) {
	servers, err := listen(s.path)
	if err != nil {
		return time.Time{}, err
	}
	defer servers.close()
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	var last time.Time
	for _, i := range services {
		to := netip.AddrPortFrom(clusterAddress(i), port).String()
		var first time.Time
		for first.IsZero() {
			if !s.process().Alive() {
				return last, fmt.Errorf("%s has ended:\n%s", s.process().Name, s.process().Tail(10))
			}
			if first, err = s.tries(ctx, to); err != nil {
				return last, err
			}
			last = first
		}
	}
	return last, nil
}

// tries begins connections for a while, and returns when the first was there.
func (s *side) tries(ctx context.Context, to string) (first time.Time, err error) {
	const each, wait, many = 2 * time.Millisecond, 200 * time.Millisecond, 50
	came := make(chan time.Time, many)
	g, dialing := errgroup.WithContext(ctx)
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		tick := time.NewTicker(each)
		defer tick.Stop()
		for range many {
			g.Go(func() error {
				if c, err := dialWithin(dialing, s.client, to, wait); err == nil { // else not yet
					came <- time.Now()
					return c.Close()
				}
				return nil
			})
			if len(came) > 0 {
				return
			}
			select {
			case <-tick.C:
			case <-dialing.Done():
				return
			}
		}
	}()
	<-stop
	err = errors.Join(g.Wait(), ctx.Err())
	close(came)
	for t := range came {
		if first.IsZero() || t.Before(first) {
			first = t
		}
	}
	return first, err
}

func dialWithin(ctx context.Context, ns *testcluster.Namespace, to string, wait time.Duration) (c net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return ns.Dial(ctx, "tcp4", to)
}
