//go:build integration

package slice

import (
	"net/http"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// mirror pauses ("pause") or resumes ("resume") what a host learns.
func (c *cluster) mirror(host, verb string) {
	c.t.Helper()
	hc := c.host(host).NS.HTTP()
	defer hc.CloseIdleConnections()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "http://127.0.0.1:9006/debug/mirror/"+verb, http.NoBody)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := hc.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%s the mirror of %s: %s", verb, host, resp.Status)
	}
}

// TestNeverOpenByIgnorance checks that a host that learns nothing for a while
// opens nothing that the new intent denies from a source which it does not
// know: after an endpoint was added, a rule deleted, a group changed elsewhere.
func TestNeverOpenByIgnorance(t *testing.T) {
	shared(t)
	on(t, 2, all, neverOpenByIgnorance)
}

func neverOpenByIgnorance(t *testing.T, driver string) {
	c := up(t, driver, "blind", 2, func(cfg *testcluster.Config) { cfg.AgentEnv = []string{debugEnv} })
	c.netctl(
		"tenant create blue",
		"network create -t blue -e vxlan -s 10.1.1.0/24 --subnetv6 fd00:1::/64 net",
		"group create -t blue net clients", "group create -t blue net strangers",
		"policy create -t blue p",
		"policy rule-add -t blue -d in -p 10 -g clients -j allow p clients",
		"policy rule-add -t blue -d in -p 1 -j deny p nobody",
		"policy create -t blue spare",
		"policy rule-add -t blue -d in -p 1 -j deny spare nobody",
		"group create -t blue -p p net servers",
		"group create -t blue net open",
	)
	c.add(spec("c1", "h1", "blue/net/clients"), spec("s", "h2", "blue/net/servers"), spec("o", "h2", "blue/net/open"))
	c.wants("c1 s tcp/80", testcluster.OK)
	ports := []string{"tcp/80 4", "tcp/80 6", "udp/80 4", "udp/80 6", "icmp 4", "icmp 6"}
	checked := 0
	denied := func(from, to, when string) {
		t.Helper()
		var lines []string
		for _, p := range ports {
			lines = append(lines, from+" "+to+" "+p)
		}
		c.denied(when, lines...)
		checked += len(lines)
	}

	c.mirror("h2", "pause")
	c.add(spec("x1", "h1", "blue/net/strangers"), spec("c2", "h1", "blue/net/clients"))
	denied("x1", "s", "endpoint added while h2 is blind")
	denied("x1", "o", "endpoint added while h2 is blind, destination without policy")
	denied("c2", "s", "endpoint of an allowed group added while h2 is blind")
	c.mirror("h2", "resume")
	for _, p := range ports {
		c.wants("c2 s "+p, testcluster.OK)
		c.wants("x1 o "+p, testcluster.OK)
	}
	denied("x1", "s", "h2 sees again")

	c.mirror("h2", "pause")
	c.netctl("policy rule-rm -t blue p clients")
	c.add(spec("c3", "h1", "blue/net/clients"))
	denied("c3", "s", "rule deleted while h2 is blind")
	c.mirror("h2", "resume")
	for _, from := range []string{"c1", "c2", "c3"} {
		c.wants(from+" s tcp/80", testcluster.Denied)
	}

	c.mirror("h2", "pause")
	c.netctl("group create -t blue -p spare net open")
	c.add(spec("x2", "h1", "blue/net/strangers"))
	denied("x2", "o", "group changed while h2 is blind")
	c.mirror("h2", "resume")
	for _, from := range []string{"x1", "x2", "c1"} {
		c.wants(from+" o tcp/80", testcluster.Denied)
	}
	t.Logf("%d questions asked of a blind host, none let through", checked)
}
