//go:build integration

package ovs

import (
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/lab"
)

// TestReplies checks that replies of an allowed connection pass while new
// connections the other way are denied, by in rules, by out rules, on one host
// and across hosts, for all protocols and both families (1.x dropped them).
func TestReplies(t *testing.T) {
	c := up(t, "reply", 2)
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
	for _, server := range []string{"near", "far"} {
		for _, port := range []string{"tcp/80", "udp/80", "icmp"} {
			for _, family := range []string{" 4", " 6"} {
				c.wants("c "+server+" "+port+family, lab.OK)
				for _, line := range []string{server + " c " + port + family, server + " other " + port + family, "other c " + port + family} {
					if a := c.ask(line, 400*time.Millisecond); a.Verdict != lab.Denied || a.Err != nil {
						t.Errorf("%s: %s, want denied", line, a)
					}
				}
				asked += 4
			}
		}
	}
	t.Logf("%d questions: replies passed, new connections the other way did not", asked)
}
