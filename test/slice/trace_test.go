//go:build integration

package slice

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestTracedPacketMeetsWhatCanExpects sends traced packets that policies allow and deny, on one
// host, between hosts, by both families and to a service. What is measured is what is expected,
// and an allowed packet leaves no connection behind.
func TestTracedPacketMeetsWhatCanExpects(t *testing.T) {
	shared(t)
	onOne(t, append(both[:2:2], testcluster.DriverMixed), tracedPackets)
}

func tracedPackets(t *testing.T, driver string) {
	c := up(t, driver, "trace", 2)
	c.netctl(
		"tenant create blue",
		"network create -t blue -e vxlan -s 10.1.1.0/24 -g 10.1.1.254 --subnetv6 fd00:1::/64 --gatewayv6 fd00:1::fe net",
		"policy create -t blue p",
		"policy rule-add -t blue -d in -p 10 -j deny p shut",
		"policy rule-add -t blue -d in -p 20 -protocol tcp -port 80 -j allow p web",
		"policy rule-add -t blue -d in -p 20 -protocol udp -port 53 -j allow p names",
		"policy create -t blue q",
		"policy rule-add -t blue -d in -p 10 -j deny q closed",
		"group create -t blue -p q net clients",
		"group create -t blue -p p net servers",
		"service create -t blue -s net -l app=web -p 8000:80:TCP --ip 10.1.1.100 web",
	)
	server := func(name, host string) testcluster.ContainerSpec {
		s := spec(name, host, "blue/net/servers")
		s.Labels = map[string]string{"app": "web"}
		return s
	}
	c.add(spec("c1", "h1", "blue/net/clients"), server("s1", "h1"), server("s2", "h2"))
	c.wants("c1 s1 tcp/80", testcluster.OK)
	c.wants("c1 s2 tcp/80", testcluster.OK)
	trace := func(from, to, port string) (out api.Trace) {
		t.Helper()
		text, err := c.Masters.Netctl(t.Context(), "trace", "--json", "--tenant", "blue", from, to, port)
		if bad := json.NewDecoder(strings.NewReader(text)).Decode(&out); bad != nil { // a sentence follows if it did not arrive
			t.Fatal(err, bad, text)
		}
		return out
	}
	named := func(name string) string { return "btrace" + driver[:1] + "-" + name }
	for _, is := range []struct {
		to, port, verdict, rule, answer string
		host                            string // whose data plane decides last
	}{
		{named("s1"), "tcp/80", "yes", "web", "SYN-ACK", "h1"},
		{named("s2"), "tcp/80", "yes", "web", "SYN-ACK", "h2"},
		{named("s1"), "udp/80", "no", "shut", "", "h1"},
		{named("s2"), "udp/80", "no", "shut", "", "h2"},
		{named("s2"), "udp/53", "yes", "names", "ICMP: nothing listens at the port", "h2"},
		{named("s2"), "icmp", "no", "shut", "", "h2"},
		{c.addr("s2", "6").String(), "tcp/80", "yes", "web", "SYN-ACK", "h2"},
		{c.addr("s2", "6").String(), "icmp6", "no", "shut", "", "h2"},
		{"service:web", "tcp/8000", "yes", "web", "SYN-ACK", ""},
	} {
		got := trace(named("c1"), is.to, is.port)
		var answers []string
		var events []api.FlowEvent
		for _, h := range got.Hosts {
			if len(h.Problems) > 0 {
				t.Errorf("%s %s: %s: %q", is.to, is.port, h.Host, h.Problems)
			}
			if h.Answer != "" {
				answers = append(answers, h.Answer)
			}
			events = append(events, h.Events...)
		}
		decided := slices.ContainsFunc(events, func(e api.FlowEvent) bool {
			return (is.host == "" || e.Host == is.host) && slices.ContainsFunc(e.Decisions, func(d api.FlowRule) bool { return d.Direction == "in" && d.Rule == is.rule })
		})
		if got.Verdict != is.verdict || !got.Agrees || got.Expected.Verdict != is.verdict || strings.Join(answers, " ") != is.answer || !decided {
			t.Errorf("%s %s: want %s by rule %q, answer %q: %+v", is.to, is.port, is.verdict, is.rule, is.answer, got)
		}
	}

	// The answer to a connection comes in; what comes back where a traced packet left does not.
	for what, is := range map[string]struct {
		from    func() netip.AddrPort
		replied bool
	}{
		"a traced packet": {func() netip.AddrPort {
			return netip.MustParseAddrPort(trace(named("c1"), named("s2"), "udp/53").Source)
		}, false},
		"a container's own packet": {func() netip.AddrPort { return netip.AddrPortFrom(c.addr("c1", "4"), 19999) }, true},
	} {
		at := is.from()
		var here, there net.PacketConn
		listen := func(name string, at netip.AddrPort) (conn net.PacketConn) {
			t.Helper()
			if err := c.space(name).Do(func() (err error) {
				conn, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp4", at.String())
				return err
			}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		to := netip.AddrPortFrom(c.addr("s2", "4"), 53)
		here, there = listen("c1", at), listen("s2", to)
		if is.replied {
			if _, err := here.WriteTo([]byte("question"), net.UDPAddrFromAddrPort(to)); err != nil {
				t.Fatal(err)
			}
			_ = there.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, _, err := there.ReadFrom(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := there.WriteTo([]byte("answer"), net.UDPAddrFromAddrPort(at)); err != nil {
			t.Fatal(err)
		}
		patience := 5 * time.Second
		if !is.replied {
			patience = 500 * time.Millisecond
		}
		_ = here.SetReadDeadline(time.Now().Add(patience))
		_, _, err := here.ReadFrom(make([]byte, 100))
		if replied := err == nil; replied != is.replied || err != nil && !os.IsTimeout(err) {
			t.Errorf("after %s, an answer comes in: %v, want %v (%v)", what, replied, is.replied, err)
		}
		here.Close()
		there.Close()
	}
}
