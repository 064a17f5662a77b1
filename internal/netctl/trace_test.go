package netctl

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// startTracing answers each trace so, and sends on what it was asked for.
func startTracing(t *testing.T, answer api.Trace) (url string, asked <-chan api.TraceRequest) {
	t.Helper()
	requests := make(chan api.TraceRequest, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in api.TraceRequest
		text, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/api/v1/analysis/trace" || json.Unmarshal(text, &in) != nil {
			t.Errorf("%s %s: %v", r.URL.Path, text, err)
		}
		requests <- in
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

func TestTraceShowsWhatIsExpectedBesideWhatWasMeasured(t *testing.T) {
	rule := api.FlowRule{Direction: "in", Rule: "web", Policy: "blue:p"}
	answer := api.Trace{
		From: "blue:n:web1", To: "db1", Protocol: "tcp", Source: "10.1.1.2:24113", Destination: "10.1.1.5:80", Verdict: api.ReachYes, Agrees: true,
		Expected: api.Reachability{Verdict: api.ReachYes, Connections: []api.ReachableParts{{Parts: []api.ReachablePart{{Allowed: true, Decisions: []api.FlowRule{{Direction: "out"}, rule}}}}}},
		Hosts: []api.TraceHost{
			{Host: "h1", Sent: true, Answer: "SYN-ACK", Events: []api.FlowEvent{{Event: api.FlowConnection, Verdict: "allow", Decisions: []api.FlowRule{{Direction: "out"}}}}},
			{Host: "h2", Watched: []string{"blue:n:db1"}, Arrived: []string{"blue:n:db1"}, Events: []api.FlowEvent{{Event: api.FlowConnection, Verdict: "allow", Decisions: []api.FlowRule{rule}}}},
		},
	}
	url, asked := startTracing(t, answer)
	r := netctl(t, url, "trace", "web1", "db1", "tcp/80", "--tenant", "blue")
	want := `Host  Step                   Expected                       Measured
----  ----                   --------                       --------
h1    sent                   yes                            yes
h1    data plane             out: no rule matches           allowed: out: no rule matches
h2    data plane             in: rule web of policy blue:p  allowed: in: rule web of policy blue:p
h2    arrived at blue:n:db1  yes                            yes
h1    answer                                                SYN-ACK

The packet of tcp from 10.1.1.2:24113 to 10.1.1.5:80 arrived, as expected.
`
	if r.code != ExitOK || r.out != want {
		t.Errorf("%d %s\nwant %s", r.code, r.out, want)
	}
	if in := <-asked; in != (api.TraceRequest{From: "web1", To: "db1", Port: "tcp/80", Tenant: "blue"}) {
		t.Errorf("asked %+v", in)
	}

	answer.Verdict, answer.Agrees, answer.Hosts[1].Problems = api.ReachNo, false, []string{"it did not answer within 10s"}
	url, _ = startTracing(t, answer)
	if r := netctl(t, url, "trace", "--quiet", "web1", "db1", "tcp/80"); r.code != ExitDenied || r.out != "" {
		t.Errorf("quiet: %+v", r)
	}
	url, _ = startTracing(t, answer)
	var got api.Trace
	if r := netctl(t, url, "trace", "--json", "web1", "db1", "tcp/80"); r.code != ExitDenied || json.Unmarshal([]byte(r.out), &got) != nil || got.Hosts[1].Problems[0] != "it did not answer within 10s" {
		t.Errorf("JSON: %+v", r)
	}
}
