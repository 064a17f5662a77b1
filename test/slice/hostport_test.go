//go:build integration

package slice

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestPublishedPortsLeadToTheirContainers: a runtime publishes ports of the host by CNI's capability: from beyond
// the host, from itself and from its containers they lead to the container, by IPv4 and
// IPv6, at the addresses asked for, under the container's policy and after a restart of
// netplugin; a port that is taken is refused, and DEL ends them.
func TestPublishedPortsLeadToTheirContainers(t *testing.T) {
	shared(t)
	onOne(t, both, anywhere(hostPort))
}

func hostPort(t *testing.T, driver string, where testcluster.Environment) {
	c := up(t, driver, "hport", 1, in(where))
	h := c.host("h1")
	c.netctl(
		"tenant create blue",
		"network create -t blue -e vxlan -s 10.1.1.0/24 --subnetv6 2001:db8:1::/64 net",
		"policy create -t blue p", "policy rule-add -t blue -d in -j deny -l tcp -P 81 p 1",
		"group create -t blue -p p net web",
	)
	c.attachBeyond6(h)
	web := spec("web", "h1", "blue/net/web")
	web.Listen = append(web.Listen, "tcp/81")
	web.Ports = []testcluster.PortMapping{
		{HostPort: 8080, ContainerPort: 80},
		{HostPort: 8080, ContainerPort: 80, Protocol: "udp"},
		{HostPort: 8081, ContainerPort: 81},
		{HostPort: 8082, ContainerPort: 80, HostIP: "127.0.0.1"},
	}
	c.add(web, spec("other", "h1", "blue/net"))
	loop, loop6 := netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()
	own := func(when, proto string, at netip.Addr, port uint16, want testcluster.Verdict) {
		t.Helper()
		a := h.NS.Probe(t.Context(), testcluster.Target{Proto: proto, Addr: at, Port: port}, 3*time.Second)
		if (a.Verdict == testcluster.OK) != (want == testcluster.OK) || want == testcluster.OK && a.From != "web" {
			t.Errorf("%s: the host at %s %s port %d: %s by %q, want %s", when, proto, at, port, a, a.From, want)
		}
	}
	check := func(when string) {
		t.Helper()
		for _, at := range []netip.Addr{linkAddr, link6} {
			for _, from := range []string{beyond, "other"} {
				c.probe(from, testcluster.Target{Proto: "tcp", Addr: at, Port: 8080}, testcluster.OK, "web")
			}
			c.probe(beyond, testcluster.Target{Proto: "udp", Addr: at, Port: 8080}, testcluster.OK, "web")
			c.probe(beyond, testcluster.Target{Proto: "tcp", Addr: at, Port: 8081}, testcluster.Denied, "")
			c.probe(beyond, testcluster.Target{Proto: "tcp", Addr: at, Port: 8082}, testcluster.Refused, "")
		}
		own(when, "tcp", loop, 8080, testcluster.OK)
		own(when, "tcp", loop6, 8080, testcluster.OK)
		own(when, "tcp", loop, 8082, testcluster.OK)
		own(when, "tcp", linkAddr, 8082, testcluster.Refused)
	}
	check("at first")

	second := spec("second", "h1", "blue/net")
	second.Ports = []testcluster.PortMapping{{HostPort: 8080, ContainerPort: 80, HostIP: linkAddr.String()}}
	_, err := c.AddContainer(t.Context(), second)
	if e, is := errors.AsType[*types.Error](err); !is || e.Code != 102 || !strings.Contains(e.Details, "published by") {
		t.Errorf("a port that is taken: %v", err)
	}
	second.Ports[0] = testcluster.PortMapping{HostPort: 8082, ContainerPort: 80, HostIP: link6.String()} // another address
	c.add(second)
	c.probe(beyond, testcluster.Target{Proto: "tcp", Addr: link6, Port: 8082}, testcluster.OK, "second")
	own("beside another", "tcp", loop, 8082, testcluster.OK)
	if err := c.DelContainer(t.Context(), second); err != nil {
		t.Fatal(err)
	}

	if err := h.RestartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("netplugin started anew")
	if err := c.DelContainer(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	own("the container is gone", "tcp", loop, 8080, testcluster.Refused)
	next := spec("web", "h1", "blue/net")
	next.Ports = []testcluster.PortMapping{{HostPort: 8080, ContainerPort: 80}}
	c.add(next)
	own("the next container", "tcp", loop6, 8080, testcluster.OK)
}
