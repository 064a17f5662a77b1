package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/api"
)

// clients is how many requests are under way at a time while a cluster is filled.
const clients = 16

// fill creates all that the sizes say by the API, before any agent is there.
func fill(ctx context.Context, c *api.Client, z sizes) error {
	steps := []struct {
		what string
		n    int
		do   func(context.Context, int) error
	}{
		{"tenants", z.Tenants, func(ctx context.Context, i int) error {
			_, err := c.Tenants().Create(ctx, api.Tenant{TenantName: "t" + strconv.Itoa(i)})
			return err
		}},
		{"networks", z.Networks, func(ctx context.Context, i int) error {
			_, err := c.Networks().Create(ctx, api.Network{TenantName: z.tenant(i), NetworkName: networkName(i), Encap: "vxlan", Subnet: z.subnet(i).String()})
			return err
		}},
		{"policies", z.Networks, func(ctx context.Context, i int) error {
			_, err := c.Policies().Create(ctx, api.Policy{TenantName: z.tenant(i), PolicyName: policyName(i)})
			return err
		}},
		{"groups", z.Networks, func(ctx context.Context, i int) error {
			_, err := c.EndpointGroups().Create(ctx, api.EndpointGroup{TenantName: z.tenant(i), GroupName: groupName(i), NetworkName: networkName(i), Policies: []string{policyName(i)}})
			return err
		}},
		{"rules", z.Rules, func(ctx context.Context, i int) error {
			network, n := z.place(i)
			r := api.Rule{
				TenantName: z.tenant(network), PolicyName: policyName(network), RuleID: strconv.Itoa(n), Direction: "in",
				Protocol: "tcp", Port: 1000 + n, Action: "allow", Priority: 1 + n%100,
			}
			if n%2 == 0 {
				r.FromEndpointGroup = groupName(network)
			}
			_, err := c.Rules().Create(ctx, r)
			return err
		}},
		{"hosts", z.Agents, func(ctx context.Context, i int) error { return keepHost(ctx, c, z, i) }},
		{"endpoints", z.Endpoints, func(ctx context.Context, i int) error {
			network, n := z.place(i)
			_, err := c.CreateEndpoint(ctx, api.CreateEndpointRequest{
				TenantName: z.tenant(network), NetworkName: networkName(network), ServiceName: groupName(network),
				EndpointID: endpointName(i), ConfigEP: api.ConfigEP{Host: hostName(z.host(network, n)), Labels: z.labels(network, n)},
			})
			return err
		}},
	}
	for _, s := range steps {
		begun := time.Now()
		if err := each(ctx, s.what, s.n, s.do); err != nil {
			return fmt.Errorf("create %s: %w", s.what, err)
		}
		took := time.Since(begun)
		fmt.Fprintf(os.Stderr, "  %d %s created in %.1f s, %.0f a second\n", s.n, s.what, took.Seconds(), float64(s.n)/took.Seconds())
	}
	return nil
}

// each calls do with 0 to n-1, several at a time, and tells how far it is.
func each(ctx context.Context, what string, n int, do func(context.Context, int) error) error {
	var done atomic.Int64
	told, end := context.WithCancel(ctx)
	defer end()
	go func() {
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(os.Stderr, "  %d of %d %s\n", done.Load(), n, what)
			case <-told.Done():
				return
			}
		}
	}()
	g, working := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for i := range n {
		if working.Err() != nil {
			break
		}
		g.Go(func() error {
			defer done.Add(1)
			return do(working, i)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}
