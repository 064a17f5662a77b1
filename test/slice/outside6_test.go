//go:build integration

package slice

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

var (
	beyond6 = netip.MustParseAddr("2001:db8:7::7")
	link6   = netip.MustParseAddr("2001:db8:7::1")
	host6   = netip.MustParseAddr("fd6d:809b:d5b4::ac13:fffe")
)

// TestContainersReachOutsideByIPv6AsPoliciesSay is what TestContainersReachOutsideAsPoliciesSay checks, by IPv6: containers of two tenants with
// the same addresses reach the host and somebody behind it and not each other, by
// networks with and without a gateway and with IPv6 alone; policies say who may;
// ports are published; names are answered; the host reaches its containers.
func TestContainersReachOutsideByIPv6AsPoliciesSay(t *testing.T) {
	shared(t)
	onOne(t, both, anywhere(outsideBySix))
}

func outsideBySix(t *testing.T, driver string, where testcluster.Environment) {
	c := up(t, driver, "six", 1, in(where))
	h := c.host("h1")
	c.netctl(
		"tenant create blue", "tenant create red",
		"network create -t blue -e vxlan -s 10.1.1.0/24 --subnetv6 2001:db8:1::/64 vx",
		"network create -t red -e vxlan -s 10.1.1.0/24 --subnetv6 2001:db8:1::/64 vx",
		"network create -t blue -e vxlan -s 10.1.2.0/24 -g 10.1.2.254 --subnetv6 2001:db8:2::/64 --gatewayv6 2001:db8:2::1 gw",
		"network create -t blue -e vlan --subnetv6 2001:db8:3::/64 only",
		"policy create -t blue some",
		"policy rule-add -t blue -d out -j deny -l tcp -P 80 some 1",
		"policy rule-add -t blue -d in -j deny -l tcp -P 81 some 2",
		"group create -t blue -p some vx some",
	)
	c.attachBeyond6(h)
	c.add(spec("b", "h1", "blue/vx"), spec("r", "h1", "red/vx")) // first: they get the same address
	c.add(spec("g", "h1", "blue/gw"), spec("v", "h1", "blue/only"), spec("p", "h1", "blue/vx/some"))
	if c.addr("b", "6") != c.addr("r", "6") {
		t.Fatalf("the tenants' containers have %s and %s, not the same address", c.addr("b", "6"), c.addr("r", "6"))
	}
	if _, err := c.Serve("p", "tcp/81"); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"b", "r", "g", "v"} {
		for _, to := range []testcluster.Target{
			{Proto: "icmp", Addr: beyond6},
			{Proto: "tcp", Addr: beyond6, Port: 80},
			{Proto: "udp", Addr: beyond6, Port: 80},
			{Proto: "icmp", Addr: host6},
			{Proto: "icmp", Addr: link6},
		} {
			c.probe(from, to, testcluster.OK, "")
		}
	}
	c.probe("b", testcluster.Target{Proto: "tcp", Addr: link6, Port: 9}, testcluster.Refused, "") // the host's own answer
	c.probe("p", testcluster.Target{Proto: "tcp", Addr: beyond6, Port: 80}, testcluster.Denied, "")
	c.probe("p", testcluster.Target{Proto: "udp", Addr: beyond6, Port: 80}, testcluster.OK, beyond)
	c.probe("g", testcluster.Target{Proto: "tcp", Addr: netip.MustParseAddr("fd6d:809b:d5b4::ac13:1"), Port: 80}, testcluster.Denied, "") // a private address

	// The host reaches them, each by its own; in rules say at what.
	reached := map[string]netip.Addr{}
	for a := netip.MustParseAddr("fd6d:809b:d5b4::ac13:1"); len(reached) < 5; a = a.Next() {
		got := h.NS.Probe(t.Context(), testcluster.Target{Proto: "tcp", Addr: a, Port: 80}, 3*time.Second)
		if got.Verdict != testcluster.OK || reached[got.From].IsValid() {
			t.Fatalf("the host at %s: %s by %q, after %v", a, got, got.From, reached)
		}
		reached[got.From] = a
		if got := h.NS.Probe(t.Context(), testcluster.Target{Proto: "icmp", Addr: a}, 3*time.Second); got.Verdict != testcluster.OK {
			t.Errorf("the host pings %s: %s", a, got)
		}
	}
	if got := h.NS.Probe(t.Context(), testcluster.Target{Proto: "tcp", Addr: reached["p"], Port: 81}, 2*time.Second); got.Verdict != testcluster.OK {
		t.Errorf("the host at a port that p's policy denies to all others: %s", got)
	}

	publish := func(name string, ports ...attach.PortBinding) {
		t.Helper()
		if _, err := h.Attach().Publish(t.Context(), attach.PublishRequest{Key: c.key(name), Ports: ports}); err != nil {
			t.Fatal(err)
		}
	}
	tcp := func(host, cont uint16) attach.PortBinding {
		return attach.PortBinding{Proto: model.ProtoTCP, HostPort: host, ContainerPort: cont}
	}
	publish("b", tcp(8080, 80), attach.PortBinding{Proto: model.ProtoUDP, HostPort: 8080, ContainerPort: 80})
	publish("r", tcp(8081, 80))
	publish("v", tcp(8084, 80))
	publish("p", tcp(8082, 80), tcp(8083, 81))
	published := func() {
		t.Helper()
		for port, name := range map[uint16]string{8080: "b", 8081: "r", 8082: "p", 8084: "v"} {
			if got := h.NS.Probe(t.Context(), testcluster.Target{Proto: "tcp", Addr: netip.IPv6Loopback(), Port: port}, 3*time.Second); got.From != name {
				t.Errorf("the host at [::1]:%d: %s by %q, want %s", port, got, got.From, name)
			}
			c.probe(beyond, testcluster.Target{Proto: "tcp", Addr: link6, Port: port}, testcluster.OK, name)
			c.probe("g", testcluster.Target{Proto: "tcp", Addr: link6, Port: port}, testcluster.OK, name)
		}
		c.probe(beyond, testcluster.Target{Proto: "tcp", Addr: linkAddr, Port: 8080}, testcluster.OK, "b") // by IPv4 too
		c.probe(beyond, testcluster.Target{Proto: "udp", Addr: link6, Port: 8080}, testcluster.OK, "b")
		if got := h.NS.Probe(t.Context(), testcluster.Target{Proto: "udp", Addr: netip.IPv6Loopback(), Port: 8080}, 3*time.Second); got.From != "b" {
			t.Errorf("the host at [::1]:8080 by UDP: %s by %q", got, got.From)
		}
		c.probe(beyond, testcluster.Target{Proto: "tcp", Addr: link6, Port: 8083}, testcluster.Denied, "") // by an in rule
		if got := h.NS.Probe(t.Context(), testcluster.Target{Proto: "tcp", Addr: netip.IPv6Loopback(), Port: 8083}, 2*time.Second); got.Verdict == testcluster.OK {
			t.Errorf("the host at [::1]:8083, which a policy denies: %s", got)
		}
	}
	published()
	for _, name := range []string{"b", "v"} {
		if got := c.askName(name, "["+beyond6.String()+"]:53", "nobody.blue."); got != "NXDOMAIN, with authority" {
			t.Errorf("%s asks for a name of its tenant by IPv6: %s", name, got)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := c.space("b").Dial(ctx, "tcp", "["+beyond6.String()+"]:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := errors.Join(echo(conn, 3*time.Second), h.KillAgent(), echo(conn, 3*time.Second), h.StartAgent(t.Context()), echo(conn, 3*time.Second)); err != nil {
		t.Errorf("a connection over a restart of netplugin: %v", err)
	}
	published()
}

// attachBeyond6 is attachBeyond with addresses of IPv6 too.
func (c *cluster) attachBeyond6(h *testcluster.Host) {
	c.t.Helper()
	c.attachBeyond(h)
	for _, x := range []struct {
		in   *testcluster.Namespace
		args string
	}{{h.NS, link6.String() + "/64 dev up0"}, {c.space(beyond), beyond6.String() + "/64 dev o0"}} {
		args := append([]string{"addr", "add"}, append(strings.Fields(x.args), "nodad")...)
		if out, err := x.in.Command(c.t.Context(), "ip", args...).CombinedOutput(); err != nil {
			c.t.Fatalf("ip %s: %v %s", args, err, out)
		}
	}
}

// askName asks a name server over UDP, and tells what it says.
func (c *cluster) askName(from, server, name string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	conn, err := c.space(from).Dial(ctx, "udp", server)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	q := mdns.Conn{Conn: conn}
	if err := errors.Join(conn.SetDeadline(time.Now().Add(5*time.Second)), q.WriteMsg(new(mdns.Msg).SetQuestion(name, mdns.TypeAAAA))); err != nil {
		return err.Error()
	}
	m, err := q.ReadMsg()
	if err != nil {
		return err.Error()
	}
	if m.Authoritative {
		return mdns.RcodeToString[m.Rcode] + ", with authority"
	}
	return mdns.RcodeToString[m.Rcode]
}
