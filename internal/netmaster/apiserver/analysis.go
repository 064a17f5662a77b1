package apiserver

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
)

// analysisHandlers answer what the cluster's objects mean.
type analysisHandlers struct {
	*serverContext
	streams *streams
}

func (s *server) handleAnalysis() {
	s.router.handle("GET", "/api/v1/analysis/reachability", access.View|access.WithinScope, nil, s.analysis.reachability)
	s.handlePlan()
	handleRead(s.router, "POST", "/api/v1/analysis/trace", access.WithinScope, s.analysis.readTrace, traceResource, s.analysis.trace)
	s.router.handle("GET", "/api/v1/analysis/exposure", access.View|access.WithinScope, nil, s.analysis.exposure)
	s.router.handle("GET", "/api/v1/analysis/assertions", access.View|access.WithinScope, nil, s.analysis.assertions)
	s.router.handle("GET", "/api/v1/analysis/endpoints/{key}", access.View|access.WithinScope, nil, s.analysis.explain)
}

// reachability answers GET /api/v1/analysis/reachability. Within a scope the answer has
// no other tenant's endpoints and policies.
func (s *analysisHandlers) reachability(_ http.ResponseWriter, r *request) (any, error) {
	text := r.URL.Query()
	q := analysis.Question{Tenant: model.TenantName(text.Get("tenant"))}
	tenant := cmp.Or(q.Tenant, model.DefaultTenant)
	port := text.Get("port")
	var err error
	if q.From, err = analysis.ParseSubject("from", text.Get("from"), tenant); err != nil {
		return nil, err
	}
	if q.To, err = analysis.ParseSubject("to", text.Get("to"), tenant); err != nil {
		return nil, err
	}
	if q.Ports, err = analysis.ParsePort("port", port); err != nil {
		return nil, err
	}
	if q.NeedsReports() {
		if q.Reports, _, err = s.hostReports(r.Context()); err != nil {
			return nil, err
		}
	}
	answer, err := s.control.Analysis.Reach(r.Context(), q, r.scope())
	if err != nil {
		return nil, err
	}
	return reachable(flowScope{Scope: r.scope()}, api.Reachability{From: text.Get("from"), To: text.Get("to"), Port: port}, answer), nil
}

// reachable is an answer, as a scope shows it, to what was asked.
func reachable(scope flowScope, out api.Reachability, answer analysis.Reachable) api.Reachability {
	out.Revision, out.Verdict, out.Connections, out.Unconfirmed = int64(answer.Revision), api.ReachNo, []api.ReachableParts{}, answer.Unconfirmed
	switch {
	case answer.All:
		out.Verdict = api.ReachYes
	case answer.Some:
		out.Verdict = api.ReachPartly
	}
	for _, row := range answer.Rows {
		out.Connections = append(out.Connections, reachableParts(scope, row))
	}
	return out
}

func reachableParts(scope flowScope, row analysis.Row) api.ReachableParts {
	out := api.ReachableParts{From: row.From, To: row.To, Route: string(row.Route), Missing: string(row.Gap)}
	out.Families = families(row.IPv4, row.IPv6)
	out.Opening, out.Published = string(row.Opening), row.Published
	if row.Service != nil {
		if out.Service, out.Frontend = row.Service.Key.String(), row.Service.At.String(); row.Service.NoBackend {
			out.Missing = "no-backend"
		}
		if scope.Limited() && !scope.has(out.Service) {
			out.Service = "another tenant's"
		}
	}
	for _, p := range row.Parts {
		out.Parts = append(out.Parts, api.ReachablePart{Allowed: p.Allowed, Ports: portTexts(p.Ports), Decisions: decisions(scope, p.Out, p.In)})
	}
	return out
}

func families(v4, v6 bool) (out []string) {
	if v4 {
		out = append(out, "IPv4")
	}
	if v6 {
		out = append(out, "IPv6")
	}
	return out
}

// portTexts writes a set of ports; one that lacks few by what it lacks.
func portTexts(ports reachability.Ports) (out []string) {
	matches, others := ports.Matches(), reachability.AllPorts().Without(ports).Matches()
	but := len(others) > 0 && len(others) < len(matches)
	if but {
		matches = others
	}
	for _, m := range matches {
		out = append(out, analysis.FormatPort(m))
	}
	if but {
		return []string{"all but " + strings.Join(out, ",")}
	}
	return out
}

