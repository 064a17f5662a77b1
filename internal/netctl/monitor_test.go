package netctl

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// tellingAgent answers monitors as a host's agent does: with the given events.
func tellingAgent(t *testing.T, st *memory.Store, host string, events []api.FlowEvent) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		_ = cluster.WatchMonitors(ctx, st, func(list []cluster.MonitorRequest) error {
			for _, r := range list {
				running.Go(func() {
					c, err := api.NewClient(r.Address)
					if err != nil {
						t.Error(err)
						return
					}
					defer c.Close()
					ch := make(chan api.FlowEvent, len(events))
					for _, e := range events {
						ch <- e
					}
					_ = c.DeliverFlows(ctx, r.ID, host, ch) // ends with the monitor
				})
			}
			return nil
		})
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// netctl monitor prints what the agents tell as a table that grows, and names
// the rule that decided.
func TestMonitorNamesTheDecidingRule(t *testing.T) {
	st := memory.New()
	host := model.Host{Name: "host1", VTEP: netip.MustParseAddr("192.0.2.1")}
	if _, err := st.Update(t.Context(), func(tx store.Tx) error { return tables.Hosts.Put(tx, host) }); err != nil {
		t.Fatal(err)
	}
	url := startNetmasterOn(t, st)
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.Local)
	eight := 8
	web := api.FlowPeer{Group: "blue:web", Container: "c1", Address: "10.1.1.2", Port: 40000, Endpoint: "blue:net:cni:host1:c1:eth0"}
	db := api.FlowPeer{Group: "blue:db", Container: strings.Repeat("0123456789abcdef", 4), Address: "10.1.1.3", Port: 5432}
	events := []api.FlowEvent{
		{
			Time: at, Event: api.FlowDrop, Verdict: "deny", Reason: "policy", Tenant: "blue", Network: "net", Protocol: "tcp", From: web, To: db, Count: 1,
			Direction: "in", Decisions: []api.FlowRule{{Direction: "in", Rule: "1", Policy: "blue:db-in"}},
		},
		{
			Time: at.Add(time.Second), Event: api.FlowDrop, Verdict: "deny", Reason: "policy", Protocol: "udp", From: web, To: db, Count: 12,
			Decisions: []api.FlowRule{{Direction: "out", Default: "kubernetes"}},
		},
		{
			Time: at.Add(time.Second), Event: api.FlowDrop, Verdict: "drop", Reason: "unknown-source", Tenant: "blue", Network: "net", Protocol: "icmp", ICMPType: &eight,
			From: api.FlowPeer{Address: "10.1.1.9"}, To: api.FlowPeer{Address: "fd00::1", Endpoint: "blue:net:x:y"}, Count: 1,
		},
		{Time: at.Add(time.Second), Event: api.FlowLost, Count: 77},
		{Time: at.Add(2 * time.Second), Event: api.FlowDrop, Verdict: "drop", Reason: "not-ip", From: api.FlowPeer{MAC: "02:00:00:00:00:01"}, Count: 1},
		{
			Time: at.Add(2 * time.Second), Event: api.FlowConnection, Verdict: "allow", Protocol: "tcp", From: web, To: db, Count: 1,
			Decisions: []api.FlowRule{{Direction: "out"}, {Direction: "in", Rule: "2", Policy: "blue:db-in"}},
		},
		{Time: at.Add(2 * time.Second), Event: api.FlowConnection, Verdict: "allow", Protocol: "sctp", From: web, To: db, Count: 1},
		{
			Time: at.Add(3 * time.Second), Event: api.FlowLogged, Verdict: "allow", Protocol: "tcp", From: web, To: db, Count: 1,
			Decisions: []api.FlowRule{{Direction: "in", Rule: "2", Policy: "blue:db-in"}},
		},
		{
			Time: at.Add(3 * time.Second), Event: api.FlowWouldDeny, Verdict: "allow", Protocol: "tcp", From: web, To: db, Count: 1, Audited: "blue:q",
			Decisions: []api.FlowRule{{Direction: "in", Default: "kubernetes", Policies: []string{"blue:web"}}},
		},
		{
			Time: at.Add(4 * time.Second), Event: api.FlowWouldDeny, Verdict: "allow", Protocol: "tcp", From: web, To: db, Count: 2, Audited: "blue:q", Living: true,
			Decisions: []api.FlowRule{{Direction: "in", Default: "kubernetes", Policies: []string{"blue:web", "blue:db"}, PoliciesLeftOut: 3}},
		},
	}
	tellingAgent(t, st, "host1", events)
	r := netctl(t, url, "monitor", "--count", "9")
	want := `Time          Host      Verdict  Proto   From                            To                              Decided by
07:00:00.000  host1     denied   tcp     blue:web 10.1.1.2:40000 c1      blue:db 10.1.1.3:5432 0123456789ab  in: rule 1 of policy blue:db-in (netctl can blue:net:cni:host1:c1:eth0 10.1.1.3 tcp/5432)
07:00:01.000  host1     denied x12  udp     blue:web 10.1.1.2:40000 c1      blue:db 10.1.1.3:5432 0123456789ab  out: default of tier kubernetes (netctl can blue:net:cni:host1:c1:eth0 10.1.1.3 udp/5432)
07:00:01.000  host1     dropped     icmp/8  10.1.1.9                        fd00::1 x:y                         the source address is unknown (network blue:net)
07:00:01.000  host1     lost                                                                                    77 more packets than could be reported
07:00:02.000  host1     dropped     -       02:00:00:00:00:01               -                                   neither ARP nor IP
07:00:02.000  host1     allowed     tcp     blue:web 10.1.1.2:40000 c1      blue:db 10.1.1.3:5432 0123456789ab  out: no rule matches; in: rule 2 of policy blue:db-in
07:00:02.000  host1     allowed     sctp    blue:web 10.1.1.2:40000 c1      blue:db 10.1.1.3:5432 0123456789ab  no policy
07:00:03.000  host1     log allow   tcp     blue:web 10.1.1.2:40000 c1      blue:db 10.1.1.3:5432 0123456789ab  in: rule 2 of policy blue:db-in
07:00:03.000  host1     would-deny  tcp     blue:web 10.1.1.2:40000 c1      blue:db 10.1.1.3:5432 0123456789ab  in: default of policy blue:web (tier kubernetes), if blue:q were enforced
07:00:04.000  host1     would-deny x2  tcp     blue:web 10.1.1.2:40000 c1      blue:db 10.1.1.3:5432 0123456789ab  in: default of policies blue:web, blue:db, 3 more (tier kubernetes), if blue:q were enforced (lives already)
`
	if diff := cmp.Diff(want, r.out); diff != "" || r.code != ExitOK {
		t.Errorf("exit code %d (-want +got):\n%s", r.code, diff)
	}
	if r.errOut != "netctl: watching host1\n" {
		t.Errorf("standard error: %q", r.errOut)
	}
	r = netctl(t, url, "monitor", "--json", "-n", "1")
	if !strings.Contains(r.out, `"event":"drop","count":1,"verdict":"deny","reason":"policy"`) || strings.Count(r.out, "\n") != 2 {
		t.Errorf("--json printed %q", r.out)
	}
}

// stopper ends a command at its first note.
type stopper struct{ stop context.CancelFunc }

func (s stopper) Write(p []byte) (int, error) {
	s.stop()
	return len(p), nil
}

// Interrupting is how a monitor ends: exit code 0, and nothing on the way.
func TestInterruptedMonitorExitsWith0(t *testing.T) {
	url := startNetmaster(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out strings.Builder
	code := Run(ctx, Env{
		Stdout: &out, Stderr: stopper{cancel},
		Getenv: func(name string) string { return map[string]string{"NETMASTER": url}[name] },
	}, []string{"monitor"})
	if code != ExitOK || out.String() != "" {
		t.Errorf("exit code %d, printed %q", code, out.String())
	}
}

// Each reason that a data plane gives is a sentence: people read it.
func TestDropReasonsAreSentences(t *testing.T) {
	for _, r := range driver.DropReasons {
		got := decidedBy(api.FlowEvent{Event: api.FlowDrop, Reason: r})
		if r != driver.DropPolicy && !strings.Contains(got, " ") {
			t.Errorf("%s: decided by %q", r, got)
		}
	}
}
