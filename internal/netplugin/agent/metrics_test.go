package agent

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/pagetest"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

var update = flag.Bool("update", false, "write docs/reference/metrics-netplugin.md")

// scrape returns what Prometheus would have of the agent.
func (b *bed) scrape() testenv.Scrape {
	b.t.Helper()
	out := testenv.Scrape{}
	_, body := do(b.t, http.DefaultClient, http.MethodGet, "http://"+b.agent.RESTAddr().String()+"/metrics", "")
	if err := out.Add("netplugin", "h:9006", body); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// TestMetricsAreListedOnTheirPage: the page of metrics lists what netplugin reports; health, lost attachments and
// problems by kind are among it.
func TestMetricsAreListedOnTheirPage(t *testing.T) {
	b := newBed(t)
	defer http.DefaultClient.CloseIdleConnections()
	b.ready()
	p := &pagetest.Page{
		Name: "metrics-netplugin.md", Command: "go test ./internal/netplugin/agent -run TestMetricsAreListedOnTheirPage -update", Title: "Metrics of netplugin",
		Purpose: "On this page you look up what each metric of netplugin counts; [metrics](../how-to/metrics.md) explains how to scrape and read them.",
	}
	p.Metrics(t, b.agent.Observer.Registry(), store.NewRequests().Collectors()[0])
	p.Check(t, *update)
	_, scraped := do(t, http.DefaultClient, http.MethodGet, "http://"+b.agent.RESTAddr().String()+"/metrics", "")
	pagetest.HasMetrics(t, p.Name, scraped)
	r := request("c1", newSandbox(t))
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	key, well := b.endpoints()[0].Key, b.scrape()
	b.master.gone.Store(true) // else the agent has it put back
	b.put(func(tx store.Tx) error { tables.Endpoints.Delete(tx, key); return nil })
	for _, w := range []string{
		"contiv_netplugin_attachments_without_endpoint 1\n", `contiv_netplugin_condition{condition="attachments",severity="error"} 0`,
		`contiv_netplugin_condition{condition="store",severity="error"} 1`, `contiv_netplugin_problems{kind="network"} 0`, `contiv_netplugin_build_info{driver="fake"`,
	} {
		b.eventually(w, func() error {
			if _, body := do(t, http.DefaultClient, http.MethodGet, "http://"+b.agent.RESTAddr().String()+"/metrics", ""); !strings.Contains(body, w) {
				return fmt.Errorf("not there: %s", body)
			}
			return nil
		})
	}
	testenv.AlertsFire(t, well, b.scrape(), "ContivAttachmentsWithoutEndpoint")
	b.master.gone.Store(false)
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Error(err)
	}
}
