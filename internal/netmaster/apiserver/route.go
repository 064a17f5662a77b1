package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// router owns the routes, and lets requests in: it identifies clients, decides what they
// may do, counts and records what they did. The server registers routes; handlers refuse by it.
type router struct {
	*serverContext
	allowed []string // names of this server, see Config.Hosts
	audit   Recorder
	// authenticate and audit are Config's.
	authenticate func(r *http.Request) (access.Identity, error)
	bodies       bodyBudget
	durations    *prometheus.HistogramVec
	legacy       bool // see Config.LegacyErrors
	mux          *http.ServeMux
	names        []string // of the collections
	refusals     reportRefusals
	requests     *prometheus.CounterVec
	routes       []*route // in the order of their registration
}

// request is a request of a client that is known.
type request struct {
	*http.Request
	client access.Identity
	actor  control.Actor // the client, for use-cases
	// changed and refused are for the audit log: what an agent's report changed, or why it
	// was refused.
	changed, refused string
	// revision is of the last commit of the request's use-cases, for the answer and the audit
	// log; 0 = there was none.
	revision int64
}

// committed notes the revision of a commit.
func (r *request) committed(rev control.Revision) { r.revision = max(r.revision, int64(rev)) }

// verb is what a route does, for the audit log.
type verb int

const (
	verbRead   verb = iota // never recorded, unless it is refused
	verbChange             // recorded
	verbReport             // an agent tells what it observes, often: recorded if that changes something or is refused
)

// handler answers with a value, which is sent as JSON, or an error.
type handler func(w http.ResponseWriter, r *request) (any, error)

// resourceFunc says what a request is about; nil = nothing that capabilities or the audit log ask for.
type resourceFunc func(r *request) (access.Resource, error)

// route is a method and a path that the server answers, and what it requires of clients.
type route struct {
	method, path string
	kind         *kind // of collections
	need         access.Capability
	verb         verb
	// limit is the time that a request may take; 0 = its handler answers by itself.
	limit time.Duration
	// body is how large a body may be that is counted while it is in memory, in bytes; 0 =
	// bodies of this route are small.
	body int64
	// lasts: the answer is a stream, and the identity is checked again while it lasts.
	lasts bool
	// hasResource: prepare says what a request is about.
	hasResource bool
	// prepare reads a request, and returns what it is about and what answers it.
	prepare func(w http.ResponseWriter, r *request) (access.Resource, func() (any, error), error)
}

// add registers a route, with and without trailing slash.
func (s *router) add(rt *route) *route {
	if rt.method != http.MethodGet {
		rt.verb = verbChange
	}
	s.routes = append(s.routes, rt)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(rt, w, r) })
	s.mux.Handle(rt.method+" "+rt.path, h)
	s.mux.Handle(rt.method+" "+rt.path+"/{$}", h)
	return rt
}

// check refuses a route that requires nothing of clients, or that does not say what the
// decision needs.
func (rt *route) check() error {
	if rt.need == 0 || rt.need.NeedsResource() && !rt.hasResource {
		return fmt.Errorf("route %s %s: declares no capability, or one that needs the request's resource", rt.method, rt.path)
	}
	return nil
}

// handle registers a handler that reads no body before it is known what the request is about.
func (s *router) handle(method, path string, need access.Capability, of resourceFunc, h handler) *route {
	return s.add(&route{method: method, path: path, need: need, limit: s.timeout, hasResource: of != nil, prepare: func(w http.ResponseWriter, r *request) (res access.Resource, do func() (any, error), err error) {
		if of != nil {
			res, err = of(r)
		}
		return res, func() (any, error) { return h(w, r) }, err
	}})
}

// handleStream registers a handler that answers by itself, for as long as it takes.
func (s *router) handleStream(method, path string, need access.Capability, of resourceFunc, h func(w http.ResponseWriter, r *request)) *route {
	rt := s.handle(method, path, need, of, func(w http.ResponseWriter, r *request) (any, error) { h(w, r); return nil, nil })
	rt.limit = 0
	return rt
}

// handleRead registers a handler of a request whose body or query says what it is about:
// read reads it once, for the decision and for the handler.
func handleRead[T any](
	s *router, method, path string, need access.Capability,
	read func(w http.ResponseWriter, r *request) (T, error), of func(r *request, in T) (access.Resource, error), h func(w http.ResponseWriter, r *request, in T) (any, error),
) *route {
	return s.add(&route{method: method, path: path, need: need, limit: s.timeout, body: MaxBody, hasResource: true, prepare: func(w http.ResponseWriter, r *request) (access.Resource, func() (any, error), error) {
		in, err := read(w, r)
		if err != nil {
			return access.Resource{}, nil, err
		}
		res, err := of(r, in)
		return res, func() (any, error) { return h(w, r, in) }, err
	}})
}

// readBody reads a body of a type.
func readBody[T any](w http.ResponseWriter, r *request) (in T, err error) {
	_, err = decode(w, r, &in)
	return in, err
}

// namedResource is about the object of a kind that a part of the path names.
func namedResource(kind, part string) resourceFunc {
	return func(r *request) (access.Resource, error) {
		key := r.PathValue(part)
		return access.Resource{Objects: []audit.Object{{Kind: kind, Key: key}}, Tenants: []string{tenantOf(key)}}, nil
	}
}

// tenantOf is the tenant in TENANT:NAME, and all of a tenant's own key.
func tenantOf(key string) string {
	tenant, _, _ := strings.Cut(key, ":")
	return tenant
}

// scope returns what the client may read.
func (r *request) scope() control.Scope { return r.actor.Scope() }
