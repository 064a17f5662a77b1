package control

import (
	"context"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// MonitorRequest asks the agents for what their data planes drop, and which
// connections begin. From and To are groups as people write them: "group" (of
// any tenant) or "tenant:group"; empty = any.
type MonitorRequest struct {
	ID          string // random: agents name it when they deliver
	Address     string // ip:port where they deliver
	Connections bool
	Host        model.HostName // empty = all
	From, To    string
	Counts      model.ServiceKey // no events are wanted, but once what is counted of it; zero = events
	Report      string           // no events are wanted, but once what a host tells of itself: one of cluster's Report constants
	Trace       *PacketTrace     // of a ReportTrace
	Endpoints   []string         // of a report of connections: whose
	Spread      time.Duration    // within which hosts report, each at its own moment
}

// Monitor is a request that agents answer until Close.
type Monitor struct {
	Hosts   []model.HostName // that are asked
	session store.Session
}

// Done is closed when the store has lost the request, and after Close.
func (m *Monitor) Done() <-chan struct{} { return m.session.Done() }

// Close takes the request back.
func (m *Monitor) Close() error { return m.session.Close() }

// OpenMonitor checks a request and enters it, for the agents to find. Events may
// come in before it returns.
func (hs *Hosts) OpenMonitor(ctx context.Context, a Actor, r MonitorRequest) (*Monitor, error) {
	v, err := hs.commits.View(ctx)
	if err != nil {
		return nil, err
	}
	q := cluster.MonitorRequest{ID: r.ID, Address: r.Address, Connections: r.Connections, Host: r.Host}
	scope := a.Scope()
	if q.FromTenant, q.From, err = groupNamed(v, scope, "from", r.From); err != nil {
		return nil, err
	}
	if q.ToTenant, q.To, err = groupNamed(v, scope, "to", r.To); err != nil {
		return nil, err
	}
	if r.Counts != (model.ServiceKey{}) {
		q.Counts = r.Counts.String()
	}
	if r.Report != "" {
		q.Report, q.Counts, q.Trace, q.Spread = r.Report, cluster.ReportCounts, r.Trace, int(r.Spread/time.Millisecond)
		q.Endpoints = r.Endpoints
	}
	m := &Monitor{}
	own := v.Endpoints.CountByHost(scope)
	for _, h := range v.Hosts.List() {
		if (r.Host == "" || h.Name == r.Host) && (!scope.Limited() || own[h.Name] > 0) {
			m.Hosts = append(m.Hosts, h.Name)
		}
	}
	if r.Host != "" && m.Hosts == nil {
		return nil, scope.hostNotFound(r.Host)
	}
	m.session, err = cluster.OpenMonitor(ctx, hs.commits.store, q)
	return m, err
}

// groupNamed finds the group that a filter names. Groups outside of the scope do not exist.
func groupNamed(v *View, scope Scope, field, text string) (t model.TenantName, g model.GroupName, err error) {
	if text == "" {
		return "", "", nil
	}
	tenant, name, qualified := strings.Cut(text, ":")
	if !qualified {
		tenant, name = "", text
	}
	if g, err = model.ParseGroupName(name); err != nil {
		return "", "", model.InvalidField(field, text, "must be an endpoint group: group, or tenant:group")
	}
	if qualified {
		if t, err = model.ParseTenantName(tenant); err != nil {
			return "", "", model.InvalidField(field, text, "must be an endpoint group: group, or tenant:group")
		}
		if _, ok := v.Groups.Get(model.GroupKey{Tenant: t, Name: g}); ok && scope.Has(t) {
			return t, g, nil
		}
		return "", "", model.Errorf(model.ErrNotFound, "endpoint group %q does not exist", text)
	}
	for _, x := range v.Tenants.List() {
		if _, ok := v.Groups.Get(model.GroupKey{Tenant: x.Name, Name: g}); ok && scope.Has(x.Name) {
			return "", g, nil
		}
	}
	return "", "", model.Errorf(model.ErrNotFound, "endpoint group %q does not exist in any tenant", text)
}

// What hosts are asked to tell of themselves: MonitorRequest.Report.
const (
	ReportInspection   = cluster.ReportInspection
	ReportBundle       = cluster.ReportBundle
	ReportVerification = cluster.ReportVerification
	ReportConnections  = cluster.ReportConnections
	ReportTrace        = cluster.ReportTrace
)

// A packet that hosts are asked to follow.
type (
	PacketTrace    = cluster.PacketTrace
	PacketReceiver = cluster.PacketReceiver
)
