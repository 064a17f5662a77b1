package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// An agent monitors its data plane only while somebody watches: over its own
// inspection address, or at a netmaster that has entered a monitor in the store.
func TestAgentMonitorsOnRequestOnly(t *testing.T) {
	b := newBed(t)
	b.ready()
	idle := func() error { // there is no monitor: the test may
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events, err := b.fake.Monitor(ctx, driver.MonitorOptions{})
		if err != nil {
			return err
		}
		cancel()
		for range events { // until it has ended
			continue
		}
		return nil
	}
	b.eventually("nothing is monitored", idle)
	drop := func() { b.fake.Send(reference.Packet{Port: "nosuch", SrcMAC: model.MAC{2, 1}}) }
	isDrop := func(line []byte) bool {
		var e api.FlowEvent
		return json.Unmarshal(line, &e) == nil && e.Host == testHost && e.Reason == driver.DropNoPort && e.From.MAC == "02:01:00:00:00:00"
	}

	// At a netmaster.
	lines := make(chan string, 64)
	taker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/plugin/monitor/m1" || r.URL.Query().Get("host") != testHost {
			http.NotFound(w, r)
			return
		}
		for s := bufio.NewScanner(r.Body); s.Scan(); {
			lines <- s.Text()
		}
	}))
	defer taker.Close()
	session, err := cluster.OpenMonitor(t.Context(), b.st, cluster.MonitorRequest{ID: "m1", Address: strings.TrimPrefix(taker.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := cluster.OpenMonitor(t.Context(), b.st, cluster.MonitorRequest{ID: "m2", Address: "127.0.0.1:1", Host: "another"})
	if err != nil {
		t.Fatal(err)
	}
	b.eventually("a drop arrives at netmaster", func() error {
		drop()
		select {
		case line := <-lines:
			if isDrop([]byte(line)) {
				return nil
			}
			return fmt.Errorf("it is %s", line)
		default:
			return errors.New("no line")
		}
	})
	if err := errors.Join(session.Close(), elsewhere.Close()); err != nil {
		t.Fatal(err)
	}
	b.eventually("nothing is monitored any more", idle)

	// Counts of a service come once, and then the end of the list.
	counts, err := cluster.OpenMonitor(t.Context(), b.st, cluster.MonitorRequest{ID: "m1", Address: strings.TrimPrefix(taker.URL, "http://"), Counts: "blue:web"})
	if err != nil {
		t.Fatal(err)
	}
	b.eventually("counts arrive at netmaster", func() error {
		select {
		case line := <-lines:
			var e api.FlowEvent
			if json.Unmarshal([]byte(line), &e) != nil || e.Event != api.FlowCounted || e.Text != "" {
				return fmt.Errorf("it is %s", line)
			}
			return nil
		default:
			return errors.New("no line")
		}
	})
	if err := counts.Close(); err != nil {
		t.Fatal(err)
	}

	// On the host.
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.agent.RESTAddr().String()+"/monitor?drops=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan bool, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			got <- false
			return
		}
		defer resp.Body.Close()
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			if isDrop(s.Bytes()) {
				got <- true
				return
			}
		}
		got <- false
	}()
	b.eventually("a drop arrives at who watches", func() error {
		drop()
		select {
		case ok := <-got:
			if !ok {
				t.Fatal("the stream was interrupted")
			}
			return nil
		default:
			return errors.New("nothing yet")
		}
	})
	cancel()
	http.DefaultClient.CloseIdleConnections()
	b.eventually("nothing is monitored at last", idle)
}
