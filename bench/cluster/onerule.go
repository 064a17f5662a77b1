package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// oneRuleSizes are how many rules the policies have of which one rule changes, and
// oneRuleLimit is what the larger may take of the smaller's time.
var oneRuleSizes = [2]int{10, 10_000}

const oneRuleLimit = 2

// oneRulePeers are whom the rule is about that changes: a group, and a range that holds those
// of all other rules.
var oneRulePeers = []struct {
	name string
	peer api.NetworkPolicyPeer
}{
	{"of a group", api.NetworkPolicyPeer{Selector: &api.Selector{Group: "clients"}}},
	{"of a range over all others", api.NetworkPolicyPeer{CIDR: "10.0.0.0/8"}},
}

// oneRuleOther is the rule of a number beside the one that changes: ranges of addresses lie
// inside one another, and ports overlap.
func oneRuleOther(n int) api.NetworkPolicyRule {
	addr := netip.AddrFrom4([4]byte{10, byte(100 + n/250), byte(n % 250), 0})
	return api.NetworkPolicyRule{
		RuleID: fmt.Sprintf("r%05d", n), Direction: "in", Action: "allow",
		Peers: []api.NetworkPolicyPeer{{CIDR: netip.PrefixFrom(addr, 16+n%17).Masked().String()}},
		Ports: []api.NetworkPolicyPort{{Protocol: "tcp", Ports: fmt.Sprintf("%d-%d", 1000+n, 1100+n)}},
	}
}

// oneRule measures the time from the call that adds, or deletes, one rule of a network policy
// to its effect on running traffic between two hosts, in a small and in a large policy.
func (b *bench) oneRule(ctx context.Context) error {
	var missed []string
	for _, driver := range b.drivers() {
		some, err := b.oneRuleOn(ctx, driver)
		if err := errors.Join(err, b.Close()); err != nil {
			return fmt.Errorf("driver %s: %w", driver, err)
		}
		missed = append(missed, some...)
	}
	b.report.misses(missed)
	return nil
}

func (b *bench) oneRuleOn(ctx context.Context, driver string) (missed []string, err error) {
	l, err := b.lab(ctx, testcluster.Config{Name: "benchone", Hosts: 2, Driver: driver})
	if err != nil {
		return nil, err
	}
	c, err := l.Masters.API()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := rig.Netctl(ctx, l, "tenant create t", "network create -t t -e vxlan -s 10.1.1.0/24 net", "group create -t t net clients", "group create -t t net small", "group create -t t net large"); err != nil {
		return nil, err
	}
	groups := [2]string{"small", "large"}
	var to [2]netip.AddrPort
	for i, g := range groups {
		a, err := l.AddContainer(ctx, testcluster.ContainerSpec{Name: g, Host: "h2", Tenant: "t", Network: "net", Group: g})
		if err != nil {
			return nil, err
		}
		to[i] = netip.AddrPortFrom(a.IPv4, 7000)
		p := api.NetworkPolicy{TenantName: "t", NetworkPolicyName: g, Applies: &api.Selector{Group: g}}
		for n := range oneRuleSizes[i] {
			p.Rules = append(p.Rules, oneRuleOther(n))
		}
		if _, err := c.NetworkPolicies().Update(ctx, p); err != nil {
			return nil, err
		}
	}
	if _, err := l.AddContainer(ctx, testcluster.ContainerSpec{Name: "c", Host: "h1", Tenant: "t", Network: "net", Group: "clients"}); err != nil {
		return nil, err
	}
	for _, about := range oneRulePeers {
		some, err := b.oneRuleTurns(ctx, l, c, driver+", a rule "+about.name, about.peer, groups, to)
		if err != nil {
			return nil, err
		}
		missed = append(missed, some...)
	}
	return missed, nil
}

// oneRuleTurns changes the rule about a peer in both policies in turn.
func (b *bench) oneRuleTurns(ctx context.Context, l *testcluster.Lab, c *api.Client, what string, peer api.NetworkPolicyPeer, policies [2]string, to [2]netip.AddrPort) (missed []string, err error) {
	// What each step took, in ms, by step and policy.
	steps := []string{"close: the last packet", "of which the call", "open: the first packet", "of which the call"}
	found := make([][2][]float64, len(steps))
	for turn := range b.n(40) + 1 {
		for k := range policies {
			i := (k + turn) % len(policies)
			took, err := changeOneRule(ctx, l, c, policies[i], peer, to[i])
			if err != nil {
				return nil, fmt.Errorf("policy %s: %w", policies[i], err)
			}
			for s, d := range took {
				if turn > 0 { // the first makes connections
					found[s][i] = append(found[s][i], float64(d.Microseconds())/1000)
				}
			}
		}
	}
	b.report.table(fmt.Sprintf("Driver %s: ms, medians and 90th percentiles of %d turns; the ratio is the median of the turns', with its 95 %% interval", what, len(found[0][0])),
		"step", fmt.Sprintf("%d rules", oneRuleSizes[0]), "p90", fmt.Sprintf("%d rules", oneRuleSizes[1]), "p90", "ratio")
	for s, name := range steps {
		r := stats.Compare(found[s][1], found[s][0])
		cells := []any{name}
		for i := range policies {
			sorted := slices.Sorted(slices.Values(found[s][i]))
			cells = append(cells, fmt.Sprintf("%.1f", stats.Median(sorted)), fmt.Sprintf("%.1f", sorted[len(sorted)*9/10]))
		}
		b.report.row(append(cells, r)...)
		if r.Median > oneRuleLimit {
			missed = append(missed, fmt.Sprintf("%s on %s: %s, wanted at most %d", name, what, r, oneRuleLimit))
		}
	}
	return missed, nil
}

// changeOneRule adds a rule that closes and deletes it, and returns what the steps took.
func changeOneRule(ctx context.Context, l *testcluster.Lab, c *api.Client, policy string, peer api.NetworkPolicyPeer, to netip.AddrPort) (took []time.Duration, err error) {
	f, err := newFlood(l, policy, to)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if err := f.flowing(ctx); err != nil {
		return nil, err
	}
	deny := api.NetworkPolicyRule{
		RuleID: "one", Direction: "in", Action: "deny", Priority: 100,
		Peers: []api.NetworkPolicyPeer{peer}, Ports: []api.NetworkPolicyPort{{Protocol: "udp", Ports: "7000"}},
	}
	start := time.Now()
	if _, err := c.PutNetworkPolicyRule(ctx, "t:"+policy, deny); err != nil {
		return nil, err
	}
	call := time.Since(start)
	last, err := f.waitIdle(ctx, 300*time.Millisecond)
	if err != nil {
		return nil, err
	}
	took = append(took, max(last.Sub(start), time.Microsecond), call)
	start = time.Now()
	if err := c.DeleteNetworkPolicyRule(ctx, "t:"+policy, "one"); err != nil {
		return nil, err
	}
	call = time.Since(start)
	first, err := f.after(ctx, start)
	return append(took, first.Sub(start), call), err
}
