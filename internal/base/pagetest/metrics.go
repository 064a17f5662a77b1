package pagetest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/base/flags"
)

var (
	// descRE takes apart what prometheus.Desc prints.
	descRE  = regexp.MustCompile(`^Desc\{fqName: "(contiv_[a-z_]+)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	valueRE = regexp.MustCompile(`="[^"]*"`)
	timeRE  = regexp.MustCompile(`_(apply|request|duration)_seconds$`)
	typeRE  = regexp.MustCompile(`(?m)^# TYPE (contiv_\S+) (\S+)$`)
)

// Metrics appends a table of the metrics that collectors describe.
func (p *Page) Metrics(t testing.TB, all ...prometheus.Collector) {
	t.Helper()
	descs := make(chan *prometheus.Desc, 1000)
	for _, c := range all {
		c.Describe(descs)
	}
	close(descs)
	var rows [][]string
	for d := range descs {
		m := descRE.FindStringSubmatch(d.String())
		if m == nil {
			if strings.Contains(d.String(), "contiv_") {
				t.Errorf("cannot read %s", d)
			}
			continue
		}
		labels := valueRE.ReplaceAllString(m[3], "") + "," + m[4]
		rows = append(rows, []string{code(m[1]), metricType(m[1]), strings.Join(flags.Split(labels), ", "), strings.ReplaceAll(m[2], `\"`, `"`)})
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(strings.Trim(a[0], "`"), strings.Trim(b[0], "`")) })
	p.Table([]string{"metric", "type", "labels", "meaning"}, rows...)
}

// metricType is the type of a metric, which its name tells.
func metricType(name string) string {
	switch {
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case timeRE.MatchString(name):
		return "histogram"
	}
	return "gauge"
}

// HasMetrics fails where a scrape has a metric that a page of metrics has not, or has with
// another type.
func HasMetrics(t testing.TB, name, scrape string) {
	t.Helper()
	page := read(t, name)
	found := typeRE.FindAllStringSubmatch(scrape, -1)
	if len(found) < 10 {
		t.Errorf("only %d metrics were scraped", len(found))
	}
	for _, m := range found {
		if !strings.Contains(page, "\n| "+code(m[1])+" | "+m[2]+" |") {
			t.Errorf("%s of type %s is not on docs/reference/%s", m[1], m[2], name)
		}
	}
}
