package apiserver

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

const (
	// connectionsAnswer is how long hosts may take to list connections, after the time over which
	// they spread.
	connectionsAnswer = 5 * time.Second
	// maxConnections is how long a host's list of connections may be, in bytes.
	maxConnections = 8 << 20
	// maxCutEndpoints bounds the endpoints whose connections one plan asks for.
	maxCutEndpoints = 1000
)

// plannedCuts asks the hosts of flows that close for the connections that a plan would cut; nil = no
// flow closes.
func (s *objectHandlers) plannedCuts(ctx context.Context, a control.Actor, effects analysis.Effects) (*api.PlannedCuts, error) {
	switch n := len(effects.Counted()); {
	case n == 0:
		return nil, nil
	case n > maxCutEndpoints:
		return &api.PlannedCuts{Hosts: []api.PlannedCut{}, Error: fmt.Sprintf("connections of at most %d endpoints are counted, and not of %d", maxCutEndpoints, n)}, nil
	}
	hosts, err := s.control.Hosts.List(ctx, a)
	if err != nil {
		return nil, err
	}
	known := map[model.HostName]bool{}
	for _, h := range hosts {
		known[h.Name] = h.Alive
	}
	asked, alive := map[model.HostName]bool{}, map[string]bool{}
	var endpoints []string
	for k, host := range effects.Counted() {
		endpoints, asked[host] = append(endpoints, k.String()), known[host]
		if known[host] {
			alive[string(host)] = true
		}
	}
	slices.Sort(endpoints)
	answers, err := askEach(ctx, s.streams, a, control.MonitorRequest{Report: control.ReportConnections, Endpoints: endpoints}, alive, connectionsAnswer, maxConnections, api.HostConnections{Error: olderNetplugin})
	if err != nil {
		return &api.PlannedCuts{Hosts: []api.PlannedCut{}, Error: err.Error()}, nil //nolint:nilerr // the plan stands without it, and says so
	}
	out := &api.PlannedCuts{}
	for _, host := range slices.Sorted(maps.Keys(asked)) {
		answer, answered := answers[string(host)]
		if !answered {
			answer.Error = silence(asked[host], connectionsAnswer)
		}
		cut := api.PlannedCut{Host: string(host), More: answer.More, Error: answer.Error}
		for _, g := range answer.Groups {
			if c, ok := connectionOf(host, g); ok && effects.Cuts(c) {
				cut.Connections += g.Count
			}
		}
		out.Connections += cut.Connections
		out.Hosts = append(out.Hosts, cut)
	}
	return out, nil
}

// connectionOf reads a host's connections; false = they cannot be read.
func connectionOf(host model.HostName, g api.ConnectionGroup) (c analysis.Connection, ok bool) {
	c = analysis.Connection{Host: host, Protocol: model.Protocol(g.Protocol), Port: g.Port}
	var errs [4]error
	c.Src, errs[0] = netip.ParseAddr(g.Source)
	c.Dst, errs[1] = netip.ParseAddr(g.Destination)
	if g.From != "" {
		c.From, errs[2] = model.ParseEndpointKey(g.From)
	}
	if g.To != "" {
		c.To, errs[3] = model.ParseEndpointKey(g.To)
	}
	return c, errs == [4]error{}
}
