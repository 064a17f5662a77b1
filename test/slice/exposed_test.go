//go:build integration

package slice

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestServicesAnswerHostsAndClientsOutside checks services for a host's own processes and for a machine that a
// host forwards for: providers on this host and the other one, both families, rules about
// the client's address, no provider left, and a connection through a restart of netplugin.
func TestServicesAnswerHostsAndClientsOutside(t *testing.T) {
	shared(t)
	onOne(t, both, servicesOutside)
}

func servicesOutside(t *testing.T, driver string) {
	c := up(t, driver, "svo", 2)
	h := c.host("h1")
	if s, err := h.AgentState(t.Context()); err != nil {
		t.Fatal(err)
	} else if _, lacks := s.Problems["services from outside"]; lacks {
		t.Skip("this data plane leads nobody outside to services")
	}
	labelled := func(name, host, where string) testcluster.ContainerSpec {
		s := spec(name, host, where)
		s.Labels = map[string]string{"app": name}
		return s
	}
	// First: a host asks by the address of IPv6 that it has towards the outside, and by
	// one that other hosts do not know while it has none.
	c.attachBeyond6(h)
	if out, err := h.Run(t.Context(), "ip", "-6", "route", "add", "default", "via", beyond6.String()); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	c.netctl("network create -e vxlan -s 10.1.8.0/24 -g 10.1.8.1 --subnetv6 fd00:8::/64 --gatewayv6 fd00:8::1 d",
		"policy create some", "policy rule-add -d in -j deny -l tcp -i "+beyondAddr.String()+"/32 some 1", "group create -p some d some",
		"service create -s d -l app=here -p 8000:80:TCP -p 8000:80:UDP --affinity off --ip 10.1.8.201 --ip6 fd00:8::201 here",
		"service create -s d -l app=there -p 8000:80:TCP -p 8000:80:UDP --affinity off --ip 10.1.8.202 --ip6 fd00:8::202 there",
		"service create -s d -l app=shut -p 8000:80:TCP --affinity off --ip 10.1.8.203 shut",
		"service create -s d -l app=away -p 8000:80:TCP --affinity off --ip 10.1.8.204 away",
		"service create -s d -l app=none -p 8000:80:TCP -p 8000:80:UDP --affinity off --ip 10.1.8.205 --ip6 fd00:8::205 none")
	for _, args := range []string{"-4 route add default via " + linkAddr.String(), "-6 route add default via " + link6.String()} {
		if out, err := c.space(beyond).Command(t.Context(), "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v %s", args, err, out)
		}
	}
	c.add(labelled("here", "h1", "default/d"), labelled("there", "h2", "default/d"), labelled("shut", "h1", "default/d/some"), labelled("away", "h2", "default/d/some"))
	until := func(what string, from *testcluster.Namespace, to testcluster.Target, want testcluster.Verdict, by string) {
		t.Helper()
		var a testcluster.Answer
		for end := time.Now().Add(20 * time.Second); ; {
			if a = from.Probe(t.Context(), to, 2*time.Second); a.Verdict == want && (by == "" || a.From == by) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s to %+v: %s by %q, want %s by %q", what, to, a, a.From, want, by)
			}
		}
	}
	clients := map[string]*testcluster.Namespace{"the host": h.NS, "beyond": c.space(beyond)}
	asks := func() {
		t.Helper()
		for who, from := range clients {
			for _, proto := range []string{"tcp", "udp"} {
				for _, base := range []string{"10.1.8.", "fd00:8::"} {
					at := func(last string) testcluster.Target {
						return testcluster.Target{Proto: proto, Addr: netip.MustParseAddr(base + last), Port: 8000}
					}
					until(who, from, at("201"), testcluster.OK, "here")
					until(who, from, at("202"), testcluster.OK, "there")
					until(who, from, at("205"), testcluster.Refused, "")
				}
			}
		}
	}
	asks()
	for _, last := range []string{"203", "204"} { // a rule denies one client's address, wherever the provider is
		at := testcluster.Target{Proto: "tcp", Addr: netip.MustParseAddr("10.1.8." + last), Port: 8000}
		until("the host", h.NS, at, testcluster.OK, "")
		c.probe(beyond, at, testcluster.Denied, "")
	}
	alive := map[string]func() error{}
	for who, from := range clients {
		for last, name := range map[string]string{"201": "here", "202": "there"} {
			conn, err := from.Dial(t.Context(), "tcp", "10.1.8."+last+":8000")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			alive[who+" to "+name] = func() error { return says(conn, name) }
		}
	}
	for _, host := range c.Hosts() {
		if err := host.RestartAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for who, ask := range alive {
		if err := ask(); err != nil {
			t.Errorf("%s, over a restart of netplugin: %v", who, err)
		}
	}
	asks()

	// Where no other route than the default one leads to netmaster, a network over its
	// address would take it away from the host: it is refused.
	away := c.host("h2")
	for _, args := range []string{"add default dev ctl0 src 10.251.0.12", "del 10.251.0.0/24"} {
		if out, err := away.Run(t.Context(), "ip", append([]string{"route"}, strings.Fields(args)...)...); err != nil {
			t.Fatalf("ip route %s: %v %s", args, err, out)
		}
	}
	if out, err := c.Masters.Netctl(t.Context(), "network", "create", "-e", "vxlan", "-s", "10.251.0.0/16", "over"); err == nil || !strings.Contains(out, "10.251.0.") {
		t.Errorf("a network over netmaster's address: %v %s", err, out)
	}
	if out, err := away.Run(t.Context(), "ip", "route", "get", "10.251.0.2"); err != nil || !strings.Contains(out, "ctl0") {
		t.Errorf("netmaster is led to as if it were a service: %v %s", err, out)
	}
}
