package pipeline

import (
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
)

// TestMonitoringKeepsKeysAndCookies: monitoring keeps key and cookie of every flow in the goldens. All flows that
// drop send the packet up first, when drops are wanted; of the others only flows that
// commit connections do, when connections are wanted. Flows that allow note their rule,
// flows that deny by policy lead to the audit, and flows of rules with Log report the
// packet before all else.
func TestMonitoringKeepsKeysAndCookies(t *testing.T) {
	seen := map[string]int{}
	for _, f := range goldenFlows(t) {
		plain := of.ActionsText(f.Actions)
		for _, opts := range []driver.MonitorOptions{{}, {Connections: true}, {NoDrops: true}, {Connections: true, NoDrops: true}} {
			w := MonitoredFlow(f, opts)
			got := of.ActionsText(w.Actions)
			if w.Key() != f.Key() || w.Cookie != f.Cookie {
				t.Errorf("%s became %s", f, w)
			}
			if !IsMonitored(f.Table, f.Cookie, opts) && got != plain {
				t.Errorf("%s is not watchable and became %s", f, w)
			}
			kind, number, _ := KindOf(f.Cookie)
			out, _, policy := PolicyStage(f.Table)
			want, what := plain, "same"
			switch {
			case kind == KindCount: // it drops nothing, it is beside the packet's path
			case plain == "drop" && !opts.NoDrops:
				want, what = "CONTROLLER:256", "drop"
			case plain == "drop" && policy:
				want = ""
			case opts.Connections && Commits(f.Table) && strings.Contains(plain, "ct(commit"):
				want, what = "CONTROLLER:256,"+plain, "commit"
			case opts.Connections && kind == KindAllow && policy:
				want, what = "->reg15,"+plain, "allow"
			}
			if plain == "drop" && policy {
				want = strings.TrimPrefix(want+","+of.ActionsText(denyActions(out)), ",")
			}
			if f.Cookie&LogBit != 0 {
				seen["logged"]++
				if says := of.ActionsText(logActions(kind, number, out)); !strings.HasPrefix(got, says+",") {
					t.Errorf("%s became %s, want first %s", f, w, says)
				} else {
					got = strings.TrimPrefix(got, says+",")
				}
			}
			if !strings.HasSuffix(got, want) || what != "allow" && got != want {
				t.Errorf("%s became %s, want actions %s", f, w, want)
			}
			seen[what]++
		}
	}
	for _, what := range []string{"same", "drop", "commit", "allow", "logged"} {
		if seen[what] == 0 {
			t.Errorf("no flow of kind %s was seen in %v", what, seen)
		}
	}
}
