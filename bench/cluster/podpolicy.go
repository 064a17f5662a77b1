package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// podPolicy measures the time from the API server's answer to a NetworkPolicy's creation
// or deletion until running traffic between two pods on two hosts shows it, with few and
// with many policies in their namespace.
func (b *bench) podPolicy(ctx context.Context) error {
	b.report.table("From the API server's answer to the last, or the first, packet (ms); datagrams every 0.2 ms across hosts", "data plane", "policies", "change", "times", "p50", "p99", "most")
	var misses []string
	for _, driver := range b.drivers() {
		m, err := b.podPolicyOn(ctx, driver)
		if err != nil {
			return fmt.Errorf("%s: %w", driver, err)
		}
		misses = append(misses, m...)
		if err := b.Close(); err != nil {
			return err
		}
	}
	b.report.misses(misses)
	return nil
}

func (b *bench) podPolicyOn(ctx context.Context, driver string) (misses []string, err error) {
	f, err := b.follow(ctx, "benchnetpol", driver)
	if err != nil {
		return nil, err
	}
	if err := f.namespace(ctx, "shop"); err != nil {
		return nil, err
	}
	var to netip.Addr
	for i := range 20 { // the two that speak, and others that policies select
		name := fmt.Sprint("o", i)
		switch i {
		case 0:
			name = "c"
		case 1:
			name = "s"
		}
		spec, err := f.pod(ctx, "shop", name, f.lab.Hosts()[i%2].Name, map[string]string{"app": fmt.Sprint("a", i), "name": name})
		if err != nil {
			return nil, err
		}
		a, err := f.lab.AddContainer(ctx, spec)
		if err != nil {
			return nil, err
		}
		if name == "s" {
			to = a.IPv4
		}
	}
	traffic, err := newFlood(f.lab, "s", netip.AddrPortFrom(to, trafficPort))
	if err != nil {
		return nil, err
	}
	defer traffic.stop()
	have := 0
	for _, policies := range []int{10, b.n(1000)} {
		if err := f.policies(ctx, have, policies); err != nil {
			return nil, err
		}
		have = policies
		closing, opening, err := b.turns(ctx, f, traffic, b.n(100))
		if err != nil {
			return nil, err
		}
		for _, r := range []struct {
			what string
			d    []time.Duration
		}{{"open: a policy that lets in is made", opening}, {"close: it is deleted", closing}} {
			p50, p99 := percentile(r.d, .5), percentile(r.d, .99)
			b.detail(fmt.Sprint(driver, " ", policies, " ", r.what), r.d)
			b.report.row(driver, policies, r.what, len(r.d), ms(p50), ms(p99), ms(percentile(r.d, 1)))
			if p50 > 10*time.Millisecond || p99 > 50*time.Millisecond {
				misses = append(misses, fmt.Sprintf("%s with %d policies, %s: p50 %s, p99 %s, wanted at most 10 and 50", driver, policies, r.what, ms(p50), ms(p99)))
			}
		}
	}
	return misses, nil
}

// turns closes and opens the way of the traffic, by a policy that lets it in, and
// returns what each took from the API server's answer on. The first turn, for which
// everything may have to settle, does not count.
func (b *bench) turns(ctx context.Context, f *followed, traffic *flood, n int) (closing, opening []time.Duration, err error) {
	policies := f.client.NetworkingV1().NetworkPolicies("shop")
	open := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "open"}}
	open.Spec.PodSelector.MatchLabels = map[string]string{"name": "s"}
	open.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "c"}}}},
		Ports: []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolUDP), Port: new(intstr.FromInt32(trafficPort))}},
	}}
	for i := range n + 1 {
		if _, err := policies.Create(ctx, open, metav1.CreateOptions{}); err != nil {
			return nil, nil, err
		}
		answered := time.Now()
		first, err := traffic.after(ctx, answered)
		if err != nil {
			return nil, nil, err
		}
		if err := traffic.flowing(ctx); err != nil {
			return nil, nil, err
		}
		if i > 0 {
			opening = append(opening, first.Sub(answered))
		}
		if err := policies.Delete(ctx, "open", metav1.DeleteOptions{}); err != nil {
			return nil, nil, err
		}
		answered = time.Now()
		last, err := traffic.waitIdle(ctx, 150*time.Millisecond)
		if err != nil {
			return nil, nil, err
		}
		if i > 0 {
			closing = append(closing, max(last.Sub(answered), 0))
		}
	}
	return closing, opening, nil
}

// trafficPort is where the datagrams go.
const trafficPort = 7000

// policies makes policies from the have-th on, each of which lets a pod in to another, and
// waits until netmaster has them all. Every 20th selects the server of the traffic, and
// none lets the traffic in.
func (f *followed) policies(ctx context.Context, have, want int) error {
	g, making := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := have; i < want; i++ {
		g.Go(func() error {
			p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}
			p.Spec.PodSelector.MatchLabels = map[string]string{"app": fmt.Sprint("a", 1+i%20)}
			p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
				From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("a", i%20)}}}},
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolUDP), Port: new(intstr.FromInt32(trafficPort + 1 + int32(i/20)))}},
			}}
			_, err := f.client.NetworkingV1().NetworkPolicies("shop").Create(making, p, metav1.CreateOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	c, err := f.lab.Masters.API()
	if err != nil {
		return err
	}
	defer c.Close()
	return testcluster.Until(ctx, "netmaster to have all policies", func(ctx context.Context) error {
		all, err := c.NetworkPolicies().List(ctx)
		if err == nil && len(all) < want {
			err = fmt.Errorf("%d of %d", len(all), want)
		}
		return err
	})
}
