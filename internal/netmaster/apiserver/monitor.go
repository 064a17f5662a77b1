package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
)

// streams owns the monitors and reports that hosts are asked for and deliver, and hands the
// store on to agents.
type streams struct {
	*serverContext
	router   *router
	monitors monitors
	reports  reports
	stopping <-chan struct{}
}

const (
	// maxMonitors is how many streams of events one netmaster serves at once.
	maxMonitors = 8
	// maxTenantMonitors is how many of them are of tenant admins, so that these leave
	// room for the cluster's.
	maxTenantMonitors = 4
	// monitorQueue is how many events wait for a client; then it is too slow.
	monitorQueue = 4096
	// monitorWrite bounds one write to a client.
	monitorWrite = 10 * time.Second
	// monitorTimeout is when a sender counts as dead.
	monitorTimeout = 4 * api.MonitorKeepAlive
	// monitorAnswer is how long agents may take before people hear that they do not answer.
	monitorAnswer = 5 * time.Second
)

// monitors are the streams of events that are served now.
type monitors struct {
	mu   sync.Mutex
	byID map[string]*monitorStream
}

// monitorStream is one client that watches.
type monitorStream struct {
	ctx    context.Context // ends with the stream
	scope  flowScope
	events chan api.FlowEvent
	slow   chan struct{} // closed when the client does not keep up

	mu        sync.Mutex
	cut       bool
	delivered map[string]bool // hosts that have delivered
	active    map[string]int  // deliveries under way, by host
}

// add opens a stream, unless there are too many.
func (m *monitors) add(ctx context.Context, id string, scope flowScope) (*monitorStream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	most := maxMonitors
	if scope.Limited() {
		most = maxTenantMonitors
	}
	n := 0
	for _, s := range m.byID {
		if !scope.Limited() || s.scope.Limited() {
			n++
		}
	}
	if n >= most {
		return nil, model.Errorf(model.ErrExhausted, "monitor: %d monitors run at this netmaster, more are not served; end one of them", n)
	}
	s := &monitorStream{
		ctx: ctx, scope: scope, events: make(chan api.FlowEvent, monitorQueue), slow: make(chan struct{}),
		delivered: map[string]bool{}, active: map[string]int{},
	}
	m.byID[id] = s
	return s, nil
}

func (m *monitors) get(id string) *monitorStream {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byID[id]
}

func (m *monitors) remove(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byID, id)
}

// put queues an event; a client that is too slow is cut off, since a stream with silent
// gaps would mislead.
func (s *monitorStream) put(e api.FlowEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return
	}
	select {
	case s.events <- e:
	default:
		s.cut = true
		close(s.slow)
	}
}

// missingHosts lists the hosts that have not delivered.
func (s *monitorStream) missingHosts(hosts []model.HostName) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, h := range hosts {
		if !s.delivered[string(h)] {
			out = append(out, string(h))
		}
	}
	slices.Sort(out)
	return out
}

// watch answers GET /api/v1/monitor: a line for each event, until the client
// goes, is too slow, or the server stops.
func (s *streams) watch(w http.ResponseWriter, r *request) {
	begin := time.Now()
	sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		s.router.requests.WithLabelValues("/api/v1/monitor", r.Method, strconv.Itoa(sw.status)).Inc()
		s.log.Debug("monitor", "client", r.RemoteAddr, "status", sw.status, "took", time.Since(begin))
	}()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	id := rand.Text()
	req, err := monitorRequest(r)
	var stream *monitorStream
	scope := flowScope{r.scope(), nil}
	scope.on = func(host string) bool {
		return slices.ContainsFunc(s.control.Current().Endpoints.OfHost(model.HostName(host)), func(e model.Endpoint) bool { return scope.Has(e.Key.Network.Tenant) })
	}
	if err == nil {
		stream, err = s.monitors.add(ctx, id, scope)
	}
	if err != nil {
		s.router.refuse(sw, r.Request, err)
		return
	}
	defer s.monitors.remove(id)
	req.ID, req.Address = id, s.address
	octx, ocancel := context.WithTimeout(ctx, s.timeout)
	m, err := s.control.Hosts.OpenMonitor(octx, r.actor, req)
	ocancel()
	if err != nil {
		s.router.refuse(sw, r.Request, err)
		return
	}
	defer func() {
		if err := m.Close(); err != nil {
			s.log.Warn("a monitor's request stays in the store until its lease ends", "error", err)
		}
	}()
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // the request has been read; not every connection has deadlines
	sw.Header().Set("Content-Type", api.MediaLines)
	send := func(line []byte) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(monitorWrite))
		_, err := sw.Write(line)
		return err == nil && rc.Flush() == nil
	}
	if end := s.stream(ctx, stream, m, send); end.Text != "" {
		end.Time, end.Event = time.Now(), api.FlowEnd
		send(monitorLine(end))
	}
}

