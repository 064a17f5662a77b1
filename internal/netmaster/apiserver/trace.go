package apiserver

import (
	"cmp"
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

const (
	// traceAnswer is how long hosts may take to follow a packet.
	traceAnswer = 10 * time.Second
	// traceSources and traceSourceCount are the source ports of traced packets.
	traceSources, traceSourceCount = 20000, 10000
)

// traceQuestion is a packet that is asked for.
type traceQuestion struct {
	asked    api.TraceRequest
	question analysis.Question
	probe    analysis.Probe
	protocol model.Protocol
	port     uint16
}

// readTrace finds the endpoint that is to send. Within a scope there is none of another tenant.
func (s *analysisHandlers) readTrace(w http.ResponseWriter, r *request) (in traceQuestion, err error) {
	if _, err = decode(w, r, &in.asked); err != nil {
		return in, err
	}
	q := &in.question
	q.Tenant = model.TenantName(in.asked.Tenant)
	tenant := cmp.Or(q.Tenant, model.DefaultTenant)
	if q.From, err = analysis.ParseSubject("from", in.asked.From, tenant); err != nil {
		return in, err
	}
	if q.To, err = analysis.ParseSubject("to", in.asked.To, tenant); err != nil {
		return in, err
	}
	if q.Ports, err = analysis.ParsePort("port", in.asked.Port); err != nil {
		return in, err
	}
	switch one := q.Ports.Matches(); {
	case in.asked.Port == "icmp":
		in.protocol = model.ProtoICMP
	case in.asked.Port == "icmp6":
		in.protocol = model.ProtoICMPv6
	case len(one) == 1 && one[0].Lo == one[0].Hi && strings.Contains(in.asked.Port, "/") && one[0].Protocol != model.ProtoSCTP:
		in.protocol, in.port = one[0].Protocol, one[0].Lo
	default:
		return in, model.InvalidField("port", in.asked.Port, "must be one packet's: tcp/PORT, udp/PORT, icmp, or icmp6")
	}
	if q.NeedsReports() {
		if q.Reports, _, err = s.hostReports(r.Context()); err != nil {
			return in, err
		}
	}
	if in.probe, err = s.control.Analysis.Probe(r.Context(), *q, in.protocol, r.scope()); in.protocol == model.ProtoICMP && in.probe.Dst.Is6() {
		in.protocol = model.ProtoICMPv6
	}
	return in, err
}

func traceResource(_ *request, in traceQuestion) (access.Resource, error) {
	k := in.probe.From
	return access.Resource{Objects: []audit.Object{{Kind: "endpoint", Key: k.String()}}, Tenants: []string{string(k.Network.Tenant)}}, nil
}

// trace answers POST /api/v1/analysis/trace.
func (s *analysisHandlers) trace(_ http.ResponseWriter, r *request, in traceQuestion) (any, error) {
	ctx, cancel := withLongTimeout(r)
	defer cancel()
	scope := flowScope{Scope: r.scope()}
	probe := in.probe
	protocol, _, _ := strings.Cut(in.asked.Port, "/")
	out := api.Trace{
		From: probe.From.String(), To: in.asked.To, Protocol: protocol, Verdict: api.TraceUnknown,
		Expected: reachable(scope, api.Reachability{From: in.asked.From, To: in.asked.To, Port: in.asked.Port}, probe.Reachable),
	}
	packet := &control.PacketTrace{
		Hosts: []model.HostName{probe.Host}, Sender: probe.From, Protocol: in.protocol, Payload: rand.Text(),
		Src: netip.AddrPortFrom(probe.Src, traceSources+uint16(mathrand.IntN(traceSourceCount))), //nolint:gosec // it is to differ, and no secret
		Dst: netip.AddrPortFrom(probe.Dst, in.port),
	}
	for _, to := range probe.Receivers {
		packet.Receivers = append(packet.Receivers, control.PacketReceiver{Endpoint: to.Endpoint, At: netip.AddrPortFrom(to.Addr, cmp.Or(to.Port, in.port))})
		if !slices.Contains(packet.Hosts, to.Host) {
			packet.Hosts = append(packet.Hosts, to.Host)
		}
	}
	if out.Source, out.Destination = packet.Src.String(), packet.Dst.String(); !in.protocol.HasPorts() {
		out.Source, out.Destination = probe.Src.String(), probe.Dst.String()
	}
	r.changed = "sent a packet of " + out.Protocol + " from " + out.Source + " to " + out.Destination
	answers, err := s.streams.followPacket(ctx, r.actor, packet)
	if err != nil {
		return nil, err
	}
	out.Hosts = answers
	judgeTrace(&out)
	for i := range out.Hosts {
		h := &out.Hosts[i]
		all := h.Events
		h.Events = nil
		for _, e := range all {
			if e, shown := scope.show(e); shown {
				h.Events = append(h.Events, e)
			}
		}
	}
	return out, nil
}

// judgeTrace says what was measured, and whether it was expected.
func judgeTrace(t *api.Trace) {
	sent, seen, watched := false, false, false
	for _, h := range t.Hosts {
		sent = sent || h.Sent
		seen = seen || len(h.Arrived) > 0 || h.Answer != "" && !strings.HasPrefix(h.Answer, "ICMP: ")
		watched = watched || len(h.Watched) > 0
		denied := slices.ContainsFunc(h.Events, func(e api.FlowEvent) bool { return e.Event == api.FlowDrop })
		watched = watched || denied
	}
	switch {
	case seen:
		t.Verdict = api.ReachYes
	case sent && watched:
		t.Verdict = api.ReachNo
	}
	t.Agrees = t.Verdict == t.Expected.Verdict || t.Verdict == api.ReachYes && t.Expected.Verdict == api.ReachPartly
}

// followPacket has the packet's hosts follow it. The answers are in their order.
func (s *streams) followPacket(ctx context.Context, a control.Actor, packet *control.PacketTrace) (out []api.TraceHost, err error) {
	asked := map[string]bool{}
	for _, host := range packet.Hosts {
		asked[string(host)] = true
	}
	older := api.TraceHost{Problems: []string{olderNetplugin}}
	answers, err := askEach(ctx, s, a, control.MonitorRequest{Report: control.ReportTrace, Trace: packet}, asked, traceAnswer, maxInspection, older)
	if err != nil {
		return nil, err
	}
	for _, host := range packet.Hosts {
		t, answered := answers[string(host)]
		if !answered {
			t.Problems = []string{silence(true, traceAnswer)}
		}
		t.Host, t.Events, t.Problems = string(host), t.Events[:min(len(t.Events), mostDifferences)], t.Problems[:min(len(t.Problems), mostDifferences)]
		out = append(out, t)
	}
	return out, nil
}
