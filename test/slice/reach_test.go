//go:build integration

package slice

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestContainersReachWhatGroupsAndNetworksAllow asks, in both forwarding modes and by both families, for everybody
// in the name of everybody: each container of drivertest's tenants that share networks,
// VXLAN and VLAN, on one host and across two, within a network, to other networks of
// the tenant, to what is shared with it and to what is not; the hosts; somebody beyond
// a host; and services of all tenants, one of them without providers. With policies
// that let in whom they can and, in mode routing, without. The answers have to be those
// of the reference driver.
func TestContainersReachWhatGroupsAndNetworksAllow(t *testing.T) {
	shared(t)
	on(t, 2, both, anywhere(reachability))
}

func reachability(t *testing.T, driver string, where testcluster.Environment) {
	c := up(t, driver, "reach", 2, in(where))
	c.netctl("global set --fwd-mode routing") // so that containers get default routes in both families
	c.sharing()
	c.attachBeyond6(c.host("h1"))
	c.makeServices()
	c.publishAll()
	old := conformance.Case{}
	for _, mode := range []model.FwdMode{model.FwdRouting, model.FwdBridge} {
		c.netctl("global set --fwd-mode " + string(mode))
		c.forwards(mode)
		c.forgetNeighbours() // the gateway of a VLAN network is another machine now
		cases := conformance.SharedCases(conformance.SharedTopology())
		if mode == model.FwdBridge {
			cases = cases[len(cases)-1:] // what lets in most
		}
		for _, next := range cases {
			if err := c.apply(t.Context(), old, next); err != nil {
				t.Fatal(err)
			}
			old = next
			start := time.Now()
			rows, err := c.Matrix(t.Context(), append(c.everybody(), c.further(mode)...))
			if err != nil {
				t.Fatal(err)
			}
			wrong, ok := 0, 0
			for _, r := range rows {
				if r.Expected == testcluster.OK {
					ok++
				}
				if r.Right() && c.byProvider(r) || r.Expected == testcluster.Denied && r.Seen.Verdict != testcluster.OK { // or somebody says at once that it leads nowhere
					continue
				}
				if wrong++; wrong <= 5 {
					t.Errorf("mode %s, %s: %s to %s, %s: %s (answered by %q), want %s: %s", mode, next.Name, r.From, r.To, r.Target, r.Seen, r.Seen.From, r.Expected, r.Why)
				}
			}
			if wrong > 5 {
				t.Errorf("mode %s, %s: %d of %d answers are wrong", mode, next.Name, wrong, len(rows))
			}
			t.Logf("mode %s, %s: %d answers in %v, of which %d are to be OK", mode, next.Name, len(rows), time.Since(start).Round(time.Millisecond), ok)
		}
	}
}

// sharing builds conformance.SharedTopology on a cluster of two hosts; containers have
// the names of its endpoints.
func (c *cluster) sharing() {
	c.t.Helper()
	top := conformance.SharedTopology()
	for _, x := range top.Tenants {
		c.netctl("tenant create " + string(x.Name))
	}
	var specs []testcluster.ContainerSpec
	for i, n := range top.Networks {
		tenant, name := string(n.Key.Tenant), string(n.Key.Name)
		c.netctl(fmt.Sprintf("network create -t %s -e %s -s %s -g %s --subnetv6 %s --gatewayv6 %s %s", tenant, n.Encap,
			n.Subnet, n.Subnet.Addr().Next(), n.Subnet6, n.Subnet6.Addr().Next(), name),
			fmt.Sprintf("group create -t %s %s %s", tenant, name, top.Groups[i].Key.Name))
	}
	for _, x := range top.Tenants {
		if len(x.Shared) > 0 {
			c.netctl(fmt.Sprintf("tenant create --shared-networks %s %s", strings.Join(keys(x.Shared), ","), x.Name))
		}
	}
	for _, e := range top.Endpoints {
		s := testcluster.ContainerSpec{Name: string(e.Key.ID), Host: string(e.Host)}
		s.Tenant, s.Network, s.Group = string(e.Key.Network.Tenant), string(e.Key.Network.Name), string(e.Group)
		s.Listen = []string{"tcp/80"}
		s.Labels = map[string]string{"of": s.Tenant + "-" + s.Network}
		specs = append(specs, s)
	}
	c.add(specs...)
}

// forwards waits until all hosts forward in a mode: only then may containers resolve their
// gateways again.
func (c *cluster) forwards(mode model.FwdMode) {
	c.t.Helper()
	c.until("hosts to forward in mode "+string(mode), func(ctx context.Context) error {
		for _, h := range c.Hosts() {
			s, err := h.AgentState(ctx)
			if err != nil {
				return err
			}
			joined := slices.ContainsFunc(slices.Collect(maps.Values(s.Networks)), func(r model.RouterID) bool { return r != 0 })
			if joined != (mode == model.FwdRouting) || s.Applied < s.Revision {
				return fmt.Errorf("%s has networks %v at revision %d of %d", h.Name, s.Networks, s.Applied, s.Revision)
			}
		}
		return nil
	})
}

// forgetNeighbours has containers resolve known neighbours again.
func (c *cluster) forgetNeighbours() {
	c.t.Helper()
	for _, a := range c.Containers() {
		for _, family := range []string{"-4", "-6"} {
			if out, err := c.space(a.Name).Command(c.t.Context(), "ip", family, "neigh", "flush", "dev", "eth0").CombinedOutput(); err != nil {
				c.t.Fatalf("ip %s neigh flush in %s: %v %s", family, a.Name, err, out)
			}
		}
	}
}

func keys(of []model.NetworkKey) (out []string) {
	for _, k := range of {
		out = append(out, k.String())
	}
	return out
}
