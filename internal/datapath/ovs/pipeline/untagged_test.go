package pipeline

import (
	"slices"
	"strings"
	"testing"
)

// Between the uplink and the host's interface to routers untagged frames pass, either
// way, and no others; without one of the two nothing is said of the other.
func TestUntaggedFramesReachTheRouterInterfaceOnly(t *testing.T) {
	classified := func(c Config) (out []string) {
		for line := range strings.Lines(text(t, Base(c))) {
			if strings.HasPrefix(line, "table=0,") || strings.Contains(line, " table=0,") {
				out = append(out, strings.TrimSpace(line))
			}
		}
		return out
	}
	for _, c := range []Config{{Tunnel: 1, Uplink: 2}, {Tunnel: 1, Router: 9}} {
		if lines := classified(c); slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "output") }) {
			t.Errorf("%+v: %s", c, strings.Join(lines, "\n"))
		}
	}
	both := classified(Config{Tunnel: 1, Uplink: 2, Router: 9})
	for _, want := range []struct{ in, out string }{{"in_port=2", "output:9"}, {"in_port=9", "output:2"}} {
		if !slices.ContainsFunc(both, func(l string) bool {
			return strings.Contains(l, want.in+",") && strings.Contains(l, "vlan_tci=0x0000/0x1fff") && strings.HasSuffix(l, want.out)
		}) {
			t.Errorf("%s does not lead to %s", want.in, want.out)
		}
	}
}
