package apiserver

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
)

// exposure answers GET /api/v1/analysis/exposure. Within a scope the answer has no other tenant's
// endpoints, services and policies.
func (s *analysisHandlers) exposure(_ http.ResponseWriter, r *request) (any, error) {
	text := r.URL.Query()
	to, tenant := text.Get("to"), text.Get("tenant")
	out := api.Exposure{To: to, Port: text.Get("port"), Connections: []api.ReachableParts{}}
	var q analysis.ExposureQuestion
	var err error
	if q.To, err = analysis.ParseSubject("to", cmp.Or(to, "any"), cmp.Or(model.TenantName(tenant), model.DefaultTenant)); err != nil {
		return nil, err
	}
	if q.Ports, err = analysis.ParsePort("port", out.Port); err != nil {
		return nil, err
	}
	if q.Reports, out.Unlisted, err = s.hostReports(r.Context()); err != nil {
		return nil, err
	}
	answer, err := s.control.Analysis.Exposure(r.Context(), q, r.scope())
	if err != nil {
		return nil, err
	}
	out.Revision = int64(answer.Revision)
	scope := flowScope{Scope: r.scope()}
	for _, row := range answer.Rows {
		out.Connections = append(out.Connections, reachableParts(scope, row))
	}
	return out, nil
}

// hostReports are the ways in that hosts report, and how many published ports they do not list.
func (s *analysisHandlers) hostReports(ctx context.Context) (out map[model.HostName]analysis.HostReport, unlisted int, err error) {
	all, err := s.control.Hosts.HostStatuses(ctx)
	out = map[model.HostName]analysis.HostReport{}
	for _, h := range all {
		report := analysis.HostReport{}
		if h.BGP != nil {
			for _, text := range h.BGP.Prefixes {
				if p, err := netip.ParsePrefix(text); err == nil {
					report.Announced = append(report.Announced, p)
				}
			}
		}
		for _, p := range h.Published.Ports {
			report.Published = append(report.Published, analysis.PublishedPort{Endpoint: p.Endpoint, Protocol: p.Protocol, At: netip.AddrPortFrom(p.HostIP, p.HostPort), Port: p.Port})
		}
		out[h.Host] = report
		unlisted += h.Published.Unlisted
	}
	return out, unlisted, err
}
