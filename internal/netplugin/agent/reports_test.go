package agent

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// TestAgentReportsToAskingNetmasters: an agent reports to an asking netmaster: nothing where all is well, an
// interface without an endpoint, and a bundle without secrets from any source.
func TestAgentReportsToAskingNetmasters(t *testing.T) {
	const secret = "s3cr3t-pLaNtEd-77"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ring := supportbundle.NewRing(io.Discard, 1<<16)
	fmt.Fprintf(ring, "the log begins\nshown %s\npassword=another-%s\n", secret, secret)
	b := newBed(t, func(c *Config) {
		c.Version = "9.9"
		c.Support = &supportbundle.Support{Version: "9.9", Log: ring, SecretFiles: []string{file}, Dirs: map[string]string{"state": c.StateDir}}
	})
	b.ready()
	reports := make(chan []byte, 8)
	taker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !strings.HasPrefix(r.URL.Path, "/plugin/report/") || r.URL.Query().Get("host") != testHost {
			http.NotFound(w, r)
			return
		}
		reports <- body
	}))
	defer taker.Close()
	asked := 0
	ask := func(what string) (body []byte) {
		t.Helper()
		asked++
		session, err := cluster.OpenMonitor(t.Context(), b.st, cluster.MonitorRequest{
			ID: fmt.Sprintf("r%d", asked), Address: strings.TrimPrefix(taker.URL, "http://"), Report: what, Counts: cluster.ReportCounts, Spread: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = session.Close() }()
		b.eventually(what, func() error {
			select {
			case body = <-reports:
				return nil
			default:
				return errors.New("no report")
			}
		})
		return body
	}
	inspect := func() (i api.HostInspection) {
		t.Helper()
		if err := json.Unmarshal(ask(cluster.ReportInspection), &i); err != nil {
			t.Fatal(err)
		}
		return i
	}
	about := func(check string) (out []api.Finding) {
		for _, f := range inspect().Findings {
			if f.Check == check {
				out = append(out, f)
			}
		}
		return out
	}
	if i := inspect(); i.Version != "9.9" || len(i.Disks) != 1 || i.Disks[0].Size == 0 {
		t.Errorf("of the machine it tells %+v", i.Machine)
	}
	if found := about(api.CheckDataPlane); len(found) != 0 {
		t.Errorf("all is well: %+v", found)
	}
	const stray = "cvaaaaaaaaaaaaa"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: stray}, PeerName: "straypeer"}); err != nil {
		t.Fatal(err)
	}
	found := about(api.CheckDataPlane)
	if len(found) != 1 || !strings.Contains(found[0].Text, stray) || found[0].Remedy == "" {
		t.Errorf("an interface that nobody has: %+v", found)
	}
	l, err := netlink.LinkByName(stray)
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil {
		t.Fatal(err)
	}

	packed := ask(cluster.ReportBundle)
	if bytes.Contains(packed, []byte(secret)) {
		t.Error("the bundle has a secret")
	}
	files := map[string]string{}
	for tr := tar.NewReader(bytes.NewReader(packed)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
	for name, part := range map[string]string{
		"log.txt": "the log begins", "state.json": `"host":"` + testHost, "health.json": "", "driver.json": `"driver"`, "stats.json": `"ports"`, "metrics.txt": "contiv_netplugin_",
		"attachments.json": "", "interfaces.txt": "lo", "nameserver.json": "", "answering.json": "", "inspection.json": `"findings"`, "goroutines.txt": "goroutine", "manifest.json": `"of": "host ` + testHost,
	} {
		if text, there := files[name]; !there || !strings.Contains(text, part) {
			t.Errorf("%s: %t, %.200q", name, there, text)
		}
	}
}