// stream sends events until it has to end, and returns why (Reason and Text), when the
// client is still there to read it.
func (s *streams) stream(ctx context.Context, stream *monitorStream, m *control.Monitor, send func([]byte) bool) (end api.FlowEvent) {
	hosts := "no host: no netplugin has reported yet"
	switch n := len(m.Hosts); {
	case n == 0 && stream.scope.Limited():
		hosts = "for containers of " + stream.scope.String() + ": there are none yet"
	case n > 8:
		hosts = strconv.Itoa(n) + " hosts"
	case n > 0:
		hosts = strings.Join(hostNames(m.Hosts), ", ")
	}
	if !send(monitorLine(api.FlowEvent{Time: time.Now(), Event: api.FlowNote, Text: "watching " + hosts})) {
		return end
	}
	beat := time.NewTicker(api.MonitorKeepAlive)
	defer beat.Stop()
	unheard := time.After(monitorAnswer)
	for {
		line := []byte("\n")
		select {
		case <-ctx.Done():
			if no, ok := errors.AsType[*httpguard.Refusal](context.Cause(ctx)); ok {
				return api.FlowEvent{Reason: no.Kind, Text: no.Text}
			}
			return end
		case <-s.stopping:
			return api.FlowEvent{Text: "netmaster stops"}
		case <-m.Done():
			return api.FlowEvent{Text: "the cluster's store has lost the request; monitor again"}
		case <-stream.slow:
			return api.FlowEvent{Text: fmt.Sprintf("cut off: %d events wait and are not read fast enough; narrow the filter", monitorQueue)}
		case <-unheard:
			silent := stream.missingHosts(m.Hosts)
			if len(silent) == 0 {
				continue
			}
			line = monitorLine(api.FlowEvent{
				Time: time.Now(), Event: api.FlowNote, Text: "no events from " + strings.Join(silent, ", ") + " yet: the agent there is down, or older than this netmaster",
			})
		case e := <-stream.events:
			line = monitorLine(e)
		case <-beat.C:
		}
		if !send(line) {
			return end
		}
	}
}

func hostNames(hosts []model.HostName) []string {
	var out []string
	for _, h := range hosts {
		out = append(out, string(h))
	}
	slices.Sort(out)
	return out
}

func monitorLine(e api.FlowEvent) []byte {
	b, err := json.Marshal(e)
	if err != nil { // a time beyond the year 9999
		return []byte("\n")
	}
	return append(b, '\n')
}

// monitorRequest reads the query of GET /api/v1/monitor.
func monitorRequest(r *request) (req control.MonitorRequest, err error) {
	req.Connections = true
	for k, v := range r.URL.Query() {
		value := v[0]
		switch k {
		case "drops":
			drops, err := strconv.ParseBool(value)
			if err != nil {
				return req, model.InvalidField("drops", value, "must be true or false")
			}
			req.Connections = !drops
		case "from":
			req.From = value
		case "to":
			req.To = value
		case "host":
			if req.Host, err = apiconv.Optional(value, model.ParseHostName); err != nil {
				return req, err
			}
		}
	}
	return req, nil
}

// deliver answers POST /plugin/monitor/{id}: an agent's events for a monitor,
// one a line, as long as it runs.
func (s *streams) deliver(w http.ResponseWriter, r *request) {
	stream := s.monitors.get(r.PathValue("id"))
	host, err := model.ParseHostName(r.URL.Query().Get("host"))
	switch {
	case err != nil:
	case stream == nil && s.reports.get(r.PathValue("id")) != nil: // asked for a report, it offers counts
		s.reports.get(r.PathValue("id")).old(string(host))
		err = model.Errorf(model.ErrNotFound, "this netmaster requests a report that only newer agents send")
	case stream == nil:
		err = model.Errorf(model.ErrNotFound, "there is no such monitor at this netmaster")
	default:
		err = stream.begin(string(host))
	}
	if err != nil {
		s.router.refuse(w, r.Request, err)
		return
	}
	defer stream.finish(string(host))
	rc := http.NewResponseController(w)
	// When the monitor ends, so does the reading.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(stream.ctx, cancel)()
	defer context.AfterFunc(ctx, func() { _ = rc.SetReadDeadline(time.Unix(1, 0)) })()
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, api.MaxMonitorLine)
	for {
		_ = rc.SetReadDeadline(time.Now().Add(monitorTimeout))
		if ctx.Err() != nil || !lines.Scan() {
			break
		}
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var e api.FlowEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Event == api.FlowEnd {
			s.router.refuse(w, r.Request, model.Errorf(model.ErrInvalid, "monitor: a line is not an event: %q", clip(lines.Bytes())))
			return
		}
		e.Host = string(host)
		if e, shown := stream.scope.show(e); shown {
			stream.put(e)
		}
	}
	w.Header().Set("Connection", "close") // what was not read is not wanted
	w.WriteHeader(http.StatusOK)
}

// begin notes that a host delivers; once at a time.
func (s *monitorStream) begin(host string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active[host] > 1 { // one, and one whose connection broke unseen
		return model.Errorf(model.ErrConflict, "monitor: host %s already sends events", host)
	}
	s.active[host]++
	s.delivered[host] = true
	return nil
}

func (s *monitorStream) finish(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active[host]--
}
