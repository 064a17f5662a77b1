package apiserver

import (
	"net/http"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

func (s *server) handleEndpoints() {
	s.handle("GET", "/api/v1/inspect/endpoints/{key}", s.inspectEndpoint)
	s.handle("POST", "/api/v1/endpoints/{key}/drain", s.drainer(true))
	s.handle("DELETE", "/api/v1/endpoints/{key}/drain", s.drainer(false))
}

// inspectEndpoint finds an endpoint by its key (tenant:network:id), its id, its
// container's id or its exact name, in this order; 1.x took any part of one
// (known fault 30).
func (s *server) inspectEndpoint(_ http.ResponseWriter, r *http.Request) (any, error) {
	v, e, err := s.endpointOf(r)
	if err != nil {
		return nil, err
	}
	o := endpointOper(v, e)
	o.Key = r.PathValue("key")
	return struct{ Oper any }{shown(r.Context(), o)}, nil
}

// drainRequest is the body of a request that says all by its path.
type drainRequest struct{}

// bare refuses a body that says anything: "drain": false would drain.
func bare(w http.ResponseWriter, r *http.Request) error {
	_, err := decode(w, r, &drainRequest{})
	return err
}

// drainer answers that an endpoint drains, or does no more.
func (s *server) drainer(drain bool) handler {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		if drain {
			if err := bare(w, r); err != nil {
				return nil, err
			}
		}
		v, e, err := s.endpointOf(r)
		if err != nil {
			return nil, err
		}
		if e, err = s.control.DrainEndpoint(r.Context(), e.Key, drain); err != nil {
			return nil, err
		}
		o := endpointOper(v, e)
		o.Key = e.Key.String()
		return shown(r.Context(), o), nil
	}
}

// endpointOf finds the endpoint that a path names, of those within the scope of who asks.
func (s *server) endpointOf(r *http.Request) (*control.View, model.Endpoint, error) {
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, model.Endpoint{}, err
	}
	key, scope := r.PathValue("key"), control.ScopeOf(r.Context())
	if k, err := model.ParseEndpointKey(key); err == nil && scope.Has(k.Network.Tenant) {
		if e, found := v.Endpoint(k); found {
			return v, e, nil
		}
	}
	found := slices.DeleteFunc(slices.Clone(v.FindEndpoints(key)), func(e model.Endpoint) bool { return !scope.Has(e.Key.Network.Tenant) })
	e, err := chooseEndpoint(found, key)
	return v, e, err
}

func chooseEndpoint(found []model.Endpoint, key string) (model.Endpoint, error) {
	for _, by := range []func(model.Endpoint) string{
		func(e model.Endpoint) string { return string(e.Key.ID) },
		func(e model.Endpoint) string { return e.Container },
		func(e model.Endpoint) string { return e.Name },
	} {
		var hits []model.Endpoint
		for _, e := range found {
			if by(e) == key {
				hits = append(hits, e)
			}
		}
		switch {
		case len(hits) == 1:
			return hits[0], nil
		case len(hits) > 1:
			var keys []string
			for _, e := range hits {
				keys = append(keys, e.Key.String())
			}
			return model.Endpoint{}, model.Errorf(model.ErrConflict, "endpoint %q is ambiguous; ask for one of %s", key, strings.Join(keys, ", "))
		}
	}
	return model.Endpoint{}, notFound("endpoint", key)
}
