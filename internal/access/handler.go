package access

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/access/audit"
	"github.com/contiv/netplugin/v2/internal/access/refusal"
)

// revisionHeader carries the store's revision of a write's commit, as package
// apiserver sets it.
const revisionHeader = "X-Contiv-Revision"

// By these headers package apiserver says of an agent's report what it changed, or why it
// was refused. Clients do not get them.
const (
	changedHeader = "X-Contiv-Changed"
	refusedHeader = "X-Contiv-Refused"
)

// Recorder keeps what was done and refused: an *audit.Log.
type Recorder interface{ Record(e audit.Entry) }

// Config is what a Handler needs; Next and Log are required.
type Config struct {
	Next    http.Handler // netmaster's REST interface
	Bearers []Bearer     // the first that takes a token judges it
	Cluster Cluster      // nil = what needs it is refused
	Audit   Recorder     // nil = nothing is recorded
	// Revision is the store's revision of an object's last write, as far as this
	// process knows: 0 = there is none, or it does not know. nil = it never does.
	Revision func(kind, key string) int64
	Log      *slog.Logger
	// Everyone lets in all who ask as this identity, and only records what they do: for
	// connections that show nothing. nil = who asks has to show it.
	Everyone *Identity
}

// handler is the http.Handler of New.
type handler struct {
	Config
	mux    *http.ServeMux // of the table's routes, with the server's own patterns
	bodies bodies

	mu      sync.Mutex
	refused map[string]string // last refusal of a host's reports, by route and host: repeated ones are not recorded
}

// New returns a handler that lets through to cfg.Next what may be done by who asks.
func New(cfg Config) http.Handler {
	h := &handler{Config: cfg, mux: http.NewServeMux(), refused: map[string]string{}}
	for route, ru := range table {
		one := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, route, &ru) })
		h.mux.Handle(route, one)
		h.mux.Handle(route+"/{$}", one)
	}
	return h
}

// ServeHTTP judges a request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := h.mux.Handler(r); pattern != "" {
		h.mux.ServeHTTP(w, r)
		return
	}
	h.serve(w, r, "", nil)
}

// serve judges a request for a route of the table; ru nil = for none.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, route string, ru *rule) {
	if ru != nil && ru.open {
		h.Next.ServeHTTP(w, r)
		return
	}
	e := audit.Entry{From: clientOf(r.RemoteAddr), Method: r.Method, Route: route}
	var seen func()
	id, v, err := h.judge(w, r, ru, &e, &seen)
	if seen != nil {
		defer seen() // the body, and what is made of it, are in memory until then
	}
	e.Who, e.How, e.ID, e.Role = id.Name, id.How, id.ID, string(v.role)
	if err != nil {
		no := refusal.Of(err)
		if no.Cause != nil {
			h.Log.Warn("who asks, or what may be done, could not be found out", "method", r.Method, "route", route, "error", no.Cause)
		}
		e.Status, e.Result, e.Why = no.Status, audit.Refused, no.Text
		h.record(e)
		no.Write(w, r)
		return
	}
	if ru != nil && ru.lasts {
		ctx, end := h.whileLetIn(r)
		defer end()
		r = r.WithContext(ctx)
	}
	r = r.WithContext(context.WithValue(r.Context(), identityKey{}, id))
	r.Header = r.Header.Clone()
	r.Header.Del("Authorization") // nobody behind needs the secret, or can log it
	if v.only != nil {
		h.Next.ServeHTTP(newListWriter(w, v.only), r)
		return
	}
	if ru != nil && ru.does == tells && ru.about != nil && !ru.lasts {
		h.serveReport(w, r, e)
		return
	}
	if ru == nil && isRead(r.Method) || ru != nil && ru.does != changes {
		h.Next.ServeHTTP(w, r)
		return
	}
	if h.Revision != nil && len(e.Objects) == 1 {
		e.Before = h.Revision(e.Objects[0].Kind, e.Objects[0].Key)
	}
	sw := &statusWriter{ResponseWriter: w}
	defer func() { // also when the server panics, which is told to the client by net/http
		e.Status = sw.status
		e.Result = audit.Done
		if e.Status == 0 || e.Status >= http.StatusBadRequest {
			e.Result = audit.Failed
		}
		e.After, _ = strconv.ParseInt(w.Header().Get(revisionHeader), 10, 64) // 0: nothing was committed
		h.record(e)
	}()
	h.Next.ServeHTTP(sw, r)
	sw.answered()
}

