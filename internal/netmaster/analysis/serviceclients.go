package analysis

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
)

// ServiceClients are clients that a change of a service admits, or that lose it.
type ServiceClients struct {
	Opens bool
	From  []string // as a Flow's; "internet" = clients outside
	At    []string // ADDRESS PROTOCOL/PORT
}

// clientsKey is what decides which ports of a service a client reaches; equal clients are asked
// about once.
type clientsKey struct {
	network  [2]model.NetworkID // before and after
	policies [2]desired.PolicySetID
	identity model.Identity
	families [2]bool
	host     model.HostName // where backends on the client's host are preferred
	addr     [2]netip.Addr  // where a frontend takes some addresses only
}

// clientDifference collects the clients that lose or get the same ports.
type clientDifference struct {
	opens bool
	at    []string
	of    reachability.Side
}

// serviceClients returns the clients that reach other ports of a service after a change.
func (r *clusterRows) serviceClients(ctx context.Context, before, after *reachability.Cluster, x ServiceEffect, states [2]*desired.Service, scope Scope, n *names) (out []ServiceClients, err error) {
	clusters := [2]*reachability.Cluster{before, after}
	byHost, some := hostDecides(states), takesSome(states)
	changes := map[clientsKey][2][]string{} // what closes, and opens
	found := map[string]*clientDifference{}
	for k, e := range r.endpoints {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var ports [2]*desired.Port
		key := clientsKey{}
		for i, c := range clusters {
			if p, has := c.Port(k); has {
				ports[i] = p
				key.network[i], key.policies[i], key.identity = p.Network, p.Policies, p.Identity
				key.families = [2]bool{p.IPv4.IsValid(), p.IPv6.IsValid()}
			}
		}
		if !scope.Has(k.Network.Tenant) || ports == [2]*desired.Port{} {
			continue
		}
		if byHost {
			key.host = e.Host
		}
		if some {
			key.addr = [2]netip.Addr{e.IPv4, e.IPv6}
		}
		change, known := changes[key]
		if !known {
			change = differences(reachedPorts(clusters[0], ports[0], x.Service), reachedPorts(clusters[1], ports[1], x.Service))
			changes[key] = change
		}
		for i, at := range change {
			if len(at) == 0 {
				continue
			}
			id := fmt.Sprint(i, at)
			if found[id] == nil {
				found[id] = &clientDifference{opens: i == 1, at: at}
			}
			found[id].of.Endpoints = append(found[id].of.Endpoints, k)
		}
	}
	for i, at := range differences(exposedPorts(states[0]), exposedPorts(states[1])) {
		if len(at) > 0 {
			out = append(out, ServiceClients{Opens: i == 1, From: []string{"internet"}, At: at})
		}
	}
	for _, d := range found {
		slices.SortFunc(d.of.Endpoints, model.EndpointKey.Compare)
		out = append(out, ServiceClients{Opens: d.opens, From: n.of(d.of), At: d.at})
	}
	slices.SortFunc(out, func(a, b ServiceClients) int {
		if a.Opens != b.Opens {
			if b.Opens {
				return -1
			}
			return 1
		}
		return cmp.Or(strings.Compare(strings.Join(a.From, " "), strings.Join(b.From, " ")), slices.Compare(a.At, b.At))
	})
	return out, nil
}

// hostDecides reports whether a client's host decides which backends it reaches.
func hostDecides(states [2]*desired.Service) bool {
	for _, s := range states {
		if s != nil && (s.InternalPolicy != desired.TrafficCluster || slices.ContainsFunc(s.Frontends, func(f desired.Frontend) bool { return f.InternalPolicy != desired.TrafficCluster })) {
			return true
		}
	}
	return false
}

// takesSome reports whether a frontend takes some clients' addresses only.
func takesSome(states [2]*desired.Service) bool {
	for _, s := range states {
		if s != nil && slices.ContainsFunc(s.Frontends, func(f desired.Frontend) bool { return len(f.Sources) > 0 }) {
			return true
		}
	}
	return false
}

// reachedPorts are the ports of a service at which a client reaches a backend.
func reachedPorts(c *reachability.Cluster, from *desired.Port, k model.ServiceKey) (out []string) {
	if from == nil {
		return nil
	}
	for _, v6 := range []bool{false, true} {
		for _, p := range c.ToService(from, k, v6) {
			if slices.ContainsFunc(p.Backends, func(b reachability.Backend) bool { return b.Allowed }) {
				out = append(out, frontendText(p.Addr, p.Protocol, p.Port))
			}
		}
	}
	return out
}

// exposedPorts are the ports at which clients outside reach a service that has backends.
func exposedPorts(s *desired.Service) (out []string) {
	if s == nil || !s.Exposed || takers(s) == 0 {
		return nil
	}
	for _, a := range []netip.Addr{s.IPv4, s.IPv6} {
		for _, p := range s.Ports {
			if a.IsValid() {
				out = append(out, frontendText(a, p.Protocol, p.Port))
			}
		}
	}
	for _, f := range s.Frontends {
		text := frontendText(f.Addr, f.Protocol, f.Port)
		if len(f.Sources) > 0 {
			text += fmt.Sprint(" from ", f.Sources)
		}
		if f.Port != 0 {
			out = append(out, text)
		}
	}
	return out
}

func frontendText(a netip.Addr, p model.Protocol, port uint16) string {
	return a.String() + " " + FormatPort(model.PortMatch{Protocol: p, Lo: port, Hi: port})
}

// differences are what only the first of two lists has, and what only the second has.
func differences(before, after []string) (out [2][]string) {
	for i, lists := range [2][2][]string{{before, after}, {after, before}} {
		for _, x := range lists[0] {
			if !slices.Contains(lists[1], x) {
				out[i] = append(out[i], x)
			}
		}
	}
	return out
}
