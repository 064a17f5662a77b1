//go:build integration

package slice

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestRepliesPassDeniedDirections checks that replies of an allowed connection pass while new
// connections the other way are denied, by in rules, by out rules, on one host
// and across hosts, for all protocols and both families (1.x dropped them).
func TestRepliesPassDeniedDirections(t *testing.T) {
	shared(t)
	onOne(t, all, anywhere(replies))
}

func replies(t *testing.T, driver string, where testcluster.Environment) {
	c := up(t, driver, "reply", 2, in(where))
	c.netctl(
		"tenant create blue",
		"network create -t blue -e vxlan -s 10.1.1.0/24 --subnetv6 fd00:1::/64 net",
		// Nothing may come to c, by an in rule; nothing may leave s, by an out rule.
		"policy create -t blue nothing-in", "policy rule-add -t blue -d in -j deny nothing-in 1",
		"policy create -t blue nothing-out", "policy rule-add -t blue -d out -j deny nothing-out 1",
		"group create -t blue -p nothing-in net clients",
		"group create -t blue -p nothing-out net servers",
	)
	c.add(spec("c", "h1", "blue/net/clients"), spec("near", "h1", "blue/net/servers"), spec("far", "h2", "blue/net/servers"),
		spec("other", "h2", "blue/net"))
	asked := 0
	var lines []string
	for _, server := range []string{"near", "far"} {
		for _, port := range []string{"tcp/80", "udp/80", "icmp"} {
			for _, family := range []string{" 4", " 6"} {
				c.wants("c "+server+" "+port+family, testcluster.OK)
				lines = append(lines, server+" c "+port+family, server+" other "+port+family, "other c "+port+family)
				asked++
			}
		}
	}
	c.denied("after replies have passed", lines...)
	asked += len(lines)
	t.Logf("%d questions: replies passed, new connections the other way did not", asked)
}

// TestChangeReachesEstablished checks that a changed rule applies to
// connections that were established before it, within 1 s, and that they go on
// when it is taken back.
func TestChangeReachesEstablished(t *testing.T) { onOne(t, both, changeReachesEstablished) }

func changeReachesEstablished(t *testing.T, driver string) {
	c := pairUp(t, driver, "change")
	for _, family := range []string{"4", "6"} {
		to := netip.AddrPortFrom(c.addr("s", family), 80).String()
		conns := map[string]net.Conn{}
		for _, network := range []string{"tcp", "udp"} {
			conn, err := c.space("c").Dial(t.Context(), network, to)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conns[network] = conn
			if err := echo(conn, time.Second); err != nil {
				t.Fatalf("%s before the change: %v", network, err)
			}
		}
		until := func(what string, open bool) {
			t.Helper()
			for network, conn := range conns {
				start := time.Now()
				for {
					at := time.Now()
					err := echo(conn, 200*time.Millisecond)
					if (err == nil) == open {
						t.Logf("%s IPv%s: %s %v after the command", network, family, what, at.Sub(start).Round(time.Millisecond))
						break
					}
					// TCP retransmits what was dropped with growing pauses.
					if limit := map[bool]time.Duration{false: time.Second, true: 5 * time.Second}[open]; at.Sub(start) > limit {
						t.Errorf("%s IPv%s: not %s %v after the command: %v", network, family, what, limit, err)
						break
					}
				}
			}
		}
		c.netctl("policy rule-add -t blue -d in -p 50 -j deny p stop")
		until("closed", false)
		c.netctl("policy rule-rm -t blue p stop")
		until("open", true)
	}
}

// echo sends a line and waits for one.
func echo(c net.Conn, timeout time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("who\n")); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 256))
	return err
}
