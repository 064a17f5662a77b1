package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// visibleHost is a host as the one who asks sees it.
func (s *hostHandlers) visibleHost(scope control.Scope, h control.HostState, now time.Time) api.Host {
	if !scope.Limited() {
		return s.hostToAPI(h, now)
	}
	o := hostToAPI(h, now)
	o.Tenants = scope.Names()
	return o
}

// visibleTo is an operational state as the one who asks sees it: hosts' addresses are left out
// of what is within a scope.
func visibleTo(scope control.Scope, oper any) any {
	if !scope.Limited() {
		return oper
	}
	hide := func(endpoints []api.EndpointOper) { // which are made for each answer
		for i := range endpoints {
			endpoints[i].VtepIP = ""
		}
	}
	switch o := oper.(type) {
	case api.EndpointOper:
		o.VtepIP = ""
		return o
	case api.NetworkOper:
		hide(o.Endpoints)
	case api.EndpointGroupOper:
		hide(o.Endpoints)
	case api.PolicyOper:
		hide(o.Endpoints)
	case api.ServiceLBOper:
		hide(o.Providers)
	case api.TenantOper:
		hide(o.Endpoints)
		for _, n := range o.Networks {
			hide(n.Endpoints)
		}
		for _, g := range o.EndpointGroups {
			hide(g.Endpoints)
		}
		for _, p := range o.Policies {
			hide(p.Endpoints)
		}
		for _, s := range o.Servicelbs {
			hide(s.Providers)
		}
	}
	return oper
}

// tenantStatus is the status of what some tenants have.
func (s *diagnosis) tenantStatus(ctx context.Context, a control.Actor) (o api.ClusterStatus, err error) {
	scope := a.Scope()
	hosts, err := s.control.Hosts.List(ctx, a)
	if err != nil {
		return o, err
	}
	v, err := s.control.View(ctx)
	if err != nil {
		return o, err
	}
	o = api.ClusterStatus{
		Version: s.version.Version, Tenants: scope.Names(),
		Masters: []api.Master{}, Stores: []api.StoreServer{}, Hosts: []api.Host{}, Pools: []api.Pool{},
	}
	var found []api.Finding
	add := func(c *condition.Condition, where, remedy, format string, args ...any) {
		f := c.Finding(where, fmt.Sprintf(format, args...))
		f.Remedy = remedy
		found = append(found, f)
	}
	now := time.Now()
	for _, h := range hosts {
		seen := s.hosts.visibleHost(scope, h, now)
		o.Hosts, o.Endpoints = append(o.Hosts, seen), o.Endpoints+seen.Endpoints
		switch {
		case seen.State == api.HostAway:
			add(condition.HostAway, "host "+seen.Name, "ask a cluster administrator", "it is away, and %d of your endpoints are there", seen.Endpoints)
		case seen.Age < 0:
			add(condition.HostUnreported, "host "+seen.Name, "wait a minute; then ask a cluster administrator", "it is alive and has not reported its status yet")
		case !seen.Ready:
			add(condition.HostUnready, "host "+seen.Name, "ask a cluster administrator, who can see why", "it is not ready: %d of your endpoints are there, and not all may have their networks or policies", seen.Endpoints)
		case seen.Draining:
			add(condition.HostDrains, "host "+seen.Name, "", "it drains: services send its providers no new connections")
		}
	}
	for _, p := range v.Addresses.AddressPools() {
		if p.Share() < nearlyFull {
			break
		}
		if scope.Has(p.Network.Tenant) && len(o.Pools) < fewPools {
			o.Pools = append(o.Pools, poolToAPI("addresses of "+p.Network.String(), p.Pool))
			add(condition.PoolFills, "addresses of "+p.Network.String(), "", "%d of %d are taken", p.Used, p.Size)
		}
	}
	broken, err := s.control.BrokenAssertions(ctx, a)
	if err != nil {
		return o, err
	}
	found = append(found, brokenFindings(broken)...)
	addFindings(&o, found)
	return o, nil
}

// flowScope limits the events of a monitor to what tenants may see.
type flowScope struct {
	control.Scope
	on func(host string) bool // whether the tenants have endpoints there
}

// show returns an event as the scope shows it; false = it does not. What the host counts
// for all tenants, and names of what other tenants have, are left out.
func (s flowScope) show(e api.FlowEvent) (api.FlowEvent, bool) {
	if !s.Limited() {
		return e, true
	}
	switch e.Event {
	case api.FlowDrop, api.FlowConnection, api.FlowLogged, api.FlowWouldDeny, api.FlowWouldAllow:
	case api.FlowLost:
		return api.FlowEvent{Time: e.Time, Host: e.Host, Event: e.Event}, s.on(e.Host)
	default:
		return e, false
	}
	from, to := s.has(e.From.Endpoint), s.has(e.To.Endpoint)
	if !s.has(e.Tenant) && !from && !to || e.Audited != "" && !s.has(e.Audited) {
		return e, false
	}
	decisions := e.Decisions
	e.Decisions = nil
	for _, d := range decisions {
		of := cmp.Or(d.Policy, map[string]string{string(model.Out): e.From.Endpoint, string(model.In): e.To.Endpoint}[d.Direction])
		if of == "" && d.Rule == "" { // by no rule, at an end in another network of the tenant, say
			of = e.Tenant
		}
		if !s.has(of) {
			d = api.FlowRule{Direction: d.Direction, Hidden: true}
		}
		e.Decisions = append(e.Decisions, d)
	}
	if !s.has(e.Tenant) {
		e.Tenant, e.Network = "", ""
	}
	for _, p := range []*api.FlowPeer{&e.From, &e.To} {
		if (p.Endpoint != "" || p.Group != "") && !s.has(p.Endpoint) {
			*p = api.FlowPeer{Address: p.Address, Port: p.Port}
		}
	}
	return e, true
}

// has reports whether something whose key begins with its tenant is of the scope.
func (s flowScope) has(key string) bool {
	tenant, _, _ := strings.Cut(key, ":")
	return tenant != "" && s.Has(model.TenantName(tenant))
}
