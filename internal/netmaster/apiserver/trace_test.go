package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// traced serves a cluster with web (e1) and db (d1) on host1, whose answer to a trace is given.
func traced(t *testing.T, answer api.TraceHost) (f *fixture, orders func() []cluster.PacketTrace) {
	t.Helper()
	f = serveWith(t, func(c *Config) { c.Address = "10.0.0.9:9999" })
	f.populateReachable()
	f.alive("host1")
	var mu sync.Mutex
	var all []cluster.PacketTrace
	f.answerAs(func(r cluster.MonitorRequest) []func(*api.Client) error {
		if r.Report != cluster.ReportTrace || r.Trace == nil {
			t.Errorf("asked %+v", r)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, *r.Trace)
		return []func(*api.Client) error{func(c *api.Client) error {
			text, err := json.Marshal(answer)
			for _, host := range []string{"intruder", "host1"} { // the first one was not asked
				err = errors.Join(err, c.DeliverReport(t.Context(), r.ID, host, bytes.NewReader(text)))
			}
			return err
		}}
	})
	return f, func() []cluster.PacketTrace {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func TestTraceComparesWhatHostsSawWithWhatIsExpected(t *testing.T) {
	denied := api.FlowEvent{Event: api.FlowDrop, Verdict: "deny", Reason: "policy", Decisions: []api.FlowRule{{Direction: "in", Rule: "rest", Policy: "blue:p"}}}
	for _, c := range []struct {
		name     string
		port     string
		answer   api.TraceHost
		expected string
		verdict  string
		agrees   bool
	}{
		{"allowed, and it arrived", "tcp/80", api.TraceHost{Sent: true, Watched: []string{"blue:n:e1"}, Arrived: []string{"blue:n:e1"}, Answer: "SYN-ACK"}, "yes", "yes", true},
		{"allowed, and nothing came", "tcp/80", api.TraceHost{Sent: true, Watched: []string{"blue:n:e1"}}, "yes", "no", false},
		{"denied, and dropped", "tcp/81", api.TraceHost{Sent: true, Events: []api.FlowEvent{denied}}, "no", "no", true},
		{"denied, but it arrived", "tcp/81", api.TraceHost{Sent: true, Watched: []string{"blue:n:e1"}, Arrived: []string{"blue:n:e1"}}, "no", "yes", false},
		{"it could not be sent", "tcp/80", api.TraceHost{Problems: []string{"no namespace"}}, "yes", "unknown", false},
		{"an error by ICMP is no arrival", "tcp/80", api.TraceHost{Sent: true, Watched: []string{"blue:n:e1"}, Answer: "ICMP: no route to host"}, "yes", "no", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, orders := traced(t, c.answer)
			got, err := f.Trace(t.Context(), api.TraceRequest{From: "d1", To: "e1", Port: c.port})
			if err != nil {
				t.Fatal(err)
			}
			if got.Expected.Verdict != c.expected || got.Verdict != c.verdict || got.Agrees != c.agrees || len(got.Hosts) != 1 || got.Hosts[0].Host != "host1" {
				t.Errorf("%+v", got)
			}
			all := orders()
			if len(all) != 1 {
				t.Fatalf("orders: %+v", all)
			}
			o := all[0]
			if o.Sender.String() != "blue:n:d1" || o.Protocol != model.ProtoTCP || o.Dst.Addr().String() != "10.1.1.5" || len(o.Receivers) != 1 || o.Receivers[0].At != o.Dst || len(o.Payload) != cluster.TracePayload || o.Src.Port() < traceSources {
				t.Errorf("order: %+v", o)
			}
		})
	}
}

func TestTraceRefusesWhatIsNotOnePacket(t *testing.T) {
	f, orders := traced(t, api.TraceHost{})
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{"from":"d1","to":"e1","port":""}`:                {http.StatusBadRequest, "must be one packet's"},
		`{"from":"d1","to":"e1","port":"tcp"}`:             {http.StatusBadRequest, "must be one packet's"},
		`{"from":"d1","to":"e1","port":"tcp/1-2"}`:         {http.StatusBadRequest, "must be one packet's"},
		`{"from":"d1","to":"e1","port":"sctp/5"}`:          {http.StatusBadRequest, "must be one packet's"},
		`{"from":"group:db","to":"e1","port":"tcp/80"}`:    {http.StatusNotFound, "does not exist"},
		`{"from":"internet","to":"e1","port":"tcp/80"}`:    {http.StatusBadRequest, "must be one endpoint"},
		`{"from":"tenant:blue","to":"e1","port":"tcp/80"}`: {http.StatusBadRequest, "must be one endpoint"},
		`{"from":"d1","to":"any","port":"tcp/80"}`:         {http.StatusBadRequest, "must be one endpoint, one service, or one address"},
		`{"from":"d1","to":"e1","port":"icmp6"}`:           {http.StatusBadRequest, "no address of a family"},
		`{"from":"d1","to":"nosuch","port":"tcp/80"}`:      {http.StatusNotFound, "does not exist"},
		`{"from":"d1","to":"e1","port":"tcp/80","x":1}`:    {http.StatusBadRequest, "x"},
	} {
		status, text := f.do(http.MethodPost, "/api/v1/analysis/trace", body)
		if status != want.status || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %s, want %d %q", body, status, text, want.status, want.text)
		}
	}
	if all := orders(); len(all) > 0 {
		t.Errorf("refused, and sent: %+v", all)
	}
}

func TestTraceTakesTheServicesOfATenant(t *testing.T) {
	f, orders := traced(t, api.TraceHost{Sent: true})
	f.must("POST", "/api/v1/serviceLBs/blue:s/", `{"tenantName":"blue","serviceName":"s","networkName":"n","ports":["8000:80:TCP"],"ipAddress":"10.1.1.100","selectors":["app=web"]}`)
	if _, err := f.Trace(t.Context(), api.TraceRequest{From: "d1", To: "service:s", Port: "tcp/8000"}); !api.IsNotFound(err) {
		t.Errorf("a service of another tenant: %v", err)
	}
	if _, err := f.Trace(t.Context(), api.TraceRequest{From: "d1", To: "service:s", Port: "tcp/8000", Tenant: "blue"}); err != nil {
		t.Fatal(err)
	}
	if all := orders(); len(all) != 1 || all[0].Dst.String() != "10.1.1.100:8000" {
		t.Errorf("%+v", all)
	}
}
