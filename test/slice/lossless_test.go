//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestChangesLoseNoAllowedPacket makes a hundred changes of labels, of policies and of
// services (with -full, each also 10 times a second for a minute) under pings every 2 ms that
// each of them leaves allowed, on one host and across hosts. Pings of another tenant, which no change concerns, tell what the
// machine loses by itself.
func TestChangesLoseNoAllowedPacket(t *testing.T) { on(t, len(both), both, changesLoseNothing) }

func changesLoseNothing(t *testing.T, driver string) {
	c := up(t, driver, "lossl", 2)
	for _, tenant := range []string{"blue", "quiet"} {
		c.netctl("tenant create "+tenant, "network create -t "+tenant+" -e vxlan -s 10.1.1.0/24 net")
	}
	client, server := map[string]string{"app": "client"}, map[string]string{"app": "server"}
	c.add(labelled("c", "h1", client), labelled("near", "h1", server), labelled("s", "h2", server),
		spec("qc", "h1", "quiet/net"), spec("qnear", "h1", "quiet/net"), spec("qs", "h2", "quiet/net"))
	c.policy("servers", "--label", "app=server", "--default-in", "deny", "--rule", "in allow app=client")
	c.policy("clients", "--label", "app=client", "--default-out", "deny", "--rule", "out allow app=server")
	c.netctl("service create -t blue -s net -l app=server -p 8000:7000:UDP --affinity off --ip 10.1.1.100 web")
	for _, name := range []string{"near", "s"} {
		stop, err := c.space(name).Reflect(t.Context(), ":7000")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	c.wants("c s icmp", testcluster.OK)
	c.wants("c near icmp", testcluster.OK)
	run := func(ctx context.Context, args ...string) error {
		_, err := c.Masters.Netctl(ctx, args...)
		return err
	}
	for name, change := range map[string]func(ctx context.Context, i int) error{
		"labels": func(ctx context.Context, i int) error {
			return c.relabel(ctx, []string{"c", "near", "s"}[i%3], map[string]string{"release": strconv.Itoa(i)})
		},
		"policies": func(ctx context.Context, i int) error {
			return run(ctx, "network-policy", "create", "--tenant", "blue", "--label", "app=server", "--default-in", "deny",
				"--rule", "in allow app=client", "--rule", fmt.Sprintf("in deny app=other tcp/%d", 1000+i), "servers")
		},
		"services": func(ctx context.Context, i int) error {
			if i%2 == 0 {
				return run(ctx, "service", "create", "-t", "blue", "-s", "net", "-l", "app=server", "-p", fmt.Sprintf("%d:80:TCP", 9000+i), "--ip", "10.1.1.101", "other")
			}
			return run(ctx, "service", "rm", "-t", "blue", "other")
		},
	} {
		paces := []changePace{{"20 a second", 100, 25}}
		if conformance.Full() {
			paces = []changePace{{"in a row", 100, 0}, {"10 a second for a minute", 600, 50}}
		}
		for _, p := range paces {
			t.Run(name+", "+p.name, func(t *testing.T) { c.losesOnly(t, driver, p, change) })
		}
	}
}

// changePace is how many changes are made, and how many pings of every 2 ms after the one before
// the next begins, at the earliest.
type changePace struct {
	name             string
	changes, between int
}

// losesOnly makes changes under pings, at a pace.
func (c *cluster) losesOnly(t *testing.T, driver string, at changePace, change func(ctx context.Context, i int) error) {
	const interval, rest = 2 * time.Millisecond, 500 // pings after the last change
	pings := map[string]*testcluster.Pinger{}
	begin := func(name string, p *testcluster.Pinger, err error) {
		if err != nil {
			t.Fatal(err)
		}
		pings[name] = p
		t.Cleanup(func() { _ = p.Stop() }) // stopped below, where nothing failed before
	}
	for name, ends := range map[string][2]string{"one host": {"c", "near"}, "two hosts": {"c", "s"}, "control, one host": {"qc", "qnear"}, "control, two hosts": {"qc", "qs"}} {
		p, err := c.space(ends[0]).StartPing(c.addr(ends[1], "4"), interval)
		begin(name, p, err)
	}
	p, err := c.space("c").StartDatagrams(netip.MustParseAddrPort("10.1.1.100:8000"), interval)
	begin("service", p, err)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	for name, p := range pings {
		if err := testcluster.Until(ctx, "the first answer, "+name, func(context.Context) error {
			if time.Since(p.Between(time.Time{}, time.Now()).Answered) > time.Second {
				return errors.New("none lately")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	sent := func(n int) error {
		return testcluster.Until(ctx, "pings", func(context.Context) error {
			if pings["one host"].Between(start, time.Now()).Sent < n {
				return errors.New("too few")
			}
			return nil
		})
	}
	for i := range at.changes {
		if err := errors.Join(sent(i*at.between), change(ctx, i)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d changes in %v", at.changes, time.Since(start).Round(time.Millisecond))
	if err := sent(pings["one host"].Between(start, time.Now()).Sent + rest); err != nil {
		t.Fatal(err)
	}
	stats := map[string]testcluster.PingStats{}
	for name, p := range pings {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		stats[name] = p.Between(start, time.Now())
		t.Logf("%s: %s", name, stats[name])
	}
	for _, name := range []string{"one host", "two hosts", "service"} {
		s, quiet := stats[name], stats["control, two hosts"]
		if near := stats["control, one host"]; near.Lost() > quiet.Lost() || name == "one host" {
			quiet = near
		}
		most, gap := quiet.Lost(), quiet.Gap
		if driver == testcluster.DriverOVS {
			most, gap = most+s.Sent/2000, max(gap, 20*time.Millisecond)
		}
		if s.Lost() > most || s.Gap > gap || s.Sent < max(at.changes*at.between, rest) {
			t.Errorf("%s: %s, want at most %d lost and no gap over %v", name, s, most, gap)
		}
	}
}

// relabel adds labels to a container of blue:net, as its runtime would.
func (c *cluster) relabel(ctx context.Context, name string, labels map[string]string) error {
	client := c.client()
	defer client.Close()
	_, err := client.UpdateEndpoint(ctx, api.UpdateEndpointRequest{
		Tenant: "blue", Network: "net", EndpointID: c.endpointOf(name), Event: api.EventStart, Labels: labels,
	})
	return err
}