// decisions are who decides at both ends (nil = no endpoint), as the one who asks may know.
func decisions(scope flowScope, outwards, inwards *reachability.Ruling) (all []api.FlowRule) {
	if outwards != nil {
		all = append(all, decision(model.Out, *outwards))
	}
	if inwards != nil {
		all = append(all, decision(model.In, *inwards))
	}
	if scope.Limited() {
		scope.hidePolicies(all)
	}
	return all
}

// decision is who decides at one end, in the words of monitors.
func decision(dir model.Direction, r reachability.Ruling) api.FlowRule {
	out := api.FlowRule{Direction: string(dir)}
	switch {
	case r.Missing:
		out.Default = "closed"
	case r.Rule != nil:
		out.Rule, out.Tier = r.Rule.ID, r.Tier.String()
		if k, err := model.ParseRuleKey(r.Rule.ID); err == nil { // else it was compiled in the place of one
			out.Rule, out.Policy = string(k.Rule), model.PolicyKey{Tenant: k.Tenant, Name: k.Policy}.String()
		}
	case r.Tier != 0:
		out.SetDefault(r.Tier.String(), r.DefaultOf)
	}
	return out
}

// hidePolicies hides decisions of policies that are not of the scope.
func (s flowScope) hidePolicies(decisions []api.FlowRule) {
	for i, d := range decisions {
		of := d.Policy
		if len(d.Policies) > 0 {
			of = d.Policies[0]
		}
		if of != "" && !s.has(of) {
			decisions[i] = api.FlowRule{Direction: d.Direction, Hidden: true}
		}
	}
}

// explain answers GET /api/v1/analysis/endpoints/{key}. Within a scope the names of other
// tenants' policies and services are left out.
func (s *analysisHandlers) explain(_ http.ResponseWriter, r *request) (any, error) {
	subject, err := analysis.ParseSubject("endpoint", "endpoint:"+r.PathValue("key"), "")
	if err != nil {
		return nil, err
	}
	x, err := s.control.Analysis.Explain(r.Context(), subject, r.scope())
	if err != nil {
		return nil, err
	}
	scope := flowScope{Scope: r.scope()}
	hidden := func(key string) bool { return scope.Limited() && !scope.has(key) }
	e := x.Endpoint
	out := api.Explanation{
		Endpoint: e.Key.String(), Name: e.Name, Container: e.Container, Host: string(e.Host), Network: e.Key.Network.String(), Namespace: string(e.Namespace),
		Labels: e.Labels, Closed: x.Missing, Audited: slices.DeleteFunc(x.Audited, hidden),
		In: explainedTiers(x.In, hidden), Out: explainedTiers(x.Out, hidden),
	}
	if e.Group != "" {
		out.Group = model.GroupKey{Tenant: e.Key.Network.Tenant, Name: e.Group}.String()
	}
	for _, a := range []netip.Addr{e.IPv4, e.IPv6} {
		if a.IsValid() {
			out.Addresses = append(out.Addresses, a.String())
		}
	}
	for _, s := range x.Services {
		if key := s.Service.String(); !hidden(key) {
			out.Services = append(out.Services, api.ExplainedService{Service: key, State: backendStates[s.State]})
		}
	}
	for _, p := range x.Problems {
		if _, of, _ := strings.Cut(p.Object, " "); !hidden(of) {
			out.Problems = append(out.Problems, p.String())
		}
	}
	return out, nil
}

var backendStates = map[desired.BackendState]string{
	desired.BackendActive: "active", desired.BackendDraining: "draining", desired.BackendUnhealthy: "unhealthy", desired.BackendLeaving: "leaving",
}

func explainedTiers(all []analysis.Tier, hidden func(key string) bool) (out []api.ExplainedTier) {
	for _, t := range all {
		out = append(out, api.ExplainedTier{
			Tier: t.Tier.String(), Policies: slices.DeleteFunc(t.Policies, hidden), Rules: t.Rules, Default: string(t.Default), DefaultOf: slices.DeleteFunc(t.DefaultOf, hidden),
		})
	}
	return out
}
