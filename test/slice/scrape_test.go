//go:build integration

package slice

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// scraped is what Prometheus would have after a scrape of all targets that
// answer: values by series, with the target's labels job and instance.
type scraped map[string]float64

var sampleRE = regexp.MustCompile(`(?m)^(contiv_[a-z_]+)(?:\{(.*)\})? (\S+)$`)

// scrape reads netmaster's and every netplugin's metrics; who does not answer is
// left out, as Prometheus does.
func (c *cluster) scrape() scraped {
	out := scraped{}
	take := func(job, instance string, from *testcluster.Namespace, url string) {
		client := from.HTTP()
		defer client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
		if err != nil {
			c.t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			c.t.Errorf("%s: %s: %v\n%s", url, resp.Status, err, text)
		}
		for _, m := range sampleRE.FindAllStringSubmatch(string(text), -1) {
			v, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				c.t.Fatal(m[0], err)
			}
			labels := fmt.Sprintf("job=%q,instance=%q", job, instance)
			if m[2] != "" {
				labels += "," + m[2]
			}
			out[m[1]+"{"+labels+"}"] = v
		}
	}
	take("netmaster", "master:9999", c.Master, c.Masters.MasterURL())
	for _, h := range c.Hosts() {
		take("netplugin", h.Name+":9006", h.NS, "http://127.0.0.1:9006")
	}
	return out
}

// scrapedWhen scrapes until all that is wanted is there: a series (a name, and
// parts that its labels have) with a value of at least so much or, where want is 0
// or less, of at most so much, taken positive.
func (c *cluster) scrapedWhen(what string, want map[string]float64) (s scraped) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	if err := testcluster.Until(ctx, what, func(context.Context) error {
		s = c.scrape()
		for series, least := range want {
			v, there := s.of(series)
			if !there || least > 0 && v < least || least <= 0 && v > -least {
				return fmt.Errorf("%s is %v (there: %v)", series, v, there)
			}
		}
		return nil
	}); err != nil {
		c.t.Error(err)
	}
	return s
}

// of returns the largest value of the series of a name whose labels have all parts:
// `name part part`.
func (s scraped) of(series string) (most float64, there bool) {
	parts := strings.Fields(series)
	for k, v := range s {
		if !matches(k, parts) {
			continue
		}
		if !there || v > most {
			most, there = v, true
		}
	}
	return most, there
}

func matches(series string, parts []string) bool {
	return strings.HasPrefix(series, parts[0]+"{") &&
		!slices.ContainsFunc(parts[1:], func(p string) bool { return !strings.Contains(series, p) })
}

// with returns a copy in which the matching series have another value.
func (s scraped) with(t *testing.T, series string, v float64) scraped {
	t.Helper()
	out, n := maps.Clone(s), 0
	for k := range s {
		if matches(k, strings.Fields(series)) {
			out[k] = v
			n++
		}
	}
	if n == 0 {
		t.Errorf("nothing scraped is %s", series)
	}
	return out
}

// number writes a value as promtool reads it.
func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// stepMinutes is how long each scrape stands in the time that promtool plays.
const stepMinutes = 10

// promTest is a test of `promtool test rules`: scrapes that stand for
// stepMinutes each, with what expressions must answer.
type promTest struct {
	steps  []scraped
	ramps  map[string]float64 // series that grow so much a minute instead
	checks []string
}

// some: an expression has answers in a step, as soon as rates show it.
func (p *promTest) some(step int, expr string) { p.check(step, 2, expr, true) }

// lasting: an expression has answers at the end of a step, when alerts have waited.
func (p *promTest) lasting(step int, expr string) { p.check(step, stepMinutes-1, expr, true) }

// none: an expression has no answer at the end of a step.
func (p *promTest) none(step int, expr string) { p.check(step, stepMinutes-1, expr, false) }

func (p *promTest) check(step, minute int, expr string, some bool) {
	samples := "[]"
	if some {
		expr, samples = "count("+expr+") > bool 0", "[{labels: '{}', value: 1}]"
	}
	p.checks = append(p.checks, fmt.Sprintf("      - {expr: %s, eval_time: %dm, exp_samples: %s}\n", quoted(expr), step*stepMinutes+minute, samples))
}

// quoted is a string of YAML.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func (p *promTest) yaml(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  - name: %s\n    interval: 1m\n    input_series:\n", name)
	all := map[string]bool{}
	for _, s := range p.steps {
		for k := range s {
			all[k] = true
		}
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		var values []string
		was := false
		for _, s := range p.steps {
			v, is := s[k]
			switch {
			case is && !math.IsNaN(v):
				values = append(values, fmt.Sprintf("%sx%d", number(v), stepMinutes-1))
			case was:
				values = append(values, fmt.Sprintf("stale _x%d", stepMinutes-1))
			default:
				values = append(values, fmt.Sprintf("_x%d", stepMinutes))
			}
			was = is
		}
		for r, by := range p.ramps {
			if matches(k, strings.Fields(r)) {
				values = []string{fmt.Sprintf("0+%sx%d", number(by), 3*stepMinutes)}
			}
		}
		fmt.Fprintf(&b, "      - {series: %s, values: '%s'}\n", quoted(k), strings.Join(values, " "))
	}
	b.WriteString("    promql_expr_test:\n" + strings.Join(p.checks, ""))
	return b.String()
}
