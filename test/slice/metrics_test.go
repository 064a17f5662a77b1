//go:build integration

package slice

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// What the scrapes of metrics are of, in order.
const (
	before  = iota // all is well
	after          // there was traffic, allowed and denied
	trouble        // h2's uplink is missing and its tables are full, addresses and tags are used up, h1's data plane was changed
	away           // h2's netplugin has stopped
	lost           // netmaster's data directory was removed
	dark           // netmaster was killed
)

// firing are the alerts that each state makes fire, by the real scrapes.
var firing = map[int][]string{
	trouble: {"ContivHostNotReady", "ContivNotWell", "ContivProblems", "ContivTableFull", "ContivAddressesRunOut", "ContivTagsRunOut", "ContivDrift"},
	away:    {"ContivHostAway", "ContivNotWell"},
	lost:    {"ContivStoreDirectory"},
	dark:    {"ContivNoLeader", "ContivStale", "ContivCondition"},
}

// firedElsewhere are the files of tests that make the other alerts fire, by faults of their own.
var firedElsewhere = map[string]string{
	"ContivAssertionBroken":            "internal/netmaster/apiserver/assertion_test.go",
	"ContivAttachmentsWithoutEndpoint": "internal/netplugin/agent/metrics_test.go",
	"ContivCertificateEnds":            "internal/netplugin/agent/health_test.go",
	"ContivPortsPending":               "internal/netplugin/agent/health_test.go",
	"ContivChangeOnTrial":              "test/slice/confirm_test.go",
	"ContivRolledBack":                 "test/slice/confirm_test.go",
	"ContivFlowLogLoses":               "test/slice/flowflood_test.go",
	"ContivTunnels":                    "test/slice/tunnelprobe_test.go",
	"ContivStoreDown":                  "cmd/netmaster/alerts_test.go",
	"ContivStoreFills":                 "cmd/netmaster/alerts_test.go",
	"ContivLeaderFlaps":                "cmd/netmaster/alerts_test.go",
	"ContivNetmasterSilent":            "cmd/netmaster/alerts_test.go",
	"ContivSpoofing":                   "test/slice/flowflood_test.go",
	"ContivManyHostsAway":              "test/slice/storeaway_test.go",
	"ContivSnapshotFails":              "internal/netmaster/membership/space_test.go",
	"ContivSnapshotOld":                "internal/netmaster/membership/space_test.go",
	"ContivGraceEnds":                  "test/slice/storeaway_test.go",
}

// inTrouble are the panels that show nothing while all is well, panelOf those of
// one data plane.
var (
	inTrouble = map[string]int{"Problems by host": trouble, "Conditions that hosts report": trouble}
	panelOf   = map[string]string{"Evictions": testcluster.DriverEBPF, "Flows of Open vSwitch": testcluster.DriverOVS}
)

// metrics holds the page of metrics, the alert rules and the dashboard to what a
// cluster tells while it is well, and then as it is taken apart.
func (c *cluster) metrics(driver string) {
	c.t.Helper()
	need(c.t, "/usr/bin/promtool")
	root, err := testcluster.Root(c.t.Context(), ".")
	if err != nil {
		c.t.Fatal(err)
	}
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
		if err != nil {
			c.t.Fatal(err)
		}
		return string(text)
	}
	start := time.Now()
	steps := c.states(driver)
	c.t.Logf("metrics of %d states after %v", len(steps), time.Since(start).Round(time.Millisecond))
	c.pagesAreTrue(func(job string) string { return read("docs", "reference", "metrics-"+job+".md") }, driver, steps)

	alerts := read("packaging", "prometheus", "contiv-alerts.yaml")
	play := newPromTest(steps)
	play.none(before, "ALERTS")
	play.none(after, "ALERTS")
	seen := map[string]bool{}
	for step, names := range firing {
		for _, name := range names {
			seen[name] = true
			play.Fires(c.t, step, name)
		}
	}
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(alerts, -1) {
		name, file := m[1], firedElsewhere[m[1]]
		if seen[name] == (file != "") || file != "" && !regexp.MustCompile(`(?i)(alertsFire|\.Fires)\(.*"`+name+`"`).MatchString(read(file)) {
			c.t.Errorf("no fault of a test makes alert %s fire (or two lists have it): here %t, elsewhere %q", name, seen[name], file)
		}
	}
	c.panels(read("packaging", "grafana", "contiv.json"), driver, play)
	play.Run(c.t)
	c.t.Logf("judged after %v", time.Since(start).Round(time.Millisecond))
}

