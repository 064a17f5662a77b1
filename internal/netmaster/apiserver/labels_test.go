package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
)

// labelsOf returns the labels of endpoint e1, as populate makes it.
func (f *fixture) labelsOf() map[string]string {
	f.t.Helper()
	n, err := f.Networks().Inspect(f.t.Context(), "blue:n")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, e := range n.Oper.Endpoints {
		if e.EndpointID == "e1" {
			return e.LabelMap
		}
	}
	f.t.Fatal("endpoint e1 is not there")
	return nil
}

// TestLabelsAreRemovedByName: labels go by name, beside others that come; too many and too
// large ones are refused, and then nothing changes.
func TestLabelsAreRemovedByName(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	ctx := t.Context()
	update := api.UpdateEndpointRequest{
		Tenant: "blue", Network: "n", Event: api.EventStart, EndpointID: "e1", Labels: map[string]string{"app": "web", "quarantine": "yes", "tier": "x"},
	}
	if _, err := f.UpdateEndpoint(ctx, update); err != nil {
		t.Fatal(err)
	}
	update.Labels, update.RemovedLabels = map[string]string{"tier": "y"}, []string{"quarantine", "none"}
	for range 2 { // the second time it is gone already
		if _, err := f.UpdateEndpoint(ctx, update); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(map[string]string{"app": "web", "tier": "y"}, f.labelsOf()); d != "" {
			t.Error(d)
		}
	}
	many := map[string]string{}
	for i := range 1000 {
		many[fmt.Sprint("l", i)] = "x"
	}
	before := f.labelsOf()
	for what, change := range map[string]api.UpdateEndpointRequest{
		"1,000":               {Labels: many},
		"a value of 10 kB":    {Labels: map[string]string{"app": strings.Repeat("x", 10_000)}},
		"a name of 10 kB":     {Labels: map[string]string{strings.Repeat("x", 10_000): "app"}},
		"no name":             {Labels: map[string]string{"": "app"}},
		"a terminal's name":   {Labels: map[string]string{"a\u009b31m": "app"}},
		"a name turned round": {Labels: map[string]string{"a\u202eb": "app"}},
		"a terminal's value":  {Labels: map[string]string{"app": "\x1b[2J"}},
		"1,000, and one goes": {Labels: many, RemovedLabels: []string{"tier"}},
	} {
		change.Tenant, change.Network, change.Event, change.EndpointID = "blue", "n", api.EventStart, "e1"
		_, err := f.UpdateEndpoint(ctx, change)
		if err == nil || !strings.Contains(err.Error(), "Labels") || len(err.Error()) > 1000 {
			t.Errorf("%s: %.1100v", what, err)
		}
		if d := cmp.Diff(before, f.labelsOf()); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	update.Labels, update.RemovedLabels = nil, []string{"app", "tier"}
	if _, err := f.UpdateEndpoint(ctx, update); err != nil || len(f.labelsOf()) != 0 {
		t.Errorf("all taken away: %v, %v", err, f.labelsOf())
	}
}

// TestLabelListShowsHowFarEndpointsAre: the list as users see and set it, and how far endpoints are.
func TestLabelListShowsHowFarEndpointsAre(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	ctx := t.Context()
	if _, err := f.UpdateEndpoint(ctx, api.UpdateEndpointRequest{
		Tenant: "blue", Network: "n", Event: api.EventStart, EndpointID: "e1", Labels: map[string]string{"build": "1"},
	}); err != nil {
		t.Fatal(err)
	}
	if g, err := f.Globals().Get(ctx, "global"); err != nil || g.GeneratedLabels != nil {
		t.Fatalf("of a new cluster: %q, %v", g.GeneratedLabels, err)
	}
	set := func(list ...string) []string {
		t.Helper()
		g, err := f.Globals().Create(ctx, api.Global{Name: "global", GeneratedLabels: list})
		if err != nil {
			t.Fatal(err)
		}
		return g.GeneratedLabels
	}
	if got := set("build", "default", "a.", "a/"); cmp.Diff([]string{"default", "a.", "a/", "build"}, got) != "" {
		t.Errorf("with the default: %q", got)
	}
	if got := set(); len(got) != 4 {
		t.Errorf("a change of nothing: %q", got)
	}
	i, err := f.Globals().Inspect(ctx, "global")
	if err != nil || i.Oper.EndpointsToFollow != 1 || cmp.Diff([]string{"default"}, i.Oper.FormerLabels) != "" {
		t.Errorf("inspection: %+v, %v", i.Oper, err)
	}
	if got := set("vcs-ref"); cmp.Diff([]string{"vcs-ref"}, got) != "" {
		t.Errorf("without the default: %q", got)
	}
	if got := set("default"); got != nil {
		t.Errorf("the default again: %q", got)
	}
}

// TestContainerHealthIsShownWithItsEndpoint: a container's health, as its runtime reports it, is shown with its endpoint
// until the next report or the end of the container; other endpoints do not change.
func TestContainerHealthIsShownWithItsEndpoint(t *testing.T) {
	f := serve(t, 0)
	f.populate()
	ctx := t.Context()
	expect := func(when, want string) {
		t.Helper()
		n, err := f.Networks().Inspect(ctx, "blue:n")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range n.Oper.Endpoints {
			if is := map[bool]string{true: want}[e.EndpointID == "e1"]; e.Health != is {
				t.Errorf("%s: endpoint %s is %q, want %q", when, e.EndpointID, e.Health, is)
			}
		}
	}
	update := api.UpdateEndpointRequest{Tenant: "blue", Network: "n", Event: api.EventStart, EndpointID: "e1"}
	tell := func(when, event, health, want string) {
		t.Helper()
		update.Event, update.Health = event, health
		if _, err := f.UpdateEndpoint(ctx, update); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		expect(when, want)
	}
	expect("nothing was said", "")
	tell("ill", api.EventStart, api.Unhealthy, api.Unhealthy)
	tell("nothing is said", api.EventStart, "", api.Unhealthy)
	tell("well", api.EventStart, api.Healthy, "")
	tell("ill again", api.EventStart, api.Unhealthy, api.Unhealthy)
	tell("ended", api.EventDie, "", "")
	update.Event, update.Health = api.EventStart, "fine"
	if _, err := f.UpdateEndpoint(ctx, update); err == nil || !strings.Contains(err.Error(), "Health") {
		t.Errorf("of unknown health: %v", err)
	}
	req := api.CreateEndpointRequest{TenantName: "blue", NetworkName: "n", EndpointID: "ill", ConfigEP: api.ConfigEP{Host: "h1", Health: "fine"}}
	if _, err := f.CreateEndpoint(ctx, req); err == nil || !strings.Contains(err.Error(), "Health") {
		t.Errorf("made with unknown health: %v", err)
	}
	req.ConfigEP.Health = api.Unhealthy
	if _, err := f.CreateEndpoint(ctx, req); err != nil {
		t.Fatal(err)
	}
	n, err := f.Networks().Inspect(ctx, "blue:n")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range n.Oper.Endpoints {
		if e.EndpointID == "ill" && e.Health != api.Unhealthy {
			t.Errorf("made ill, it is %q", e.Health)
		}
	}
}