// serveReport serves a report of an agent, which comes every few seconds. It is recorded
// when it changes something, or is refused for another reason than the last one.
func (h *handler) serveReport(w http.ResponseWriter, r *http.Request, e audit.Entry) {
	sw := &statusWriter{ResponseWriter: w}
	h.Next.ServeHTTP(sw, r)
	sw.answered()
	of := []string{e.Route}
	for _, o := range e.Objects {
		of = append(of, o.Key)
	}
	about := strings.Join(of, " ")
	h.mu.Lock()
	again := sw.refused != "" && h.refused[about] == sw.refused
	if sw.refused == "" {
		delete(h.refused, about)
	} else {
		if len(h.refused) >= maxRefusals {
			clear(h.refused)
		}
		h.refused[about] = sw.refused
	}
	h.mu.Unlock()
	e.Status, e.What = sw.status, sw.changed
	switch {
	case again:
	case sw.refused != "":
		e.Result, e.Why = audit.Refused, sw.refused
		h.record(e)
	case sw.changed != "":
		e.Result = audit.Done
		h.record(e)
	}
}

// maxRefusals bounds the hosts whose last refusal is remembered.
const maxRefusals = 10_000

// lookAgain is between two looks at what lets in whom a stream is for.
const lookAgain = 10 * time.Second

// whileLetIn returns a context of a request that ends when what let it in does so no more,
// such as a token that was revoked: the refusal is the context's cause. end ends it, and the
// looks. That nobody can tell whether it does, as with the store away, ends nothing.
func (h *handler) whileLetIn(r *http.Request) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	asked := r.Clone(ctx) // which keeps what it showed
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(lookAgain)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if _, err := h.identify(asked); err != nil && refusal.Of(err).Status == http.StatusUnauthorized {
				cancel(refusal.Of(err))
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

func (h *handler) identify(r *http.Request) (Identity, error) {
	if h.Everyone != nil {
		return *h.Everyone, nil
	}
	return identify(r, h.Bearers)
}

// judge finds out who asks, about what, and whether that may be; it fills e's objects.
// A body that it has to see is read, counted until seen is called, and put back.
func (h *handler) judge(w http.ResponseWriter, r *http.Request, ru *rule, e *audit.Entry, seen *func()) (Identity, verdict, error) {
	id, err := h.identify(r)
	if errors.Is(err, errNobody) {
		err = refusal.Unauthorized("who asks is not known: show a certificate (netctl and netplugin have --tls-dir), or a token (netctl has login and --token-file), in a header: Authorization: Bearer TOKEN")
	}
	if err != nil {
		return id, verdict{}, err
	}
	var s subject
	if id.mayAsk(ru) && ru != nil && ru.about != nil {
		var body []byte
		if ru.body > 0 {
			if *seen, err = h.bodies.take(id, r, ru.body); err != nil {
				return id, verdict{}, err
			}
			if body, err = takeBody(w, r, ru.body); err != nil {
				return id, verdict{}, err
			}
		}
		s, err = ru.about(r.Context(), h.Cluster, r, body)
		for _, o := range s.objects {
			if o.Kind == "" {
				o.Kind = ru.kind
			}
			e.Objects = append(e.Objects, o)
		}
		if err != nil {
			return id, verdict{}, err
		}
	}
	v, no := decide(id, ru, s)
	if no != nil {
		return id, v, no
	}
	return id, v, nil
}

// takeBody reads a body and puts it back.
func takeBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, refusal.TooLarge(large.Limit)
	}
	if err != nil {
		return nil, refusal.Invalid("body: could not be read")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

func (h *handler) record(e audit.Entry) {
	if h.Audit != nil {
		h.Audit.Record(e)
	}
}

func isRead(method string) bool { return method == http.MethodGet || method == http.MethodHead }

func clientOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return strings.Trim(host, "[]")
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
	// changed and refused are what the headers of these names said.
	changed, refused string
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.take()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	w.answered()
	return w.ResponseWriter.Write(b)
}

// answered is that a status would be sent now, which is that of success.
func (w *statusWriter) answered() {
	if w.status == 0 {
		w.status = http.StatusOK
		w.take()
	}
}

// take takes out of the answer what is for the record.
func (w *statusWriter) take() {
	for name, to := range map[string]*string{changedHeader: &w.changed, refusedHeader: &w.refused} {
		if v := w.Header().Get(name); v != "" {
			*to = v
			w.Header().Del(name)
		}
	}
}

// Unwrap lets http.ResponseController and MaxBytesReader reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
