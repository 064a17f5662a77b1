package attachment

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/agent/netmaster"
	"github.com/contiv/netplugin/v2/internal/attach"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestDescribe: what a runtime knows of a container goes to the endpoint at
// netmaster, without labels that it would refuse the whole for.
func TestDescribe(t *testing.T) {
	var got api.UpdateEndpointRequest
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = api.UpdateEndpointRequest{}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.URL.Path != "/plugin/updateEndpoint" {
			t.Errorf("%s: %v", r.URL, err)
		}
		if got.EPCommonName == "gone" {
			http.Error(w, "no such endpoint", http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(srv.Close)
	m, err := netmaster.New("h1", srv.URL, nil, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	k := attach.Key{Container: "ep1", IfName: "eth0"}
	ep := model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "net1"}, ID: "cni:h1:ep1:eth0"}
	a := &Service{masters: m, journal: &journal{entries: map[attach.Key]Entry{
		k:                {State: StateDone, Endpoint: ep},
		{Container: "x"}: {State: StateOwed, Endpoint: ep},
	}}}
	many := map[string]string{"": "no key", "long": strings.Repeat("x", model.MaxLabelValue+1)}
	want := map[string]string{}
	for i := range model.MaxLabels + 5 {
		many[strconv.Itoa(1000+i)] = "v"
		if i < model.MaxLabels {
			want[strconv.Itoa(1000+i)] = "v"
		}
	}
	about := api.UpdateEndpointRequest{Event: api.EventStart, Tenant: "blue", Network: "net1", EndpointID: string(ep.ID), ContainerID: "c1", EPCommonName: "web", Labels: want}
	if err := a.Describe(t.Context(), attach.Description{Key: k, ID: "c1", Name: "web", Labels: many}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(about, got); diff != "" {
		t.Errorf("start (-want +got):\n%s", diff)
	}
	about.Event, about.Labels = api.EventDie, nil
	if err := a.Describe(t.Context(), attach.Description{Key: k, ID: "c1", Name: "web", Labels: many, Stopped: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(about, got); diff != "" {
		t.Errorf("end (-want +got):\n%s", diff)
	}
	for what, d := range map[string]attach.Description{
		"no attachment": {}, "one that goes": {Key: attach.Key{Container: "x"}}, "no endpoint": {Key: k, Name: "gone"},
	} {
		if err := a.Describe(t.Context(), d); !errors.Is(err, model.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestUsableLabels: labels that no policy can select by, however many an image
// has, do not push out those that policies can.
func TestUsableLabels(t *testing.T) {
	labels := map[string]string{"quarantine": "yes", "org.opencontainers.x": "1"}
	for i := range model.MaxLabels {
		labels["0 "+strconv.Itoa(i)] = "x"
	}
	got := usableLabels(labels)
	if len(got) != model.MaxLabels || got["quarantine"] != "yes" {
		t.Errorf("%d labels are kept, quarantine=%q", len(got), got["quarantine"])
	}
}
