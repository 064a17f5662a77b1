package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// api measures netmaster alone: objects and endpoints a second.
func (b *bench) api(ctx context.Context) (err error) {
	l, err := b.lab(ctx, testcluster.Config{Name: "benchapi", Hosts: 0})
	if err != nil {
		return err
	}
	c, err := l.Masters.API()
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Tenants().Create(ctx, api.Tenant{TenantName: "t"}); err != nil {
		return err
	}

	raw, err := l.Store.Etcd(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	n := b.n(2000)
	b.report.table("What etcd itself does: puts of 300 bytes a second, for comparison", "clients", "a second")
	for _, clients := range []int{1, 8} {
		took, err := times(ctx, clients, n, func(ctx context.Context, i int) error {
			_, err := raw.Put(ctx, fmt.Sprintf("/bench/%d", i), strings.Repeat("x", 300))
			return err
		})
		if err != nil {
			return err
		}
		b.report.row(clients, perSecond(n, took))
	}

	b.report.table("Objects a second, one client", "object", "number", "a second", "1.x")
	n = b.n(400)
	took, err := times(ctx, 1, n, func(ctx context.Context, i int) error {
		_, err := c.Networks().Create(ctx, api.Network{
			TenantName: "t", NetworkName: fmt.Sprintf("n%d", i), Encap: "vxlan",
			Subnet: fmt.Sprintf("10.%d.%d.0/24", 200+i/250, i%250),
		})
		return err
	})
	if err != nil {
		return err
	}
	b.report.row("network", n, perSecond(n, took), "110")
	took, err = times(ctx, 1, n, func(ctx context.Context, i int) error {
		_, err := c.EndpointGroups().Create(ctx, api.EndpointGroup{TenantName: "t", GroupName: fmt.Sprintf("g%d", i), NetworkName: "n0"})
		return err
	})
	if err != nil {
		return err
	}
	b.report.row("group", n, perSecond(n, took), "92")

	if err := b.bare(ctx, l); err != nil {
		return err
	}
	if err := b.endpoints(ctx, c, "an etcd process (3.4)"); err != nil {
		return err
	}

	l, err = b.lab(ctx, testcluster.Config{Name: "benchemb", Hosts: 0, Embedded: true})
	if err != nil {
		return err
	}
	own, err := l.Masters.API()
	if err != nil {
		return err
	}
	defer own.Close()
	if _, err := own.Tenants().Create(ctx, api.Tenant{TenantName: "t"}); err != nil {
		return err
	}
	return b.endpoints(ctx, own, "netmaster's own etcd, the default")
}

// endpoints measures how fast endpoints are created, by how many there are.
func (b *bench) endpoints(ctx context.Context, c *api.Client, store string) error {
	b.report.table("`/plugin/createEndpoint` a second in a /16, by how many endpoints are there; store: "+store, "clients", "group",
		"0-1000", "1000-2000", "2000-3000", "3000-4000", "4000-5000", "all", "1.x", "wanted")
	var missed []string
	for i, tc := range []struct {
		clients      int
		group        bool
		old, atLeast int
	}{{1, false, 213, 1065}, {8, false, 205, 1025}, {1, true, 127, 635}, {8, true, 127, 635}} {
		net := fmt.Sprintf("big%d", i)
		if _, err := c.Networks().Create(ctx, api.Network{TenantName: "t", NetworkName: net, Encap: "vxlan", Subnet: fmt.Sprintf("10.%d.0.0/16", 10+i)}); err != nil {
			return err
		}
		group := ""
		if tc.group {
			group = fmt.Sprintf("big%dg", i)
			if _, err := c.EndpointGroups().Create(ctx, api.EndpointGroup{TenantName: "t", GroupName: group, NetworkName: net}); err != nil {
				return err
			}
		}
		each := b.n(1000)
		cells := []any{tc.clients, tc.group}
		var all time.Duration
		for part := range 5 {
			took, err := times(ctx, tc.clients, each, func(ctx context.Context, k int) error {
				_, err := c.CreateEndpoint(ctx, api.CreateEndpointRequest{
					TenantName: "t", NetworkName: net, ServiceName: group, EndpointID: fmt.Sprintf("e%d", part*each+k),
					ConfigEP: api.ConfigEP{Host: fmt.Sprintf("host%d", k%100)},
				})
				return err
			})
			if err != nil {
				return err
			}
			all += took
			cells = append(cells, perSecond(each, took))
		}
		b.report.row(append(cells, perSecond(5*each, all), tc.old, tc.atLeast)...)
		if got := float64(5*each) / all.Seconds(); got < float64(tc.atLeast) {
			missed = append(missed, fmt.Sprintf("%.0f of %d a second (%d client, group %t)", got, tc.atLeast, tc.clients, tc.group))
		}
	}
	b.report.misses(missed)
	return nil
}

// times runs f n times from a number of clients and returns how long all took.
func times(ctx context.Context, clients, n int, f func(context.Context, int) error) (time.Duration, error) {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for range clients {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := f(ctx, i); err != nil {
					return err
				}
			}
		})
	}
	err := g.Wait()
	return time.Since(start), err
}

func perSecond(n int, d time.Duration) string { return fmt.Sprintf("%.0f", float64(n)/d.Seconds()) }
