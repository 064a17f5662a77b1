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

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

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

// TestMetrics: the page of metrics lists what netplugin tells, all and no
// others; health, lost attachments and problems by kind are among it.
func TestMetrics(t *testing.T) {
	b := newBed(t)
	defer http.DefaultClient.CloseIdleConnections()
	b.ready()
	descs := make(chan *prometheus.Desc, 200)
	b.agent.Observer.Registry().Describe(descs)
	close(descs)
	name := regexp.MustCompile(`contiv_[a-z_]+`)
	var want []string
	for d := range descs {
		if n := name.FindString(d.String()); n != "" {
			want = append(want, n)
		}
	}
	want = append(want, "contiv_store_request_duration_seconds") // of the store's client
	slices.Sort(want)
	page, err := os.ReadFile("../../../docs/user/metrics.md")
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
