//go:build integration

package kube

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/kubetest"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

const (
	randomWorlds = 4   // on each data plane
	randomAsked  = 150 // connections in each
)

// TestPacketsPassAsTheJudgeSays: random policies over 30 pods in 6 namespaces on two hosts, written
// to an API server, let through what kubetest's judge says, in packets: on both data
// planes, one world after another on running pods, of which the labels change. The
// commit decides which; internal/netmaster/kubernetes/translate's TestRandomPoliciesMatchTheJudge holds 500 policies to the same judge.
func TestPacketsPassAsTheJudgeSays(t *testing.T) {
	for _, driver := range []string{testcluster.DriverEBPF, testcluster.DriverOVS} {
		t.Run(driver, func(t *testing.T) { randomPolicies(t, driver) })
	}
}

func randomPolicies(t *testing.T, driver string) {
	t.Helper()
	p := podsLab(t, "10.1.0.0/16", func(c *testcluster.Config) { c.Name, c.Hosts, c.Driver = "kuberandom", 2, driver })
	installCRD(t, p.config)
	g := kubetest.Random{Rand: rand.New(rand.NewPCG(conformance.Seed(), 14))}
	t.Logf("-seed %d repeats it", conformance.Seed())
	first := g.World()
	p.populate(first)
	asked, denied := 0, 0
	for n := range randomWorlds {
		w := first
		if n > 0 {
			w = g.World()
		}
		for len(w.Policies)+len(w.Cluster) == 0 {
			w = g.World()
		}
		for i := range w.Pods {
			w.Pods[i].Ports = first.Pods[i].Ports // a pod's ports are for its life
		}
		w = p.become(w)
		qs, want := p.questions(g, w)
		var wrong []string
		var settled bool
		for end := time.Now().Add(time.Minute); !settled && time.Now().Before(end); {
			wrong = nil
			for i, a := range p.AskAll(t.Context(), qs, time.Second) {
				if a.Err != nil {
					t.Fatal(a.Err)
				}
				if a.Verdict != want[i] {
					wrong = append(wrong, fmt.Sprintf("%s to %s, %s port %d: %s, want %s", qs[i].From, qs[i].To, qs[i].Proto, qs[i].Port, a.Verdict, want[i]))
				}
			}
			settled = len(wrong) == 0
		}
		if !settled {
			t.Errorf("world %d: %d of %d are wrong, such as\n%s\nunder\n%s", n, len(wrong), len(qs), strings.Join(wrong[:min(5, len(wrong))], "\n"), w)
		}
		for _, v := range want {
			asked++
			if v == testcluster.Denied {
				denied++
			}
		}
	}
	t.Logf("%d connections in %d worlds, of which %d were to be denied", asked, randomWorlds, denied)
	if denied == 0 || denied == asked {
		t.Errorf("%d of %d denied: the policies say nothing", denied, asked)
	}
}

// populate makes a world's namespaces and pods, and attaches these, half of them on each
// host, at the addresses that they have in the world.
func (p *pods) populate(w kubetest.World) {
	p.t.Helper()
	for name, labels := range w.Namespaces {
		makeNamespace(p.t, p.client, name, labels)
	}
	var g errgroup.Group
	g.SetLimit(4)
	for i, pod := range w.Pods {
		o := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Labels: pod.Labels, Annotations: map[string]string{"contiv.io/ipv4": pod.Addr.String()}},
			Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		for i, port := range pod.Ports { // one container has no two ports of a name
			o.Spec.Containers = append(o.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "i", Ports: []corev1.ContainerPort{port}})
		}
		o = ok[*corev1.Pod](p.t)(p.client.CoreV1().Pods(pod.Namespace).Create(p.t.Context(), o, metav1.CreateOptions{}))
		s := attachAs(pod.Namespace+"-"+pod.Name, o)
		s.Host = p.Hosts()[i%2].Name
		g.Go(func() error {
			if _, err := p.AddContainer(p.t.Context(), s); err != nil {
				return err
			}
			_, err := p.Serve(s.Name, "tcp/79", "tcp/80", "tcp/81", "udp/80", "udp/81")
			return err
		})
	}
	if err := g.Wait(); err != nil {
		p.t.Fatal(err)
	}
}

// become gives the API server a world's labels and policies, in place of all policies
// that were there, and returns the world as the API server took it.
func (p *pods) become(w kubetest.World) kubetest.World {
	p.t.Helper()
	ctx := p.t.Context()
	cluster := clusterPolicies(p.t, p.config)
	for name := range w.Namespaces {
		if err := p.client.NetworkingV1().NetworkPolicies(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := cluster.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		p.t.Fatal(err)
	}
	for name, labels := range w.Namespaces {
		ns := ok[*corev1.Namespace](p.t)(p.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}))
		ns.Labels = labels // the API server keeps the name's
		ok[*corev1.Namespace](p.t)(p.client.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{}))
	}
	for _, pod := range w.Pods {
		o := ok[*corev1.Pod](p.t)(p.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}))
		o.Labels = pod.Labels
		ok[*corev1.Pod](p.t)(p.client.CoreV1().Pods(pod.Namespace).Update(ctx, o, metav1.UpdateOptions{}))
	}
	taken := func(err error) bool {
		if err != nil && !apierrors.IsInvalid(err) {
			p.t.Fatal(err)
		}
		return err == nil
	}
	before := len(w.Policies) + len(w.Cluster)
	w.Policies = slices.DeleteFunc(slices.Clone(w.Policies), func(n *networkingv1.NetworkPolicy) bool {
		_, err := p.client.NetworkingV1().NetworkPolicies(n.Namespace).Create(ctx, n, metav1.CreateOptions{})
		return !taken(err)
	})
	w.Cluster = slices.DeleteFunc(slices.Clone(w.Cluster), func(n *policyv1beta1.ClusterNetworkPolicy) bool {
		_, invalid := cluster.offer(p.t, n)
		return invalid != nil
	})
	now := len(w.Policies) + len(w.Cluster)
	p.t.Logf("%d policies; %d more are not valid", now, before-now)
	return w
}

// questions are connections between a world's pods, with what the judge says of each.
func (p *pods) questions(g kubetest.Random, w kubetest.World) (qs []testcluster.Question, want []testcluster.Verdict) {
	for len(qs) < randomAsked {
		c := g.Connection(w)
		if c.From.Pod == nil || c.To.Pod == nil || c.From.Pod == c.To.Pod || c.Protocol == corev1.ProtocolSCTP || c.Port > 81 || c.Port == 79 && c.Protocol == corev1.ProtocolUDP {
			continue
		}
		name := func(o *kubetest.Pod) string { return o.Namespace + "-" + o.Name }
		qs = append(qs, testcluster.Question{From: name(c.From.Pod), To: name(c.To.Pod), Target: testcluster.Target{
			Proto: strings.ToLower(string(c.Protocol)), Addr: c.To.Addr, Port: uint16(c.Port),
		}})
		verdict := testcluster.Denied
		if w.Allowed(c) {
			verdict = testcluster.OK
		}
		want = append(want, verdict)
	}
	return qs, want
}
