package apiserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestHostCountsAreAddedUpByProvider: what hosts have told all of is added up by provider, with shares of
// the connections that have begun; of the others only why nothing of them counts; a
// host that tells again counts once.
func TestHostCountsAreAddedUpByProvider(t *testing.T) {
	stream := &monitorStream{events: make(chan api.FlowEvent, 16), slow: make(chan struct{})}
	tell := func(host, event, provider, text string, total uint64) {
		e := api.FlowEvent{Host: host, Event: event, Text: text, To: api.FlowPeer{Endpoint: provider}}
		if provider != "" {
			e.Served = &api.Served{Connections: 1, Total: total, BytesIn: 10}
		}
		stream.events <- e
	}
	tell("h2", api.FlowCounts, "t:n:a", "", 7) // and then its connection broke
	tell("h1", api.FlowCounts, "t:n:a", "", 1)
	tell("h1", api.FlowDrop, "", "", 0)
	tell("h1", api.FlowCounted, "", "", 0)
	tell("h2", api.FlowCounts, "t:n:a", "", 8)
	tell("h2", api.FlowCounts, "t:n:gone", "", 5)
	tell("h2", api.FlowCounted, "", "", 0)
	tell("h3", api.FlowCounted, "", "its data plane (ovs) does not count", 0)
	tell("stranger", api.FlowCounted, "", "", 0)
	tell("h4", api.FlowCounts, "t:n:b", "", 100) // a part
	stream.events <- api.FlowEvent{Host: "h1", Event: api.FlowCounted}
	c := hostCounts{reported: map[string]map[string]api.Served{}, ended: map[string]string{}}
	hosts := []model.HostName{"h1", "h2", "h3", "h4"}
	if err := c.collect(t.Context(), stream, hosts); err != nil {
		t.Fatal(err)
	}
	got := c.of([]api.ProviderCounts{{Endpoint: "t:n:b", Host: "h4", Health: api.Unhealthy}, {Endpoint: "t:n:a", Host: "h1"}}, hosts)
	want := api.ServiceCounts{
		Providers: []api.ProviderCounts{
			{Endpoint: "t:n:a", Host: "h1", Share: 1, Served: api.Served{Connections: 2, Total: 9, BytesIn: 20}},
			{Endpoint: "t:n:b", Host: "h4", Health: api.Unhealthy},
		},
		Uncounted: map[string]string{"h3": "its data plane (ovs) does not count", "h4": "it does not answer: its netplugin is down, or older than this netmaster"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	close(stream.slow)
	if err := (&hostCounts{}).collect(t.Context(), stream, hosts); err == nil {
		t.Error("what was cut off counts")
	}
}
