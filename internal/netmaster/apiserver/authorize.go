package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
)

// Recorder keeps what was done and refused: an *audit.Log.
type Recorder interface{ Record(e audit.Entry) }

// serve answers a request for a route: the client is identified, the request is read once,
// the decision is made of what it says, and only then its handler runs.
func (s *router) serve(rt *route, w http.ResponseWriter, hr *http.Request) {
	s.serveTo(rt, w, hr, s.identify)
}

// serveFor answers a request that the server makes itself, for a client that is known: what
// the client may not, it may not.
func (s *router) serveFor(client access.Identity, path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		for _, rt := range s.routes {
			if rt.method == hr.Method && rt.path == path {
				s.serveTo(rt, w, hr, func(*http.Request) (access.Identity, error) { return client, nil })
				return
			}
		}
		http.NotFound(w, hr)
	})
}

func (s *router) serveTo(rt *route, w http.ResponseWriter, hr *http.Request, identify func(*http.Request) (access.Identity, error)) {
	begin := time.Now()
	e := entryOf(hr, rt.method+" "+rt.path)
	r := &request{Request: hr}
	if rt.need != access.Public {
		id, err := identify(hr)
		e.Who, e.How, e.ID = id.Name, id.How, id.ID
		if err == nil {
			e.Role, err = checkCapability(id, rt.need)
		}
		if err == nil && rt.body > 0 && s.authenticate != nil {
			var done func()
			if done, err = s.bodies.take(id, hr, rt.body); err == nil {
				defer done() // the body, and what is made of it, are in memory until then
			}
		}
		if err != nil {
			s.deny(w, hr, e, err)
			return
		}
		r = s.newRequest(hr, id)
		if err := s.override(rt, r, &e); err != nil {
			s.deny(w, hr, e, err)
			return
		}
	}
	closeBeforeExpiry(w, hr)
	if rt.lasts {
		ctx, end := s.whileAuthorized(r.Context(), hr, r.client)
		defer end()
		r.Request = r.WithContext(ctx)
	}
	if rt.limit > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), rt.limit)
		defer cancel()
		r.Request = r.WithContext(ctx)
	}
	sw := &statusWriter{ResponseWriter: w, status: http.StatusOK, before: func(h http.Header) {
		if r.revision != 0 {
			h.Set(revisionHeader, strconv.FormatInt(r.revision, 10))
		}
	}}
	do, err := s.decide(rt, sw, r, &e)
	if no, ok := errors.AsType[*httpguard.Refusal](err); ok {
		s.deny(w, hr, e, no)
		return
	}
	ended := false
	defer func() { // also when a stream panics, which net/http tells the client
		e.Status, e.After = sw.status, r.revision
		if !ended {
			e.Status = http.StatusInternalServerError
		}
		s.record(rt, r, e)
	}()
	switch {
	case err != nil:
		r.refused = err.Error()
		s.refuse(sw, r.Request, err)
	case rt.limit == 0:
		_, _ = do() // it has answered
		ended = true
		return
	default:
		s.answer(sw, r, do)
	}
	ended = true
	s.durations.WithLabelValues(rt.path, rt.method).Observe(time.Since(begin).Seconds())
	s.requests.WithLabelValues(rt.path, rt.method, strconv.Itoa(sw.status)).Inc()
	s.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", sw.status, "took", time.Since(begin))
}

// decide reads a request and decides whether the client may do it. It returns what does
// it; a *httpguard.Refusal says that the client may not.
func (s *router) decide(rt *route, w http.ResponseWriter, r *request, e *audit.Entry) (do func() (any, error), err error) {
	defer panicError(&err)
	pattern := rt.method + " " + rt.path
	if err := errors.Join(checkQuery(pattern, r.Request), checkConditions(pattern, r.Request)); err != nil {
		return nil, err
	}
	if rt.limit > 0 && !isRead(r.Method) && r.Method != http.MethodDelete {
		if err := requireJSON(r.Request); err != nil {
			return nil, err
		}
	}
	res, do, err := rt.prepare(w, r)
	e.Objects = res.Objects
	if err != nil {
		return nil, err
	}
	if rt.need != access.Public {
		if e.Role, err = authorize(r.client, rt.need, res); err != nil {
			return nil, err
		}
	}
	if rt.verb == verbChange && len(e.Objects) == 1 {
		e.Before = int64(s.control.Current().Revisions.Written(e.Objects[0].Kind, e.Objects[0].Key))
	}
	return do, nil
}