// panels: each query of the dashboard has an answer, a number with the labels
// that its legend names.
func (c *cluster) panels(dashboard, driver string, play *promTest) {
	c.t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(dashboard), &board); err != nil || len(board.Panels) < 20 {
		c.t.Fatalf("%d panels, %v", len(board.Panels), err)
	}
	for _, p := range board.Panels {
		if d := panelOf[p.Title]; d != "" && d != driver {
			continue
		}
		for _, x := range p.Targets {
			step, bad := after, inTrouble[p.Title] != 0
			if bad {
				step = inTrouble[p.Title]
				play.none(after, x.Expr)
			}
			play.some(step, "("+x.Expr+") > -Inf")
			for _, m := range regexp.MustCompile(`\{\{([a-z_]+)\}\}`).FindAllStringSubmatch(x.LegendFormat, -1) {
				play.some(step, fmt.Sprintf("count by (%s) (%s) unless count(%[2]s)", m[1], x.Expr))
			}
		}
	}
}

var (
	rowRE  = regexp.MustCompile("(?m)^\\| `(contiv_[a-z_]+)` \\| [a-z]+ \\| ([a-z_, ]*) \\|")
	nameRE = regexp.MustCompile(`contiv_[a-z_]+`)
	keyRE  = regexp.MustCompile(`[{,]([a-z_]+)="`)
)

// pagesAreTrue: the pages list the metrics that each process reports, all and no others, with
// the labels that they have.
func (c *cluster) pagesAreTrue(page func(job string) string, driver string, steps []scraped) {
	c.t.Helper()
	// Tests of cmd/netmaster, internal/netplugin/bgp, internal/netmaster/apiserver and
	// internal/netmaster/aci/controller have these.
	elsewhere := regexp.MustCompile(`^contiv_(netmaster_kubernetes_|netmaster_aci_|netplugin_bgp_|host_away_seconds$)`)
	for _, job := range []string{"netplugin", "netmaster"} {
		labels := map[string]map[string]bool{} // of each metric
		for _, s := range steps {
			for k := range s {
				if !strings.Contains(k, fmt.Sprintf("job=%q", job)) {
					continue
				}
				name := nameRE.FindString(k)
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					if base := strings.TrimSuffix(name, suffix); strings.HasSuffix(base, "_seconds") {
						name = base
					}
				}
				if labels[name] == nil {
					labels[name] = map[string]bool{}
				}
				for _, m := range keyRE.FindAllStringSubmatch(k, -1) {
					if !slices.Contains([]string{"job", "instance", "le"}, m[1]) {
						labels[name][m[1]] = true
					}
				}
			}
		}
		listed := map[string]bool{}
		for _, row := range rowRE.FindAllStringSubmatch(page(job), -1) {
			name, own := row[1], slices.DeleteFunc(strings.Split(row[2], ", "), func(s string) bool { return s == "" })
			listed[name] = true
			if labels[name] == nil {
				if !elsewhere.MatchString(name) && (driver == testcluster.DriverEBPF || name != "contiv_netplugin_table_evictions_total") {
					c.t.Errorf("%s reports no %s, which its page of metrics lists", job, name)
				}
				continue
			}
			if have := slices.Sorted(maps.Keys(labels[name])); !slices.Equal(have, slices.Sorted(slices.Values(own))) {
				c.t.Errorf("%s: %s has the labels %v, and on its page of metrics %v", job, name, have, own)
			}
		}
		for name := range labels {
			if !listed[name] {
				c.t.Errorf("%s reports %s, which its page of metrics does not list", job, name)
			}
		}
	}
}

// asksService has a container ask a service of its network, front, once somebody answers.
func (c *cluster) asksService(client string) {
	c.t.Helper()
	at := c.addr(client, "4").As4()
	at[3] = 200
	vip := netip.AddrFrom4(at)
	provider := spec("front", "h2", "shop/net")
	provider.Labels = map[string]string{"role": "front"}
	c.netctl("service create -t shop -s net -l role=front -p 80:80:TCP --ip " + vip.String() + " front")
	c.add(provider)
	if err := testcluster.Until(c.t.Context(), "the service to answer", func(ctx context.Context) error {
		if a := c.space(client).Probe(ctx, testcluster.Target{Proto: "tcp", Addr: vip, Port: 80}, time.Second); a.Verdict != testcluster.OK {
			return fmt.Errorf("it is %s", a)
		}
		return nil
	}); err != nil {
		c.t.Error(err)
	}
}

