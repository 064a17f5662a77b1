package apiserver

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// answerAs has hosts answer what netmaster asks of them, as agents do.
func (f *fixture) answerAs(answer func(r cluster.MonitorRequest) []func(*api.Client) error) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		seen := map[string]bool{}
		err := cluster.WatchMonitors(ctx, f.mem, func(list []cluster.MonitorRequest) error {
			for _, r := range list {
				if seen[r.ID] {
					continue
				}
				seen[r.ID] = true
				for _, do := range answer(r) {
					running.Go(func() {
						if err := do(f.Client); err != nil && ctx.Err() == nil {
							f.t.Errorf("deliver: %v", err)
						}
					})
				}
			}
			return nil
		})
		if ctx.Err() == nil {
			f.t.Errorf("watch: %v", err)
		}
	})
	f.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// alive registers hosts, whose agents have told all is well.
func (f *fixture) alive(hosts ...string) {
	f.t.Helper()
	for i, h := range hosts {
		reg, err := cluster.Register(f.t.Context(), f.mem, cluster.Service{ServiceName: cluster.ServiceAgent, HostAddr: fmt.Sprintf("10.%d.%d.1", 1+i/250, i%250), Port: 4789, Hostname: h}, nil)
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { _ = reg.Close() })
		st := tables.HostStatus{Host: model.HostName(h), Driver: "ebpf", Ready: true, Version: "2.0", Updated: time.Now().UTC().Format(time.RFC3339)}
		if _, err := f.mem.Update(f.t.Context(), func(tx store.Tx) error { return tables.HostStatuses.Put(tx, st) }); err != nil {
			f.t.Fatal(err)
		}
	}
	for some := range slices.Chunk(hosts, 50) {
		f.addHosts(some...)
	}
}

// TestDoctorHearsHosts: hosts' reports are judged under their names. An older agent is
// reported as such. A silent one is waited for only for a short time. A host that claims
// another name is not asked.
func TestDoctorHearsHosts(t *testing.T) {
	f := serveWith(t, func(c *Config) { c.Address = "10.0.0.9:9999" })
	f.alive("h1", "h2", "old", "mute")
	now := time.Now()
	f.answerAs(func(r cluster.MonitorRequest) (out []func(*api.Client) error) {
		if r.Report != cluster.ReportInspection || r.Counts != cluster.ReportCounts || r.Address != "10.0.0.9:9999" {
			t.Errorf("asked %+v", r)
		}
		deliver := func(host string, i api.HostInspection) {
			out = append(out, func(c *api.Client) error {
				text, err := json.Marshal(i)
				return errors.Join(err, c.DeliverReport(t.Context(), r.ID, host, bytes.NewReader(text)))
			})
		}
		deliver("h1", api.HostInspection{Machine: api.Machine{Time: time.Now()}})
		deliver("h2", api.HostInspection{
			Findings: []api.Finding{
				{Check: api.CheckDataPlane, Severity: api.SeverityWarning, Text: "3 flows were put back", Remedy: "find out"},
				condition.HostFinding("h2", api.Condition{Name: "disk", Message: "it is full"}),
			},
			Machine: api.Machine{
				Time:         now.Add(-time.Hour),
				Certificates: []api.Certificate{{Use: "own", Subject: "CN=h2", Ends: now.Add(50 * time.Hour)}, {Use: "gone", Subject: "CN=h2", Ends: now.Add(-time.Hour)}, {Use: "fine", Ends: now.Add(1000 * time.Hour)}},
				Disks:        []api.Disk{{Use: "state", Path: "/s", Free: 100 << 20, Size: 10 << 30}, {Use: "log", Path: "/l", Free: 1 << 20, Size: 10 << 30}, {Use: "fine", Path: "/f", Free: 9 << 30, Size: 10 << 30}, {Use: "small", Free: 10 << 20, Size: 50 << 20}, {Use: "lost", Path: "/x", Error: "no such"}},
			},
		})
		return append(out, func(c *api.Client) error { // an agent of before reports
			none := make(chan api.FlowEvent)
			close(none)
			if err := c.DeliverFlows(t.Context(), r.ID, "old", none); !api.IsNotFound(err) {
				return fmt.Errorf("an older agent hears %w", err)
			}
			return nil
		})
	})
	var d api.Diagnosis
	if err := json.Unmarshal([]byte(f.must("GET", "/api/v1/doctor", "")), &d); err != nil {
		t.Fatal(err)
	}
	if d.Hosts != 4 || d.Answered != 2 {
		t.Errorf("%d of %d answered", d.Answered, d.Hosts)
	}
	want := map[string]string{
		"host h2 data-plane warning": "3 flows", "host h2 disks error": "disk: it is full", "host h2 certificates warning": "own (CN=h2) ends on",
		"host h2 certificates error": "gone (CN=h2) ended on", "host h2 disks warning": "fills: 100 of 10240 MiB", "host h2 hosts warning": "behind the answering netmaster's",
		"host old versions notice": "older than this netmaster", "host mute hosts warning": "has not reported within",
	}
	for _, x := range d.Findings {
		if x.Remedy == "" || x.Where == "host h1" || strings.Contains(x.Text, "fine") || strings.Contains(x.Text, "small") {
			t.Errorf("%+v", x)
		}
		if k := x.Where + " " + x.Check + " " + x.Severity; strings.Contains(x.Text, want[k]) {
			delete(want, k)
		}
	}
	if len(want) > 0 {
		t.Errorf("nothing says %v: %+v", want, d.Findings)
	}
}

