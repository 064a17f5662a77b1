//go:build integration

package slice

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestFlowLogHasRealConnections reads the flow log of both data planes after real connections. It has the
// connections that a rule with log decides, and the ones that an audited policy would
// deny, with the names and labels of both ends, and no others; across SIGHUP, a monitor that
// comes and goes, and a restart.
func TestFlowLogHasRealConnections(t *testing.T) {
	shared(t)
	path := filepath.Join(t.TempDir(), "flow.log") // of both hosts, which append
	c := up(t, testcluster.DriverMixed, "flog", 2, func(cfg *testcluster.Config) { cfg.AgentArgs = []string{"--flow-log", path} })
	c.netctl("tenant create blue", "network create -t blue -e vxlan -s 10.1.1.0/24 net")
	web, db := map[string]string{"app": "web"}, map[string]string{"app": "db"}
	c.add(labelled("w1", "h1", web), labelled("d2", "h2", db), labelled("w2", "h2", web), labelled("d1", "h1", db))
	c.policy("db", "--label", "app=db", "--rule", "in allow app=web tcp/80 log")
	c.policy("trial", "--label", "app=db", "--mode", "audit", "--default-in", "deny")
	c.wants("w1 w2 tcp/80", testcluster.OK) // which no rule logs

	servers := map[string]string{} // by host, where the flow log can have lines
	for host, pair := range map[string][2]string{"h1": {"w2", "d1"}, "h2": {"w1", "d2"}} {
		out, err := c.host(host).Run(t.Context(), "curl", "-s", "http://127.0.0.1:9006/inspect/driver")
		var is struct{ Capabilities struct{ Log, Audit bool } }
		if err != nil || json.Unmarshal([]byte(out), &is) != nil {
			t.Fatal(err, out)
		}
		if is.Capabilities.Log && is.Capabilities.Audit {
			servers[pair[1]] = host
		}
	}
	if len(servers) == 0 {
		t.Fatal("no data plane tells of logged connections")
	}
	clients := map[string]string{"d1": "w2", "d2": "w1"}
	// told connects until the file has both kinds of lines of each server.
	told := func(when, file string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for server, host := range servers {
			for _, kind := range []string{api.FlowLogged, api.FlowWouldDeny} {
				want := api.FlowEvent{
					Host: host, Event: kind, Verdict: "allow", Tenant: "blue", Network: "net", Protocol: "tcp", Direction: "in",
					From:      api.FlowPeer{Container: "bflogm-" + clients[server], Name: "bflogm-" + clients[server], Address: c.addr(clients[server], "4").String(), Labels: web},
					To:        api.FlowPeer{Container: "bflogm-" + server, Name: "bflogm-" + server, Address: c.addr(server, "4").String(), Port: 80, Labels: db},
					Decisions: []api.FlowRule{{Direction: "in", Rule: "1", Policy: "blue:db", Tier: "contiv"}},
				}
				port := "80"
				if kind == api.FlowWouldDeny { // of a port for which the other policy has no rule
					port, want.To.Port, want.Audited = "81", 81, "blue:trial"
					want.Decisions = []api.FlowRule{{Direction: "in", Default: "contiv", Tier: "contiv", Policies: []string{"blue:trial"}}}
				}
				for list := []api.FlowEvent(nil); !has(list, want); list = flowLines(t, file) {
					if ctx.Err() != nil {
						t.Fatalf("%s: no line like %s in:\n%s", when, text([]api.FlowEvent{want}), text(list))
					}
					<-tick.C
					c.ask(clients[server]+" "+server+" tcp/"+port, 300*time.Millisecond)
				}
			}
		}
	}
	told("at first", path)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	for _, e := range flowLines(t, path) {
		if e.Event == api.FlowConnection || e.Event == api.FlowDrop || e.To.Container == "bflogm-w2" {
			t.Errorf("a line that nobody asked for: %+v", e)
		}
	}

	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	for _, h := range c.Hosts() {
		if err := h.Agent().Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	told("after SIGHUP", path)

	c.monitored(t, func() {
		for server, client := range clients {
			c.ask(client+" "+server+" tcp/80", 300*time.Millisecond)
		}
	})
	for _, e := range flowLines(t, path) {
		if e.Event == api.FlowConnection || e.Event == api.FlowNote && strings.Contains(e.Text, "cannot") {
			t.Errorf("a line since somebody else monitors: %+v", e)
		}
	}

	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range c.Hosts() {
		if err := h.RestartAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	told("after a restart", path)
	if after, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(after), string(before)) || len(after) == len(before) {
		t.Errorf("a restart does not append: %v", err)
	}
}

// flowLines reads a flow log as programs do.
func flowLines(t *testing.T, path string) (list []api.FlowEvent) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if !strings.HasSuffix(line, "\n") {
			break // being written
		}
		var e api.FlowEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, e)
	}
	return list
}