// states brings the cluster from well to dark, and scrapes it in each state.
func (c *cluster) states(driver string) (steps []scraped) {
	c.t.Helper()
	h1, h2 := c.host("h1"), c.host("h2")
	take := func(what string, want map[string]float64) { steps = append(steps, c.scrapedWhen(what, want)) }
	fresh := spec("fresh", "h1", "shop/net")
	c.add(fresh, spec("fresh2", "h2", "shop/net"))
	take("the cluster to be well", map[string]float64{`contiv_host_ready host="h1"`: 1, `contiv_host_ready host="h2"`: 1, `contiv_store_up`: 1})
	c.netctl("network create -t shop -e vlan -s 10.80.0.0/24 -g 10.80.0.1 tagged")
	c.add(spec("v1", "h1", "shop/tagged"), spec("v2", "h2", "shop/tagged"))
	c.wants("fresh fresh2 tcp/80", testcluster.OK)
	c.denied("by the baseline", "bweb bdb tcp/80", "bdb1 bdb tcp/5432")
	c.asksService("fresh")
	if err := c.DelContainer(c.t.Context(), fresh); err != nil {
		c.t.Error(err)
	}
	counted := map[string]float64{
		`contiv_netplugin_drops_total reason="policy"`: 1, `contiv_netplugin_rule_packets_total`: 1,
		`contiv_netplugin_traffic_packets_total network="shop:net"`: 1, `contiv_netplugin_request_seconds_count verb="detach"`: 1,
	}
	if driver == testcluster.DriverEBPF {
		counted[`contiv_netplugin_service_connections_total instance="h1:9006" service="shop:front"`] = 1
		counted[`contiv_netplugin_service_packets_total direction="in" instance="h1:9006" service="shop:front"`] = 1
	}
	take("traffic to be counted", counted)

	c.netctl("network create -t shop -e vxlan -s 10.81.0.0/30 -g 10.81.0.1 tiny", "global set -v "+c.tag("tagged"))
	c.add(spec("only", "h1", "shop/tiny"))
	flags := []string{"--vlan-uplinks", "nosuch0"}
	full := 1.0 // entries of the table that is made to fill
	if driver == testcluster.DriverEBPF {
		full, _ = c.scrape().of(`contiv_netplugin_table_entries instance="h2:9006" table="stations"`)
		flags = append(flags, "--ebpf-map-sizes", fmt.Sprintf("stations=%.0f", full))
	}
	c.relaunch(h2, flags...)
	for i := range 3 { // h2 has room for none of them on eBPF
		c.add(spec(fmt.Sprintf("crowd%d", i), "h1", "shop/net"))
	}
	want := map[string]float64{
		`contiv_host_ready host="h2"`: 0, `contiv_host_problems host="h2"`: 1, `contiv_netplugin_drift_repairs_total instance="h1:9006"`: 1,
	}
	if driver == testcluster.DriverOVS {
		c.run(h2, "ovs-appctl", "-t", filepath.Join(h2.RunDir(), "ovs-vswitchd.ctl"), "dpctl/ct-set-maxconns", "netdev@ovs-netdev", "1")
		c.run(h1, "ovs-ofctl", "-O", "OpenFlow14", "del-flows", filepath.Join(h1.RunDir(), "contivBr.mgmt"))
		want[`contiv_netplugin_table_entries instance="h2:9006" table="conns"`] = 1
		want[`contiv_netplugin_table_capacity instance="h2:9006" table="conns"`] = -1
	} else {
		c.run(h1, "ip", "link", "del", "contivVxlan0")
		want[`contiv_netplugin_table_entries instance="h2:9006" table="stations"`] = full
	}
	take("trouble to be told", want)

	if err := h2.Agent().Stop(20 * time.Second); err != nil {
		c.t.Error(err)
	}
	take("h2 to be away", map[string]float64{`contiv_host_alive host="h2"`: 0})
	if err := os.RemoveAll(filepath.Join(c.Config().Dir, "master", "data")); err != nil {
		c.t.Error(err)
	}
	take("the data directory to be missed", map[string]float64{`contiv_store_directory_lost`: 1})
	if err := c.Process("netmaster").Kill(); err != nil {
		c.t.Error(err)
	}
	take("h1 to follow nothing", map[string]float64{`contiv_netplugin_stale instance="h1:9006"`: 1})
	return steps
}

// tag returns a VLAN network's tag as a range.
func (c *cluster) tag(network string) string {
	c.t.Helper()
	client, err := c.Masters.API()
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	n, err := client.Networks().Inspect(c.t.Context(), "shop:"+network)
	if err != nil {
		c.t.Fatal(err)
	}
	return fmt.Sprintf("%d-%[1]d", n.Oper.PktTag)
}

// relaunch ends a host's netplugin in order and starts it with more flags.
func (c *cluster) relaunch(h *testcluster.Host, flags ...string) {
	c.t.Helper()
	if err := h.Agent().Stop(20 * time.Second); err != nil {
		c.t.Fatal(err)
	}
	p, err := h.LaunchAgentWith(flags)
	if err == nil {
		err = h.WaitAgent(c.t.Context(), p)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) run(h *testcluster.Host, name string, args ...string) {
	c.t.Helper()
	if out, err := h.Run(c.t.Context(), name, args...); err != nil {
		c.t.Errorf("%s %v: %v\n%s", name, args, err, out)
	}
}
