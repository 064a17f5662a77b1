//go:build integration

package slice

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// scraped is what Prometheus would have after a scrape of all targets that
// answer: values by series, with the target's labels job and instance.
type scraped testenv.Scrape

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
		if err := testenv.Scrape(out).Add(job, instance, string(text)); err != nil {
			c.t.Fatal(err)
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

// stepMinutes is how long each scrape stands in the time that promtool plays.
const stepMinutes = 10

// promTest plays scrapes that stand for stepMinutes each.
type promTest struct{ testenv.Replay }

func newPromTest(steps []scraped) *promTest {
	p := &promTest{testenv.Replay{Minutes: stepMinutes}}
	for _, s := range steps {
		p.Steps = append(p.Steps, testenv.Scrape(s))
	}
	return p
}

// some: an expression has answers in a step, as soon as rates show it.
func (p *promTest) some(step int, expr string) { p.Check(step, 2, expr, true) }

// none: an expression has no answer at the end of a step.
func (p *promTest) none(step int, expr string) { p.Check(step, stepMinutes-1, expr, false) }

// alertsFire: alerts fire by what was scraped after a fault, and did not before.
func (c *cluster) alertsFire(before, after scraped, alerts ...string) {
	c.t.Helper()
	testenv.AlertsFire(c.t, testenv.Scrape(before), testenv.Scrape(after), alerts...)
}
