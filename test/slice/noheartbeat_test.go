//go:build integration

package slice

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestHostWithoutHeartbeatKeepsItsProviders: a host that netmasters do not hear of keeps its providers while it
// answers probes; one that does not answer either gets no new connections, until it
// answers.
func TestHostWithoutHeartbeatKeepsItsProviders(t *testing.T) {
	shared(t)
	onOne(t, both, hostWithoutHeartbeat)
}

func hostWithoutHeartbeat(t *testing.T, driver string) {
	c := up(t, driver, "silent", 2)
	c.netctl("tenant create blue", "network create -t blue -s 10.1.0.0/24 -g 10.1.0.254 net",
		"service create -t blue -s net -l app=web -p 8000:80:TCP --affinity off --ip 10.1.0.100 web")
	for i, host := range []string{"h1", "h2"} {
		s := spec(fmt.Sprint("web", i+1), host, "blue/net")
		s.Labels = map[string]string{"app": "web"}
		c.add(s)
	}
	c.add(spec("c", "h1", "blue/net"))
	answers := func(want ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			got := map[string]bool{}
			for range 40 {
				a := c.space("c").Probe(ctx, testcluster.Target{Proto: "tcp", Addr: netip.MustParseAddr("10.1.0.100"), Port: 8000}, 2*time.Second)
				if a.Verdict != testcluster.OK {
					return fmt.Errorf("a connection: %s", a)
				}
				got[a.From] = true
			}
			if now := slices.Sorted(maps.Keys(got)); !slices.Equal(now, want) {
				return fmt.Errorf("%v answer", now)
			}
			return nil
		}
	}
	peers := func(state string) func(context.Context) error {
		return func(ctx context.Context) error {
			out, err := c.host("h1").Run(ctx, "curl", "-s", "http://127.0.0.1:9006/metrics")
			if err == nil && !strings.Contains(out, fmt.Sprintf("\ncontiv_netplugin_peers{state=%q} 1\n", state)) {
				err = fmt.Errorf("none is %s", state)
			}
			return err
		}
	}
	cable := func(link string, up bool) {
		t.Helper()
		if err := c.host("h2").NS.SetLink(link, up); err != nil {
			t.Fatal(err)
		}
	}
	isAway := func(want bool) func(context.Context) error {
		return func(ctx context.Context) error {
			h, err := c.client().Host(ctx, "h2")
			if err == nil && (h.State == "away") != want {
				err = fmt.Errorf("it is %s", h.State)
			}
			return err
		}
	}
	echos := func(ctx context.Context) (int, error) {
		out, err := c.host("h2").Run(ctx, "nstat", "-asz", "IcmpInEchos")
		if err != nil {
			return 0, err
		}
		f := strings.Fields(out)
		for i, word := range f {
			if word == "IcmpInEchos" && i+1 < len(f) {
				return strconv.Atoi(f[i+1])
			}
		}
		return 0, fmt.Errorf("nstat says %q", out)
	}

	c.until("both to answer", answers("web1", "web2"))
	c.until("h2 to have answered a probe", peers("answering"))
	before, err := echos(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cable("ctl0", false)
	c.until("h2 to be away", isAway(true))
	c.until("h2 to be probed, more often than it would take", func(ctx context.Context) error {
		now, err := echos(ctx)
		if err == nil && now < before+5 {
			err = fmt.Errorf("%d probes", now-before)
		}
		return err
	})
	if err := answers("web1", "web2")(t.Context()); err != nil {
		t.Errorf("h2 is away, and answers: %v", err)
	}
	if err := peers("answering")(t.Context()); err != nil {
		t.Errorf("h2 is away, and answers: %v", err)
	}

	cable("eth0", false)
	c.until("h2 to be silent", peers("silent"))
	c.until("new connections to go to the other only", answers("web1"))
	cable("eth0", true)
	c.until("h2 to have answered again", peers("answering"))
	c.until("both to answer, though h2 is away", answers("web1", "web2"))
	if err := isAway(true)(t.Context()); err != nil {
		t.Error(err)
	}
	cable("eth0", false)
	c.until("h2 to be silent again", peers("silent"))
	cable("eth0", true)
	cable("ctl0", true)
	c.until("h2 to be back", isAway(false))
	c.until("both to answer", answers("web1", "web2"))
}
