package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// monitored serves a netmaster that can be stopped, and hands out the ids of
// the monitors that it asks agents for.
func monitored(t *testing.T) (client *api.Client, ids <-chan string, stop func()) {
	t.Helper()
	return monitoredOn(t, func(l net.Listener) net.Listener { return l })
}

// monitoredOn is monitored on a listener that listen makes of another one.
func monitoredOn(t *testing.T, listen func(net.Listener) net.Listener) (client *api.Client, ids <-chan string, stop func()) {
	t.Helper()
	st := memory.New()
	if _, err := st.Update(t.Context(), func(tx store.Tx) error { return tables.Hosts.Put(tx, model.Host{Name: "h1"}) }); err != nil {
		t.Fatal(err)
	}
	ctrl := control.New(st, control.Options{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	stopping := make(chan struct{})
	s := httptest.NewUnstartedServer(nil)
	s.Listener = listen(s.Listener)
	h, err := New(Config{
		Control: ctrl, Cluster: testCluster{ctrl}, Mode: "test", Log: slog.New(slog.DiscardHandler),
		Address: s.Listener.Addr().String(), Stopping: stopping, Timeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Config.Handler = h
	s.Start()
	if client, err = api.NewClient(s.URL, api.WithTimeout(patience)); err != nil {
		t.Fatal(err)
	}
	found := make(chan string, 64)
	ends := make(chan error, 2)
	go func() { ends <- ctrl.Run(ctx) }()
	go func() {
		known := map[string]bool{}
		_ = cluster.WatchMonitors(ctx, st, func(list []cluster.MonitorRequest) error {
			for _, r := range list {
				if !known[r.ID] {
					known[r.ID] = true
					found <- r.ID
				}
			}
			return nil
		})
		ends <- nil
	}()
	t.Cleanup(func() {
		client.Close()
		s.Close()
		cancel()
		for range 2 {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return client, found, func() { close(stopping) }
}

// begin opens a monitor and returns when it runs; its end comes by the channel.
func begin(ctx context.Context, t *testing.T, c *api.Client, ids <-chan string, fn func(api.FlowEvent) error) (id string, ended <-chan error) {
	t.Helper()
	ch := make(chan error, 1)
	go func() { ch <- c.Monitor(ctx, api.MonitorRequest{}, fn) }()
	select {
	case id := <-ids:
		return id, ch
	case err := <-ch:
		t.Fatalf("the monitor ended at once: %v", err)
	case <-time.After(patience):
		t.Fatal("no agent was asked")
	}
	return "", nil
}

func ignore(api.FlowEvent) error { return nil }

func wait(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		t.Fatal("it did not end")
	}
	return nil
}

// The ninth monitor is refused; when one has ended there is room again; and when netmaster
// stops, all get a message.
func TestNinthMonitorIsRefused(t *testing.T) {
	c, ids, stop := monitored(t)
	ctx, cancel := context.WithCancel(t.Context())
	var all []<-chan error
	for range maxMonitors {
		_, ended := begin(ctx, t, c, ids, ignore)
		all = append(all, ended)
	}
	err := c.Monitor(t.Context(), api.MonitorRequest{}, ignore)
	if !api.IsConflict(err) || !strings.Contains(err.Error(), "8 monitors run") {
		t.Errorf("one too many: %v", err)
	}
	cancel()
	for _, ended := range all {
		if err := wait(t, ended); !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
	}
	var again <-chan error
	for deadline := time.Now().Add(patience); again == nil; {
		ch := make(chan error, 1)
		go func() { ch <- c.Monitor(t.Context(), api.MonitorRequest{}, ignore) }()
		select {
		case <-ids:
			again = ch
		case err := <-ch: // the server has not noticed yet that the others went
			if !api.IsConflict(err) || time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	stop()
	if err := wait(t, again); err == nil || err.Error() != "netmaster stops" {
		t.Errorf("at netmaster's end: %v", err)
	}
}

// What agents may not do is refused: unknown monitors, hosts without a name,
// lines that are no events. What they deliver arrives under their own name.
func TestInvalidMonitorReportsAreRefused(t *testing.T) {
	c, ids, _ := monitored(t)
	got := make(chan api.FlowEvent, 16)
	id, _ := begin(t.Context(), t, c, ids, func(e api.FlowEvent) error {
		got <- e
		return nil
	})
	events := make(chan api.FlowEvent, 1)
	events <- api.FlowEvent{Event: api.FlowDrop, Host: "another", Reason: "spoof"}
	close(events)
	if err := c.DeliverFlows(t.Context(), id, "h1", events); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case e := <-got:
			if e.Event == api.FlowNote {
				continue
			}
			if e.Host != "h1" || e.Reason != "spoof" {
				t.Errorf("arrived: %+v", e)
			}
		case <-time.After(patience):
			t.Fatal("nothing arrived")
		}
		break
	}
	none := make(chan api.FlowEvent)
	close(none)
	if err := c.DeliverFlows(t.Context(), "nosuch", "h1", none); !api.IsNotFound(err) {
		t.Errorf("unknown monitor: %v", err)
	}
	for path, body := range map[string]string{
		"/plugin/monitor/" + id + "?host=":                 "",
		"/plugin/monitor/" + id + "?host=h1":               "{]\n",
		"/plugin/monitor/" + id + "/?host=h1":              `{"event":"end","text":"x"}` + "\n",
		"/api/v1/monitor/?from=a:b:c":                      "GET",
		"/api/v1/monitor?drops=perhaps":                    "GET",
		"/api/v1/monitor?group=web":                        "GET",
		"/api/v1/monitor?host=" + strings.Repeat("x", 300): "GET",
	} {
		method := http.MethodPost
		if body == "GET" {
			method, body = body, ""
		}
		req, err := http.NewRequestWithContext(t.Context(), method, c.URLs()[0]+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s %s: %s", method, path, resp.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := c.Monitor(t.Context(), api.MonitorRequest{To: "web"}, ignore); !api.IsNotFound(err) {
		t.Errorf("unknown group: %v", err)
	}
}

// patientListener accepts connections that hold little and wait for their clients
// for ever, so that a client is slow by what it does not read, not by the clock.
type patientListener struct{ net.Listener }

type patientConn struct{ net.Conn }

func (l patientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := c.(*net.TCPConn).SetWriteBuffer(4 << 10); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return patientConn{c}, nil
}

func (patientConn) SetWriteDeadline(time.Time) error { return nil }

// A client that does not read is cut off, and told so when it reads again.
func TestSlowMonitorClientIsCutOff(t *testing.T) {
	c, ids, _ := monitoredOn(t, func(l net.Listener) net.Listener { return patientListener{l} })
	gate := make(chan struct{})
	id, ended := begin(t.Context(), t, c, ids, func(api.FlowEvent) error {
		<-gate
		return nil
	})
	events := make(chan api.FlowEvent)
	delivered := make(chan error, 1)
	go func() { delivered <- c.DeliverFlows(t.Context(), id, "h1", events) }()
	text := strings.Repeat("x", 2<<10)
	cut := false                                           // the delivery ends when the client is cut off
	for sent := 0; sent < 2*monitorQueue && !cut; sent++ { // more than sockets and queue take
		select {
		case events <- api.FlowEvent{Event: api.FlowNote, Text: text}:
		case err := <-delivered:
			// The answer, or the end of a connection on which more was being written.
			if cut = true; err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Fatalf("the delivery ended after %d events: %v", sent, err)
			}
		}
	}
	close(events)
	if !cut {
		if err := wait(t, delivered); err != nil {
			t.Fatal(err)
		}
	}
	close(gate)
	if err := wait(t, ended); err == nil || !strings.HasPrefix(err.Error(), "cut off: ") {
		t.Errorf("the slow client heard %v", err)
	}
}

// TestMonitorTellsWhyItWasEnded: a stream whose token is accepted no more ends with a line
// that says so.
func TestMonitorTellsWhyItWasEnded(t *testing.T) {
	ctrl := control.New(memory.New(), control.Options{})
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ctrl.Run(running) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	h, err := New(Config{Control: ctrl, Cluster: testCluster{ctrl}, Mode: "test", Log: slog.New(slog.DiscardHandler), Address: "127.0.0.1:1", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancelCause(r.Context())
		defer end(nil)
		no := httpguard.Unauthorized("the token T1 is not accepted: it was revoked")
		h.ServeHTTP(&firstWrite{ResponseWriter: w, then: func() { end(no) }}, r.WithContext(ctx))
	}))
	defer s.Close()
	c, err := api.NewClient(s.URL, api.WithTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Monitor(t.Context(), api.MonitorRequest{}, func(api.FlowEvent) error { return nil })
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Status != http.StatusUnauthorized || e.Message != "the token T1 is not accepted: it was revoked" {
		t.Errorf("Monitor() = %v", err)
	}
}

// firstWrite calls then after the first write.
type firstWrite struct {
	http.ResponseWriter
	then func()
}

func (w *firstWrite) Write(b []byte) (int, error) {
	defer w.then()
	return w.ResponseWriter.Write(b)
}

func (w *firstWrite) Unwrap() http.ResponseWriter { return w.ResponseWriter }
