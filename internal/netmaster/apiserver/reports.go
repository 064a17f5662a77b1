package apiserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

const (
	// inspectionAnswer is how long hosts may take to tell of themselves, after the time
	// over which they spread.
	inspectionAnswer = 6 * time.Second
	// inspectionSpread is the time between two hosts' answers, inspectionSpreadMax the time for all.
	inspectionSpread    = 2 * time.Millisecond
	inspectionSpreadMax = 3 * time.Second
	// maxInspection is how long what a host tells of itself may be, in bytes.
	maxInspection = 1 << 20
	// maxReports is how many reports one netmaster waits for at once.
	maxReports = 16

	// bundleAnswer is how long a host may take to begin with a bundle, bundleRead how long
	// all of it may take, and MaxBundle how long it may be, in bytes.
	bundleAnswer = 10 * time.Second
	bundleRead   = 2 * time.Minute
	maxBundle    = 64 << 20
)

// reports are what this netmaster has asked hosts for, by id.
type reports struct {
	mu   sync.Mutex
	byID map[string]*report
}

// report takes what hosts tell.
type report struct {
	ctx  context.Context // ends when no request waits any more
	take func(host string, body io.Reader) error
	old  func(host string) // an agent that knows no reports has answered
	// shown gets the certificate of a reporting host; nil = not needed.
	shown func(host string, key []byte)
}

func (r *reports) add(id string, x *report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.byID) >= maxReports {
		return model.Errorf(model.ErrExhausted, "%d reports of hosts are pending at this netmaster, its limit; try again", len(r.byID))
	}
	if r.byID == nil {
		r.byID = map[string]*report{}
	}
	r.byID[id] = x
	return nil
}

func (r *reports) get(id string) *report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

func (r *reports) remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byID, id)
}

// ask has hosts report to x until close is called.
func (s *streams) ask(ctx context.Context, a control.Actor, r control.MonitorRequest, x *report) (stop func(), err error) {
	r.ID, r.Address = rand.Text(), s.address
	if err := s.reports.add(r.ID, x); err != nil {
		return nil, err
	}
	m, err := s.control.Hosts.OpenMonitor(ctx, a, r)
	if err != nil {
		s.reports.remove(r.ID)
		return nil, err
	}
	return func() {
		s.reports.remove(r.ID)
		if err := m.Close(); err != nil {
			s.log.Warn("a request for a report stays in the store until its lease ends", "error", err)
		}
	}, nil
}

