package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// TestPlanCountsWhatItCuts: hosts of servers are asked for the connections of flows that close, and
// hosts that do not answer are named.
func TestPlanCountsWhatItCuts(t *testing.T) {
	f := serveReachableWith(t, func(c *Config) { c.Address = "10.0.0.9:9999" })
	f.alive("host1")
	f.answerAs(func(r cluster.MonitorRequest) []func(*api.Client) error {
		if r.Report != cluster.ReportConnections || !slices.Equal(r.Endpoints, []string{"blue:n:e1"}) {
			t.Errorf("asked %+v", r)
		}
		group := func(from, to, source, destination string, port uint16, n uint64) api.ConnectionGroup {
			return api.ConnectionGroup{From: from, To: to, Source: source, Destination: destination, Protocol: uint8(model.ProtoTCP), Port: port, Count: n}
		}
		text, err := json.Marshal(api.HostConnections{Groups: []api.ConnectionGroup{
			group("blue:n:d1", "blue:n:e1", "10.1.1.10", "10.1.1.5", 80, 3),
			group("blue:n:d2", "blue:n:e1", "10.1.1.11", "10.1.1.5", 80, 4),
			group("blue:n:d1", "blue:n:e1", "10.1.1.10", "10.1.1.5", 81, 8),  // another port
			group("blue:n:e1", "blue:n:d1", "10.1.1.5", "10.1.1.10", 80, 16), // the other direction
			group("", "blue:n:e1", "203.0.113.9", "10.1.1.5", 80, 32),        // from outside
			group("none", "blue:n:e1", "203.0.113.9", "10.1.1.5", 80, 64),    // not readable
		}})
		return []func(*api.Client) error{func(c *api.Client) error {
			return errors.Join(err, c.DeliverReport(t.Context(), r.ID, "host1", bytes.NewReader(text)))
		}}
	})
	if got := f.plan(removeFirst).Cuts; got == nil || got.Connections != 7 || fmt.Sprint(got.Hosts) != "[{host1 7 false }]" {
		t.Errorf("got %+v", got)
	}
	if got := f.plan(allowHTTPS).Cuts; got != nil {
		t.Errorf("of a plan that closes nothing: %+v", got)
	}
}

func TestPlanNamesHostsThatAreAway(t *testing.T) {
	f := serveReachable(t)
	if got := f.plan(removeFirst).Cuts; got == nil || len(got.Hosts) != 1 || got.Hosts[0] != (api.PlannedCut{Host: "host1", Error: "it is away"}) {
		t.Errorf("got %+v", got)
	}
}
