package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// Every host of the cluster is in the answer: as it reported, or with the reason why it did not.
func TestVerificationNamesEveryHost(t *testing.T) {
	f := serveWith(t, func(c *Config) { c.Address = "10.0.0.9:9999" })
	f.alive("h1", "h2", "old")
	f.addHosts("away")
	f.answerAs(func(r cluster.MonitorRequest) (out []func(*api.Client) error) {
		if r.Report != cluster.ReportVerification {
			t.Errorf("asked %+v", r)
		}
		for host, v := range map[string]api.HostVerification{
			"h1":       {Host: "h2", Rows: 12, Entries: 30, Revision: 7},
			"h2":       {Rows: 12, Entries: 31, Differences: make([]string, 1000)},
			"intruder": {Rows: 1},
		} {
			out = append(out, func(c *api.Client) error {
				text, err := json.Marshal(v)
				return errors.Join(err, c.DeliverReport(t.Context(), r.ID, host, bytes.NewReader(text)))
			})
		}
		return append(out, func(c *api.Client) error { // an agent of before reports
			none := make(chan api.FlowEvent)
			close(none)
			if err := c.DeliverFlows(t.Context(), r.ID, "old", none); !api.IsNotFound(err) {
				return fmt.Errorf("an older agent hears %w", err)
			}
			return nil
		})
	})
	v, err := f.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Hosts) != 4 || v.IsProven() {
		t.Fatalf("%+v", v)
	}
	if h := v.Hosts[0]; h.Host != "away" || h.Error != "it is away" {
		t.Errorf("a host that is away: %+v", h)
	}
	if h := v.Hosts[1]; h.Host != "h1" || h.Rows != 12 || h.Entries != 30 || h.Revision != 7 || h.Error != "" {
		t.Errorf("a host without differences: %+v", h)
	}
	if h := v.Hosts[2]; h.Host != "h2" || len(h.Differences) != mostDifferences {
		t.Errorf("a host with many differences: %+v", h)
	}
	if h := v.Hosts[3]; h.Host != "old" || h.Error == "" {
		t.Errorf("an older agent: %+v", h)
	}
}