// deliverReport answers POST /plugin/report/{id}: what a host tells of itself.
func (s *streams) deliverReport(w http.ResponseWriter, r *request) {
	x := s.reports.get(r.PathValue("id"))
	host, err := model.ParseHostName(r.URL.Query().Get("host"))
	if err == nil && x == nil {
		err = model.Errorf(model.ErrNotFound, "nobody waits for such a report at this netmaster")
	}
	if err == nil {
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(bundleRead)) // not every connection has deadlines
		// When no request waits any more, the reading ends.
		defer context.AfterFunc(x.ctx, func() { _ = rc.SetReadDeadline(time.Unix(1, 0)) })()
		if key := shownKey(r); key != nil && x.shown != nil {
			x.shown(string(host), key)
		}
		err = x.take(string(host), r.Body)
	}
	if err != nil {
		s.router.refuse(w, r.Request, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// hostInspections is what hosts have told of themselves.
type hostInspections struct {
	mu    sync.Mutex
	of    map[string]api.HostInspection
	older map[string]bool          // agents that know no reports
	keys  map[string][][]byte      // of the certificates by which they told
	ahead map[string]time.Duration // how far the clocks are of those who told it
	want  int
	all   chan struct{} // closed when want hosts have answered
}

func (t *hostInspections) note(host string, i api.HostInspection, older bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := len(t.of) + len(t.older)
	if older {
		t.older[host] = true
	} else {
		t.of[host] = i
		if !i.Time.IsZero() {
			t.ahead[host] = time.Until(i.Time)
		}
	}
	if now := len(t.of) + len(t.older); now >= t.want && before < t.want {
		close(t.all)
	}
}

// askHosts asks all hosts for reports, and waits for the live ones, but no longer than
// inspectionAnswer. The inspections are never nil.
func (s *streams) askHosts(ctx context.Context, a control.Actor, alive int) (*hostInspections, error) {
	t := &hostInspections{of: map[string]api.HostInspection{}, older: map[string]bool{}, keys: map[string][][]byte{}, ahead: map[string]time.Duration{}, want: alive, all: make(chan struct{})}
	if alive == 0 || s.address == "" { // hosts would not know whom to tell
		return t, nil
	}
	err := s.askAll(ctx, a, control.MonitorRequest{Report: control.ReportInspection}, alive, inspectionAnswer, t.all, &report{
		take: func(host string, body io.Reader) error {
			var i api.HostInspection
			if err := json.NewDecoder(io.LimitReader(body, maxInspection)).Decode(&i); err != nil {
				return model.Errorf(model.ErrInvalid, "a host's report cannot be read: %v", err)
			}
			t.note(host, i, false)
			return nil
		},
		old: func(host string) { t.note(host, api.HostInspection{}, true) },
		shown: func(host string, key []byte) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.keys[host] = append(t.keys[host], key)
		},
	})
	return t, err
}

// askAll has all hosts report to x, and waits until all is closed, but no longer than patience
// beyond the time over which so many live hosts spread.
func (s *streams) askAll(ctx context.Context, a control.Actor, r control.MonitorRequest, alive int, patience time.Duration, all <-chan struct{}, x *report) error {
	r.Spread = min(time.Duration(alive)*inspectionSpread, inspectionSpreadMax)
	ctx, cancel := context.WithTimeout(ctx, r.Spread+patience)
	defer cancel()
	x.ctx = ctx
	stop, err := s.ask(ctx, a, r, x)
	if err != nil {
		return err
	}
	defer stop()
	select {
	case <-all:
	case <-ctx.Done():
	}
	return nil
}

// askEach has hosts report to this netmaster, and waits for all live ones of them, but no longer than
// patience beyond the time over which they spread. most is how long a report may be, in bytes, and
// older what netplugins are noted with that know no reports.
func askEach[T any](ctx context.Context, s *streams, a control.Actor, r control.MonitorRequest, alive map[string]bool, patience time.Duration, most int64, older T) (map[string]T, error) {
	if len(alive) == 0 {
		return nil, nil
	}
	if s.address == "" {
		return nil, model.Errorf(model.ErrUnavailable, "this netmaster has no address at which hosts could answer")
	}
	var mu sync.Mutex
	answers, all := map[string]T{}, make(chan struct{})
	note := func(host string, v T) {
		mu.Lock()
		defer mu.Unlock()
		if _, twice := answers[host]; !alive[host] || twice {
			return
		}
		if answers[host] = v; len(answers) == len(alive) {
			close(all)
		}
	}
	err := s.askAll(ctx, a, r, len(alive), patience, all, &report{
		take: func(host string, body io.Reader) error {
			var v T
			if err := json.NewDecoder(io.LimitReader(body, most)).Decode(&v); err != nil {
				return model.Errorf(model.ErrInvalid, "a host's report (%s) cannot be read: %v", r.Report, err)
			}
			note(host, v)
			return nil
		},
		old: func(host string) { note(host, older) },
	})
	if err != nil {
		return nil, err
	}
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(answers), nil // a late host may still write
}

// olderNetplugin is the error of a host that knows no reports.
const olderNetplugin = "its netplugin is older than this netmaster"

// silence says why a host has not reported.
func silence(alive bool, patience time.Duration) string {
	if !alive {
		return "it is away"
	}
	return "it did not answer within " + patience.String()
}

// hostBundle answers GET /api/v1/hosts/{name}/bundle: it hands on what the host packs.
func (s *streams) hostBundle(w http.ResponseWriter, r *request) {
	sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		s.router.requests.WithLabelValues("/api/v1/hosts/{name}/bundle", r.Method, strconv.Itoa(sw.status)).Inc()
	}()
	if err := s.forwardBundle(r.Context(), r.actor, sw, model.HostName(r.PathValue("name"))); err != nil {
		s.router.refuse(sw, r.Request, err)
	}
}

// forwardBundle returns an error while nothing has been sent; later it cuts the connection, so
// that the client does not take a part for the whole.
func (s *streams) forwardBundle(ctx context.Context, a control.Actor, w http.ResponseWriter, host model.HostName) error {
	if host == "" {
		return notFound("host", "")
	}
	ctx, cancel := context.WithTimeout(ctx, bundleRead)
	defer cancel()
	begun, ended, refused := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	var once sync.Once
	stop, err := s.ask(ctx, a, control.MonitorRequest{Report: control.ReportBundle, Host: host}, &report{
		ctx: ctx,
		take: func(from string, body io.Reader) error {
			first := false
			if from == string(host) {
				once.Do(func() { first = true })
			}
			if !first {
				return model.Errorf(model.ErrConflict, "host %s already sends its bundle", host)
			}
			close(begun)
			w.Header().Set("Content-Type", "application/x-tar")
			n, err := io.Copy(w, io.LimitReader(body, maxBundle+1))
			if err == nil && n > maxBundle {
				err = fmt.Errorf("host %s sends more than %d MiB", host, maxBundle>>20)
			}
			ended <- err
			return nil
		},
		old: func(string) {
			once.Do(func() {
				refused <- model.Errorf(model.ErrUnavailable, "netplugin on host %q is older than this netmaster and cannot make a bundle", host)
			})
		},
	})
	if err != nil {
		return err
	}
	defer stop()
	late := time.NewTimer(bundleAnswer)
	defer late.Stop()
	why := model.Errorf(model.ErrUnavailable, "host %q does not answer within %s: its netplugin is away, or cannot reach this netmaster", host, bundleAnswer)
	select {
	case <-begun:
	case err := <-refused:
		return err
	case <-late.C:
	case <-ctx.Done():
		why = ctx.Err()
	}
	none := false
	once.Do(func() { none = true }) // who has begun writes until it has ended
	if none {
		return why
	}
	if err := <-ended; err != nil {
		s.log.Warn("the bundle of a host was interrupted", "host", string(host), "error", err)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) // cuts the connection: what ends in order counts as whole
	}
	return nil
}
