package agent

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/attach"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TestMetrics: the page of metrics lists what netplugin tells, all and no
// others; health, lost attachments and problems by kind are among it.
func TestMetrics(t *testing.T) {
	b := newBed(t)
	defer http.DefaultClient.CloseIdleConnections()
	b.ready()
	descs := make(chan *prometheus.Desc, 200)
	b.agent.metrics.Describe(descs)
	close(descs)
	name := regexp.MustCompile(`contiv_[a-z_*]+`)
	var want []string
	for d := range descs {
		if n := name.FindString(d.String()); n != "" && !strings.HasPrefix(n, "contiv_netplugin_dns_") {
			want = append(want, n)
		}
	}
	want = append(want, "contiv_netplugin_dns_*_total")
	slices.Sort(want)
	page, err := os.ReadFile("../../docs/user/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(page), "\n## netplugin\n")
	part, _, _ = strings.Cut(part, "\n## netmaster\n")
	got := name.FindAllString(part, -1)
	slices.Sort(got)
	if !slices.Equal(slices.Compact(got), slices.Compact(want)) {
		t.Errorf("the page lists %v,\nthere are %v", got, want)
	}
	r := request("c1", newSandbox(t))
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	key := b.endpoints()[0].Key
	b.master.gone.Store(true) // else the agent has it put back
	b.put(func(tx store.Tx) error { store.Endpoints.Delete(tx, key); return nil })
	for _, w := range []string{
		"contiv_netplugin_attachments_without_endpoint 1\n", `contiv_netplugin_condition{condition="attachments",notice="false"} 0`,
		`contiv_netplugin_condition{condition="store",notice="false"} 1`, `contiv_netplugin_problems{kind="network"} 0`, `contiv_netplugin_build_info{driver="fake"`,
	} {
		b.eventually(w, func() error {
			if _, body := do(t, http.DefaultClient, http.MethodGet, "http://"+b.agent.RESTAddr().String()+"/metrics", ""); !strings.Contains(body, w) {
				return fmt.Errorf("not there: %s", body)
			}
			return nil
		})
	}
	b.master.gone.Store(false)
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Error(err)
	}
}

// TestTrafficSums: a group's sum does not fall when a port goes or its counter
// begins anew.
func TestTrafficSums(t *testing.T) {
	b := newBed(t)
	m := newHostMetrics(b.agent)
	ep := model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "net1"}, ID: "e"}
	total := func(ports map[string]driver.PortStats) uint64 {
		m.sum(ports)
		return m.sums[trafficOf{network: "blue:net1"}].RxBytes
	}
	for i, tt := range []struct {
		ports map[string]driver.PortStats
		want  uint64
	}{
		{map[string]driver.PortStats{"a": {Endpoint: ep, RxBytes: 10}, "b": {Endpoint: ep, RxBytes: 5}}, 15},
		{map[string]driver.PortStats{"a": {Endpoint: ep, RxBytes: 12}}, 17},
		{map[string]driver.PortStats{"a": {Endpoint: ep, RxBytes: 3}, "b": {Endpoint: ep, RxBytes: 1}}, 21},
	} {
		if got := total(tt.ports); got != tt.want {
			t.Errorf("scrape %d: %d, want %d", i, got, tt.want)
		}
	}
}

// TestRuleSeries: of many rules the busiest have series, keep them, and the rest
// is one.
func TestRuleSeries(t *testing.T) {
	m := newHostMetrics(nil)
	all := map[string]driver.RuleStats{}
	for i := range 1000 {
		all[fmt.Sprintf("r%04d", i)] = driver.RuleStats{Packets: uint64(i)}
	}
	got := m.ruleSeries(all)
	if len(got) != maxRuleSeries+1 || got["r0999"].Packets != 999 || got[otherSeries].Packets != 899*900/2 {
		t.Errorf("%d series, other %+v", len(got), got[otherSeries])
	}
	all["r0000"] = driver.RuleStats{Packets: 1 << 40}
	delete(all, "r0998")
	if got = m.ruleSeries(all); len(got) != maxRuleSeries+1 || got["r0000"].Packets != 1<<40 || got["r0900"].Packets != 900 {
		t.Errorf("after a change: %d series, %+v", len(got), got["r0900"])
	}
}
