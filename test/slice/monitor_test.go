//go:build integration

package slice

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestMonitorShowsDeniedAndNewConnections checks that netctl monitor, asked at netmaster, shows a denied
// connection of every host with its rule, and a new one with the rule that let
// it through, on both data planes.
func TestMonitorShowsDeniedAndNewConnections(t *testing.T) {
	shared(t)
	c := up(t, testcluster.DriverMixed, "mon", 2)
	c.netctl(
		"tenant create blue",
		"network create -t blue -e vxlan -s 10.1.1.0/24 net",
		"policy create -t blue p",
		"policy rule-add -t blue -d in -p 10 -j deny p shut",
		"policy rule-add -t blue -d in -p 20 -protocol tcp -port 80 -j allow p web",
		"group create -t blue net clients",
		"group create -t blue -p p net servers",
	)
	c.add(spec("c1", "h1", "blue/net/clients"), spec("c2", "h2", "blue/net/clients"),
		spec("s1", "h1", "blue/net/servers"), spec("s2", "h2", "blue/net/servers"))
	for _, server := range []string{"s1", "s2"} { // also warms what a first packet needs
		c.wants("c1 "+server+" tcp/80", testcluster.OK)
	}

	drops := c.monitored(t, func() {
		for _, q := range []string{"c1 s2 udp/80", "c2 s1 udp/80"} {
			if a := c.ask(q, 300*time.Millisecond); a.Verdict != testcluster.Denied {
				t.Errorf("%s: %s, want denied", q, a)
			}
		}
	}, "--drops", "--from", "clients", "--to", "blue:servers")
	conns := c.monitored(t, func() {
		c.ask("c1 s2 tcp/80", 300*time.Millisecond)
		c.ask("c2 s1 tcp/80", 300*time.Millisecond)
	}, "--from", "blue:clients")
	for host, pair := range map[string][2]string{"h1": {"c2", "s1"}, "h2": {"c1", "s2"}} {
		for what, list := range map[string][]api.FlowEvent{"shut": drops, "web": conns} {
			want := api.FlowEvent{
				Host: host, Event: api.FlowDrop, Verdict: "deny", Reason: "policy", Tenant: "blue", Network: "net", Protocol: "udp", Direction: "in",
				From:      api.FlowPeer{Container: "bmonm-" + pair[0], Name: "bmonm-" + pair[0], Group: "blue:clients", Address: c.addr(pair[0], "4").String()},
				To:        api.FlowPeer{Container: "bmonm-" + pair[1], Name: "bmonm-" + pair[1], Group: "blue:servers", Address: c.addr(pair[1], "4").String(), Port: 80},
				Decisions: []api.FlowRule{{Direction: "in", Rule: what, Policy: "blue:p", Tier: "contiv"}},
			}
			if what == "web" {
				want.Event, want.Verdict, want.Reason, want.Protocol, want.Direction = api.FlowConnection, "allow", "", "tcp", ""
			}
			if !has(list, want) {
				t.Errorf("no event like %+v in %d:\n%s", want, len(list), text(list))
			}
		}
	}
}

// monitored runs act until netctl monitor has shown events of both hosts, and
// returns them.
func (c *cluster) monitored(t *testing.T, act func(), args ...string) []api.FlowEvent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := c.Masters.Netctl(ctx, append([]string{"monitor", "--json", "--count", "8"}, args...)...)
		done <- result{out, err}
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case r := <-done:
			if r.err != nil {
				t.Fatal(r.err)
			}
			var list []api.FlowEvent
			for line := range strings.Lines(r.out) {
				var e api.FlowEvent
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				list = append(list, e)
			}
			return list
		case <-tick.C:
			act()
		}
	}
}

// has finds an event, whatever its time, count, MACs, ids and source port.
func has(list []api.FlowEvent, want api.FlowEvent) bool {
	for _, e := range list {
		e.Time, e.Count, e.From.MAC, e.To.MAC, e.From.Endpoint, e.To.Endpoint, e.From.Port = time.Time{}, 0, "", "", "", "", 0
		if text([]api.FlowEvent{e}) == text([]api.FlowEvent{want}) {
			return true
		}
	}
	return false
}

func text(list []api.FlowEvent) string {
	var b strings.Builder
	for _, e := range list {
		line, err := json.Marshal(e)
		if err != nil {
			return err.Error()
		}
		b.Write(append(line, '\n'))
	}
	return b.String()
}