// TestThousandHostsAnswerOneDoctor: a thousand hosts answer one doctor.
func TestThousandHostsAnswerOneDoctor(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand hosts")
	}
	f := serveWith(t, func(c *Config) { c.Address = "10.0.0.9:9999" })
	var hosts []string
	for i := range 1000 {
		hosts = append(hosts, fmt.Sprintf("h%04d", i))
	}
	f.alive(hosts...)
	f.answerAs(func(r cluster.MonitorRequest) (out []func(*api.Client) error) {
		if r.Spread < 1000 {
			t.Errorf("a thousand hosts are to answer within %d ms", r.Spread)
		}
		turns := make(chan struct{}, 32)
		for _, h := range hosts {
			out = append(out, func(c *api.Client) error {
				turns <- struct{}{}
				defer func() { <-turns }()
				return c.DeliverReport(t.Context(), r.ID, h, strings.NewReader(`{"findings":[]}`))
			})
		}
		return out
	})
	d, err := f.Doctor(t.Context())
	if err != nil || d.Answered != 1000 {
		t.Errorf("%d of %d answered: %v", d.Answered, d.Hosts, err)
	}
}

// TestTornBundlesAreNotPassedOn: a host's bundle is handed on as it is, one that breaks off does not pass for
// whole, and a host that is older, silent or not there says so.
func TestTornBundlesAreNotPassedOn(t *testing.T) {
	f := serveWith(t, func(c *Config) { c.Address = "10.0.0.9:9999" })
	f.alive("h1", "broken", "old")
	f.answerAs(func(r cluster.MonitorRequest) []func(*api.Client) error {
		if r.Report != cluster.ReportBundle {
			return nil
		}
		return []func(*api.Client) error{func(c *api.Client) error {
			if r.Host == "broken" {
				if err := c.DeliverReport(t.Context(), r.ID, "h1", strings.NewReader("not mine")); err == nil {
					return errors.New("another host's bundle is taken")
				}
				_ = c.DeliverReport(t.Context(), r.ID, "broken", io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), failing{}))
				return nil
			}
			none := make(chan api.FlowEvent)
			close(none)
			_ = c.DeliverFlows(t.Context(), r.ID, "old", none)
			return nil
		}}
	})
	var b bytes.Buffer
	if err := f.Bundle(t.Context(), "broken", &b); err == nil {
		t.Error("a part passes for the whole")
	}
	if err := f.Bundle(t.Context(), "old", &b); err == nil || !strings.Contains(err.Error(), "older than this netmaster") {
		t.Errorf("an older agent: %v", err)
	}
	if err := f.Bundle(t.Context(), "nosuch", &b); !api.IsNotFound(err) {
		t.Errorf("no such host: %v", err)
	}
	b.Reset()
	if err := f.Bundle(t.Context(), "", &b); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for tr := tar.NewReader(&b); ; {
		h, err := tr.Next()
		if err != nil {
			break
		}
		text, _ := io.ReadAll(tr)
		names[h.Name] = string(text)
	}
	if !strings.Contains(names["hosts.json"], `"h1"`) || !strings.Contains(names["metrics.txt"], "contiv_netmaster_") || !strings.Contains(names["manifest.json"], `"log.txt"`) {
		t.Errorf("netmaster packs %v", names)
	}
}

// TestHostBundleArrivesUnchanged: what a host sends arrives byte for byte.
func TestHostBundleArrivesUnchanged(t *testing.T) {
	f := serveWith(t, func(c *Config) { c.Address = "10.0.0.9:9999" })
	f.alive("h1")
	sent := strings.Repeat("0123456789abcdef", 1<<16)
	f.answerAs(func(r cluster.MonitorRequest) []func(*api.Client) error {
		return []func(*api.Client) error{func(c *api.Client) error { return c.DeliverReport(t.Context(), r.ID, "h1", strings.NewReader(sent)) }}
	})
	var b bytes.Buffer
	if err := f.Bundle(t.Context(), "h1", &b); err != nil || b.String() != sent {
		t.Errorf("%d of %d bytes: %v", b.Len(), len(sent), err)
	}
	if status, _ := f.do(http.MethodPost, "/plugin/report/nosuch?host=h1", "{}"); status != http.StatusNotFound {
		t.Errorf("a report that nobody waits for: %d", status)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the host has died") }
