package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestProvidersFollowReportedLabels: providers come and go with the labels that runtimes tell, in
// the inspection of the service, in /services and in /service/{id}.
func TestProvidersFollowReportedLabels(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	ctx := t.Context()
	s, err := f.ServiceLBs().Create(ctx, api.ServiceLB{
		TenantName: "blue", NetworkName: "n", ServiceName: "s", IPAddress: "10.1.1.100", Selectors: []string{"app=web"}, Ports: []string{"80:8080:TCP"},
	})
	if err != nil || s.Links.Network.Key != "blue:n" {
		t.Fatalf("%+v, %v", s, err)
	}
	update := api.UpdateEndpointRequest{
		IPAddress: "10.1.1.5", ContainerID: "c-e1", Labels: map[string]string{"app": "web", "tier": "x"}, Tenant: "blue", Network: "web",
		Event: api.EventStart, EndpointID: "e1", EPCommonName: "one",
	}
	if _, err := f.UpdateEndpoint(ctx, update); err != nil {
		t.Fatal(err)
	}
	got, err := f.Service(ctx, "s:blue")
	if err != nil {
		t.Fatal(err)
	}
	want := api.ServiceInfo{
		ID: "s:blue", ServiceName: "s", TenantName: "blue", Subnet: "n", Ports: []string{"80:8080:TCP"}, Selectors: map[string]string{"app": "web"}, IPAddress: "10.1.1.100",
		Providers: map[string]api.ServiceProvider{"10.1.1.5:blue": {
			IPAddress: "10.1.1.5", ContainerID: "c-e1", Labels: update.Labels, Tenant: "blue", Network: "n", Services: []string{"s:blue"}, EpIDKey: "n.blue-e1",
		}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if all, err := f.Services(ctx); err != nil || len(all) != 1 || cmp.Diff(want, all[0]) != "" {
		t.Errorf("/services: %+v, %v", all, err)
	}
	if i, err := f.ServiceLBs().Inspect(ctx, "blue:s"); err != nil || i.Oper.NumProviders != 1 || i.Oper.ServiceVip != "10.1.1.100" || i.Oper.Providers[0].ServiceName != "s" {
		t.Errorf("inspection: %+v, %v", i, err)
	}
	if status, answer := f.do("POST", "/api/v1/endpoints/e1/drain", `{"drain":false}`); status != 400 || !strings.Contains(answer, "no such field") {
		t.Errorf("drain, and yet not: %d %s", status, answer)
	}
	if e, err := f.DrainEndpoint(ctx, "e1", true); err != nil || !e.Draining || e.Key != "blue:n:e1" {
		t.Errorf("drain: %+v, %v", e, err)
	}
	if i, err := f.ServiceLBs().Inspect(ctx, "blue:s"); err != nil || i.Oper.NumProviders != 1 || i.Oper.Problem == "" || !i.Oper.Providers[0].Draining {
		t.Errorf("inspection while its provider drains: %+v, %v", i, err)
	}
	if e, err := f.DrainEndpoint(ctx, "blue:n:e1", false); err != nil || e.Draining {
		t.Errorf("drains no more: %+v, %v", e, err)
	}
	if i, err := f.ServiceLBs().Inspect(ctx, "blue:s"); err != nil || i.Oper.Problem != "" {
		t.Errorf("inspection: %+v, %v", i, err)
	}
	if _, err := f.DrainEndpoint(ctx, "nosuch", true); !api.IsNotFound(err) {
		t.Errorf("drain nobody: %v", err)
	}
	if i, err := f.Tenants().Inspect(ctx, "blue"); err != nil || i.Oper.TotalServicelbs != 1 || len(i.Oper.Servicelbs) != 1 || len(i.Config.LinkSets.Servicelbs) != 1 {
		t.Errorf("tenant: %+v, %v", i, err)
	}
	if _, err := f.UpdateEndpoint(ctx, api.UpdateEndpointRequest{ContainerID: "c-e1", Event: api.EventDie}); err != nil {
		t.Fatal(err)
	}
	if got, err = f.Service(ctx, "s:blue"); err != nil || len(got.Providers) != 0 {
		t.Errorf("after its end: %+v, %v", got, err)
	}
	if i, err := f.ServiceLBs().Inspect(ctx, "blue:s"); err != nil || !strings.Contains(i.Oper.Problem, "no endpoint of network blue:n has") {
		t.Errorf("inspection without providers: %+v, %v", i, err)
	}
	if _, err := f.UpdateEndpoint(ctx, update); err != nil {
		t.Fatal(err)
	}
	update.Labels, update.RemovedLabels = nil, []string{"app"}
	if _, err := f.UpdateEndpoint(ctx, update); err != nil {
		t.Fatal(err)
	}
	if got, err = f.Service(ctx, "s:blue"); err != nil || len(got.Providers) != 0 {
		t.Errorf("without its label: %+v, %v", got, err)
	}
	update.Labels, update.RemovedLabels = map[string]string{"app": "web"}, nil
	if _, err := f.UpdateEndpoint(ctx, update); err != nil {
		t.Fatal(err)
	}
	update.Event, update.Labels = api.EventDie, nil
	if _, err := f.UpdateEndpoint(ctx, update); err != nil {
		t.Fatal(err)
	}
	if got, err = f.Service(ctx, "s:blue"); err != nil || len(got.Providers) != 0 {
		t.Errorf("after the end of that endpoint: %+v, %v", got, err)
	}
	for _, id := range []string{"blue:s", "s", "s:red", "none:blue"} {
		if _, err := f.Service(ctx, id); !api.IsNotFound(err) || !strings.Contains(err.Error(), "service:tenant") {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestOfnetShowsDesiredAndActualState: each host's desired and actual state, in text.
func TestOfnetShowsDesiredAndActualState(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	f.addHosts("host1", "idle")
	_, err := f.mem.Update(t.Context(), func(tx store.Tx) error {
		return tables.HostStatuses.Put(tx, tables.HostStatus{
			Host: "host1", Driver: "ovs", Version: "3.1", Updated: "2026-11-21T00:00:00Z", Revision: 9, Ports: 2, Pending: 1,
			Error: "the switch is away", Problems: map[string]string{"blue:n": "has no tunnel"},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	answer := f.must("GET", "/debug/ofnet", "")
	for _, w := range []string{
		"hosts 2", "host host1\n", "desired: 3 endpoints", "network blue:n vxlan", "network blue:tiny vlan 100", " e1 10.1.1.5 02:02:0a:01:01:05 group web identity ",
		"actual: 2 ports programmed, 1 pending, at revision 9, reported 2026-11-21T00:00:00Z (", "ago) by ovs 3.1", "error: the switch is away", "problem: blue:n: has no tunnel",
		"host idle\n", "desired: 0 endpoints", "actual: unknown",
	} {
		if !strings.Contains(answer, w) {
			t.Errorf("no %q in\n%s", w, answer)
		}
	}
	if one := f.must("GET", "/debug/ofnet?host=idle", ""); strings.Contains(one, "host1") || !strings.Contains(one, "host idle") {
		t.Errorf("one host: %s", one)
	}
	if status, _ := f.do("GET", "/debug/ofnet?host=none", ""); status != 404 {
		t.Errorf("unknown host: %d", status)
	}
}

// TestLongListsAreWrittenInPieces: an array in pieces, however long; nothing is an empty one.
func TestLongListsAreWrittenInPieces(t *testing.T) {
	for _, n := range []int{0, 1, 2, 5000} {
		pieces := &pieces{}
		err := writeList(pieces, func(yield func(any) bool) {
			for i := range n {
				if !yield(model.Tenant{Name: model.TenantName(fmt.Sprintf("tenant-with-a-long-name-%d", i))}) {
					return
				}
			}
		})
		var got []model.Tenant
		if err != nil || json.Unmarshal([]byte(pieces.text.String()), &got) != nil || len(got) != n || got == nil {
			t.Errorf("%d: %d, %v", n, len(got), err)
		}
		if n == 5000 && pieces.n < 3 {
			t.Errorf("%d objects came in %d pieces", n, pieces.n)
		}
	}
	var made int
	var endless iter.Seq[any] = func(yield func(any) bool) {
		for yield(strings.Repeat("x", 1000)) {
			made++
		}
	}
	if err := writeList(closed{}, endless); err == nil || made > 1000 {
		t.Errorf("a client that has gone: %v after %d", err, made)
	}
}

type pieces struct {
	text strings.Builder
	n    int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.n++
	return p.text.Write(b)
}

type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