func checkCapability(id access.Identity, need access.Capability) (string, error) {
	role, err := id.CheckCapability(need)
	return string(role), err
}

func authorize(id access.Identity, need access.Capability, res access.Resource) (string, error) {
	role, err := id.Authorize(need, res)
	return string(role), err
}

// panicError makes an error of a panic.
func panicError(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

// identify finds out who sends a request.
func (s *router) identify(r *http.Request) (access.Identity, error) {
	if s.authenticate == nil {
		return access.AuthenticationOff(), nil
	}
	return s.authenticate(r)
}

// newRequest returns a request of a client, which acts for that client alone. Handlers do not
// see what the client has shown.
func (s *router) newRequest(hr *http.Request, id access.Identity) *request {
	r := hr.WithContext(hr.Context())
	r.Header = hr.Header.Clone()
	r.Header.Del("Authorization")
	return &request{Request: r, client: id, actor: actorOf(id, hr)}
}

// override lets a cluster administrator's change break assertions, if it says why.
func (s *router) override(rt *route, r *request, e *audit.Entry) error {
	reason := r.Header.Get(api.OverrideHeader)
	switch {
	case reason == "" || rt.verb != verbChange:
		return nil
	case !r.client.HasRole(access.ClusterAdmin):
		return httpguard.Forbidden("header %s: only a cluster-admin may override assertions", api.OverrideHeader)
	}
	if len(reason) > model.MaxAssertionText {
		reason = reason[:model.MaxAssertionText]
	}
	reason = strings.ToValidUTF8(reason, "?")
	r.actor = r.actor.Override(reason)
	e.What = "override: " + reason
	return nil
}

// actorOf is the client of a request as use-cases take it.
func actorOf(id access.Identity, r *http.Request) control.Actor {
	switch {
	case id.HasRole(access.ClusterAdmin):
		return control.Admin()
	case len(id.Grants) == 1 && id.Grants[0].Role == access.Host:
		return control.Agent(model.HostName(id.Name)).From(originOf(r))
	case id.Scope() != nil:
		return control.TenantAdmin(id.Tenants()...)
	}
	return control.Reader(id.Tenants()...)
}

// originOf is what a host's connection proves of its addresses.
func originOf(r *http.Request) (o control.Origin) {
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		o.From = at.Addr().Unmap().WithZone("")
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		for _, ip := range r.TLS.PeerCertificates[0].IPAddresses {
			if a, ok := netip.AddrFromSlice(ip); ok {
				o.Certified = append(o.Certified, a.Unmap())
			}
		}
	}
	return o
}

// serveUnknown answers a request for no route, of whose absence only cluster admins hear.
func (s *router) serveUnknown(w http.ResponseWriter, r *http.Request, answer func(w http.ResponseWriter)) {
	e := entryOf(r, "")
	id, err := s.identify(r)
	e.Who, e.How, e.ID = id.Name, id.How, id.ID
	if err == nil {
		var role access.Role
		role, err = id.CheckUnknownRoute()
		e.Role = string(role)
	}
	if err != nil {
		s.deny(w, r, e, err)
		return
	}
	sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	answer(sw)
	if !isRead(r.Method) {
		e.Status = sw.status
		s.record(&route{verb: verbChange}, &request{Request: r}, e)
	}
}

