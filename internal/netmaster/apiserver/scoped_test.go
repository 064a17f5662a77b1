package apiserver

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// A tenant admin's monitor shows the packets of its tenant's containers, and of other
// tenants no more than the address that its own container speaks with.
func TestMonitorShowsATenantAdminOnlyItsTenant(t *testing.T) {
	scope := flowScope{control.TenantAdmin("blue").Scope(), func(host string) bool { return host == "h1" }}
	at := time.Unix(1, 0)
	peer := func(tenant, address string) api.FlowPeer {
		return api.FlowPeer{Endpoint: tenant + ":net:e", Container: tenant + "-c", Group: tenant + ":g", Address: address, Port: 80, MAC: "02:02:0a:01:01:01", Labels: map[string]string{"of": tenant}}
	}
	blue, red, outside := peer("blue", "10.1.1.1"), peer("red", "10.2.1.1"), api.FlowPeer{Address: "8.8.8.8", Port: 53}
	masked := api.FlowPeer{Address: "10.2.1.1", Port: 80}
	out := api.FlowRule{Direction: "out", Rule: "1", Policy: "blue:p", Tier: "contiv"}
	in := api.FlowRule{Direction: "in", Rule: "9", Policy: "red:secret", Tier: "admin"}
	of := func(change func(e *api.FlowEvent)) api.FlowEvent {
		e := api.FlowEvent{Time: at, Host: "h1", Event: api.FlowDrop, Verdict: "deny", Reason: "policy", Tenant: "blue", Network: "net", From: blue, To: outside, Decisions: []api.FlowRule{out}}
		change(&e)
		return e
	}
	for name, tc := range map[string]struct {
		event api.FlowEvent
		want  *api.FlowEvent // nil = it is not shown
	}{
		"own":               {of(func(*api.FlowEvent) {}), new(of(func(*api.FlowEvent) {}))},
		"another tenant's":  {of(func(e *api.FlowEvent) { e.Tenant, e.From, e.To = "red", red, red }), nil},
		"nobody's":          {of(func(e *api.FlowEvent) { e.Tenant, e.Network, e.From = "", "", outside }), nil},
		"audited by others": {of(func(e *api.FlowEvent) { e.Event, e.Audited = api.FlowWouldDeny, "red:secret" }), nil},
		"to another tenant": {
			of(func(e *api.FlowEvent) { e.To, e.Decisions = red, []api.FlowRule{out, in} }),
			new(of(func(e *api.FlowEvent) {
				e.To, e.Decisions = masked, []api.FlowRule{out, {Direction: "in", Hidden: true}}
			})),
		},
		"seen in another tenant's network": {
			of(func(e *api.FlowEvent) {
				e.Tenant, e.To, e.Decisions = "red", red, []api.FlowRule{{Direction: "in", Tier: "contiv", Default: "contiv", Policies: []string{"red:secret"}}}
			}),
			new(of(func(e *api.FlowEvent) {
				e.Tenant, e.Network, e.To, e.Decisions = "", "", masked, []api.FlowRule{{Direction: "in", Hidden: true}}
			})),
		},
		"lost on its host":   {api.FlowEvent{Time: at, Host: "h1", Event: api.FlowLost, Count: 7}, &api.FlowEvent{Time: at, Host: "h1", Event: api.FlowLost}},
		"lost on others":     {api.FlowEvent{Time: at, Host: "h2", Event: api.FlowLost, Count: 7}, nil},
		"a host's note":      {api.FlowEvent{Time: at, Host: "h1", Event: api.FlowNote, Text: "red:secret"}, nil},
		"counts of services": {api.FlowEvent{Time: at, Host: "h1", Event: api.FlowCounts, To: red}, nil},
		"an unknown event":   {of(func(e *api.FlowEvent) { e.Event = "new" }), nil},
	} {
		got, shown := scope.show(tc.event)
		if shown != (tc.want != nil) || shown && !cmp.Equal(got, *tc.want) {
			t.Errorf("%s: shown %v, (-want +got):\n%s", name, shown, cmp.Diff(tc.want, &got))
		}
		if b, err := json.Marshal(got); err != nil || shown && strings.Contains(string(b), "red") {
			t.Errorf("%s: it shows %s", name, b)
		}
	}
	if e, shown := (flowScope{}).show(api.FlowEvent{Event: api.FlowNote, Text: "x"}); !shown || e.Text != "x" {
		t.Error("a viewer's monitor is limited")
	}
}

// TestTenantStatusOfHostWithoutReport: a host that has not reported yet, as after a restore, is
// a notice to a tenant admin as it is to others, and not called broken.
func TestTenantStatusOfHostWithoutReport(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	reg, err := cluster.Register(t.Context(), f.mem, cluster.Service{ServiceName: cluster.ServiceAgent, HostAddr: "10.0.0.1", Port: 4789, Hostname: "host1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reg.Close() }()
	s, err := newServer(Config{Log: slog.New(slog.DiscardHandler), Control: f.ctrl, Cluster: testCluster{f.ctrl}})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []control.Actor{control.Admin(), control.TenantAdmin("blue")} {
		o, err := s.diagnosis.clusterStatus(t.Context(), a)
		if err != nil || !o.Well || !slices.ContainsFunc(o.Findings, func(x api.Finding) bool { return x.Name == condition.HostUnreported.Name() && x.Where == "host host1" }) {
			t.Errorf("%v: %+v, %v", a.Scope().Names(), o, err)
		}
	}
}
