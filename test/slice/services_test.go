//go:build integration

package slice

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestServiceFollowsItsProviders checks a service from netctl to connections: both families, ports of their
// own, a provider that drains while a connection lives, and no provider left.
func TestServiceFollowsItsProviders(t *testing.T) {
	shared(t)
	onOne(t, both, anywhere(services))
}

// shares: netctl tells what share of the connections each provider gets, within some
// seconds: Open vSwitch counts with a delay.
func (c *cluster) shares(driver string) {
	c.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		out, err := c.share()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			c.t.Errorf("on %s, %v: %s", driver, err, out)
			return
		}
	}
}

// share asks netctl once, and tells what is wrong.
func (c *cluster) share() (string, error) {
	out, err := c.Masters.Netctl(c.t.Context(), "service", "inspect", "-t", "blue", "web")
	var got struct{ Counts api.ServiceCounts }
	if err == nil {
		err = json.Unmarshal([]byte(out), &got)
	}
	sum, all := 0.0, len(got.Counts.Providers) == 2
	for _, p := range got.Counts.Providers {
		sum += p.Share
		all = all && p.Share > 0.1 && p.Served.Total > 10 && p.Served.BytesIn > 0 && p.Served.BytesOut > 0
	}
	if err == nil && (!all || sum < 0.999 || len(got.Counts.Uncounted) != 0) {
		err = errors.New("not all is counted")
	}
	return out, err
}

func services(t *testing.T, driver string, where testcluster.Environment) {
	c := up(t, driver, "svc", 2, in(where))
	web := map[string]string{"app": "web"}
	labelled := func(name, host string) testcluster.ContainerSpec {
		s := spec(name, host, "blue/net")
		s.Labels = web
		return s
	}
	c.netctl("tenant create blue", "network create -t blue -s 10.1.0.0/24 -g 10.1.0.254 --subnetv6 fd00:1::/64 --gatewayv6 fd00:1::fe net",
		"service create -t blue -s net -l app=web -p 8000:80:TCP -p 8000:80:UDP --affinity off --ip 10.1.0.100 --ip6 fd00:1::100 web")
	c.add(labelled("web1", "h1"), labelled("web2", "h2"), spec("c", "h1", "blue/net"))
	v4, v6 := netip.MustParseAddr("10.1.0.100"), netip.MustParseAddr("fd00:1::100")
	answers := func(want ...string) func() bool {
		return func() bool {
			got := map[string]bool{}
			for range 40 {
				for _, target := range []testcluster.Target{{Proto: "tcp", Addr: v4, Port: 8000}, {Proto: "udp", Addr: v4, Port: 8000}, {Proto: "tcp", Addr: v6, Port: 8000}} {
					a := c.space("c").Probe(t.Context(), target, 2*time.Second)
					if a.Verdict != testcluster.OK {
						return false
					}
					got[a.From] = true
				}
			}
			for _, w := range want {
				if !got[w] {
					return false
				}
			}
			return len(got) == len(want)
		}
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !holds(); {
			if time.Now().After(end) {
				t.Fatalf("not within 20 s: %s", what)
			}
		}
	}
	until("both answer", answers("web1", "web2"))
	c.shares(driver)
	third := labelled("web3", "h2")
	c.add(third)
	until("all three answer", answers("web1", "web2", "web3"))
	c.endProvider([]netip.Addr{v4, v6}, third)
	living, err := c.space("c").Dial(t.Context(), "tcp", netip.AddrPortFrom(v4, 8000).String())
	if err != nil {
		t.Fatal(err)
	}
	defer living.Close()
	drains, stays := "web1", "web2"
	if says(living, "web1") != nil {
		drains, stays = stays, drains
	}
	id := c.endpointOf(drains)
	c.netctl("endpoint drain " + id)
	until("new connections go to the other one", answers(stays))
	if err := says(living, drains); err != nil {
		t.Errorf("a living connection to who drains: %v", err)
	}
	c.netctl("endpoint undrain " + id)
	until("both answer again", answers("web1", "web2"))
	c.netctl("endpoint drain "+c.endpointOf("web1"), "endpoint drain "+c.endpointOf("web2"))
	until("nobody answers", func() bool {
		return c.space("c").Probe(t.Context(), testcluster.Target{Proto: "tcp", Addr: v4, Port: 8000}, 2*time.Second).Verdict == testcluster.Refused
	})
	if out, err := c.Masters.Netctl(t.Context(), "service", "inspect", "-t", "blue", "web"); err != nil || !strings.Contains(out, "new connections are refused") {
		t.Errorf("%v: %s", err, out)
	}
}

// endpointOf returns the id of a container's endpoint on blue:net.
func (c *cluster) endpointOf(name string) string {
	c.t.Helper()
	client := c.client()
	defer client.Close()
	list, err := client.Networks().Inspect(c.t.Context(), "blue:net")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range list.Oper.Endpoints {
		if len(e.IPAddress) > 0 && e.IPAddress[0] == c.addr(name, "4").String() {
			return e.EndpointID
		}
	}
	c.t.Fatalf("no endpoint is %s's", name)
	return ""
}