// deny answers a client that is not let in, and records it.
func (s *router) deny(w http.ResponseWriter, r *http.Request, e audit.Entry, err error) {
	no := httpguard.RefusalOf(err)
	if no.Cause != nil {
		s.log.Warn("a client could not be identified", "method", r.Method, "route", e.Route, "error", no.Cause)
	}
	s.requests.WithLabelValues("none", methodLabel(r.Method), strconv.Itoa(no.Status)).Inc()
	e.Status, e.Result, e.Why = no.Status, audit.Refused, no.Text
	if s.audit != nil {
		s.audit.Record(e)
	}
	closeBeforeExpiry(w, r)
	no.Write(w, r)
}

// record records what was let in, if it is to be.
func (s *router) record(rt *route, r *request, e audit.Entry) {
	if s.audit == nil || rt.verb == verbRead {
		return
	}
	e.Result = audit.Done
	if e.Status >= http.StatusBadRequest {
		e.Result = audit.Failed
	}
	if rt.verb == verbReport {
		e.After, e.What = 0, r.changed
		again := s.refusals.isRepeated(e, r.refused)
		if r.refused != "" {
			e.Result, e.Why = audit.Refused, r.refused
		}
		if again || r.refused == "" && r.changed == "" {
			return
		}
	}
	s.audit.Record(e)
}

// reportRefusals are the last refusals of hosts' reports, by route and host: reports come
// every few seconds, and each refusal is recorded once.
type reportRefusals struct {
	mu   sync.Mutex
	last map[string]string
}

// maxRefusals bounds the hosts whose last refusal is remembered.
const maxRefusals = 10_000

// isRepeated notes why a report was refused; empty = it was not. It reports whether the last
// one was refused for the same reason.
func (x *reportRefusals) isRepeated(e audit.Entry, refused string) bool {
	of := fmt.Sprint(e.Route, e.Objects)
	x.mu.Lock()
	defer x.mu.Unlock()
	if refused == "" {
		delete(x.last, of)
		return false
	}
	if x.last[of] == refused {
		return true
	}
	if x.last == nil || len(x.last) >= maxRefusals {
		x.last = map[string]string{}
	}
	x.last[of] = refused
	return false
}

// recheckInterval is between two checks of the identity for which a stream is.
const recheckInterval = 10 * time.Second

// whileAuthorized returns a context that ends when the client's credentials are no longer valid,
// such as a revoked token or an expired certificate, or are good for something else, such as
// a token one of whose tenants was deleted: the refusal is the context's cause. end ends it,
// and the checks. A check that fails because the store is away ends nothing.
func (s *router) whileAuthorized(ctx context.Context, shown *http.Request, client access.Identity) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(recheckInterval)
		defer tick.Stop()
		for {
			var tenants <-chan struct{} // closed when one comes, changes or goes; nil = it does not matter
			if client.Scope() != nil {
				tenants = s.control.Settings.IntentChanged()
			}
			now, err := s.identify(shown.WithContext(ctx))
			switch {
			case err != nil && httpguard.RefusalOf(err).Status == http.StatusUnauthorized:
				cancel(httpguard.RefusalOf(err))
				return
			case err == nil && !reflect.DeepEqual(now.Grants, client.Grants):
				cancel(httpguard.Unauthorized("what the client may see has changed; ask again"))
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-tenants:
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// closeBefore is how long before the end of its certificate a connection is closed after the
// next answer: a client whose certificate was renewed comes with that.
const closeBefore = time.Hour

// closeBeforeExpiry has the connection closed after the answer if its certificate expires soon.
func closeBeforeExpiry(w http.ResponseWriter, r *http.Request) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && time.Until(r.TLS.PeerCertificates[0].NotAfter) < closeBefore {
		w.Header().Set("Connection", "close")
	}
}

func isRead(method string) bool { return method == http.MethodGet || method == http.MethodHead }

func entryOf(r *http.Request, route string) audit.Entry {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr
	}
	return audit.Entry{From: strings.Trim(from, "[]"), Method: r.Method, Route: route}
}
