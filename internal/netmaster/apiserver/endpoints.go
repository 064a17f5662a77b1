package apiserver

import (
	"net/http"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// endpointHandlers answers for endpoints, for people and for hosts that attach containers.
type endpointHandlers struct {
	*serverContext
	pods Pods // nil = none
}

func (s *server) handleEndpoints() {
	handleRead(s.router, "GET", "/api/v1/inspect/endpoints/{key}", access.View|access.OwnTenants, s.endpoints.endpointsNamed, ofEndpoints, s.endpoints.inspectEndpoint)
	handleRead(s.router, "POST", "/api/v1/endpoints/{key}/drain", access.OwnTenants, s.endpoints.endpointsNamed, ofEndpoints, s.endpoints.drainer(true))
	handleRead(s.router, "DELETE", "/api/v1/endpoints/{key}/drain", access.OwnTenants, s.endpoints.endpointsNamed, ofEndpoints, s.endpoints.drainer(false))
	handleRead(s.router, "GET", "/api/v1/endpoints", access.View|access.OwnTenants|access.OwnHost, readEndpointsQuery, ofEndpointsQuery, s.endpoints.endpoints) // a host releases the ones that it has lost
}

// inspectEndpoint finds an endpoint by its key (tenant:network:id), its id, its
// container's id or its exact name, in this order; 1.x took any part of one
// (known fault 30).
func (s *endpointHandlers) inspectEndpoint(_ http.ResponseWriter, r *request, found endpointsFound) (any, error) {
	e, err := found.one()
	if err != nil {
		return nil, err
	}
	o := endpointOper(found.view, e)
	o.Key = r.PathValue("key")
	return struct{ Oper any }{visibleTo(r.scope(), o)}, nil
}

// drainRequest is the body of a request that says all by its path.
type drainRequest struct{}

// refuseBody refuses a body that says anything: "drain": false would drain.
func refuseBody(w http.ResponseWriter, r *request) error {
	_, err := decode(w, r, &drainRequest{})
	return err
}

// drainer answers that an endpoint drains, or does no more.
func (s *endpointHandlers) drainer(drain bool) func(http.ResponseWriter, *request, endpointsFound) (any, error) {
	return func(w http.ResponseWriter, r *request, found endpointsFound) (any, error) {
		if drain {
			if err := refuseBody(w, r); err != nil {
				return nil, err
			}
		}
		e, err := found.one()
		if err != nil {
			return nil, err
		}
		e, rev, err := s.control.Endpoints.DrainEndpoint(r.Context(), r.actor, e.Key, drain)
		r.committed(rev)
		if err != nil {
			return nil, err
		}
		o := endpointOper(found.view, e)
		o.Key = e.Key.String()
		return visibleTo(r.scope(), o), nil
	}
}

// endpointsFound are the endpoints that a path may mean, of those within the client's scope.
type endpointsFound struct {
	view  *control.View
	text  string
	exact bool // the path is the key of the only one
	list  []model.Endpoint
}

// endpointsNamed finds the endpoints whose key, id, container or name is in the path.
func (s *endpointHandlers) endpointsNamed(_ http.ResponseWriter, r *request) (endpointsFound, error) {
	v, err := s.control.View(r.Context())
	found := endpointsFound{view: v, text: r.PathValue("key")}
	if err != nil {
		return found, err
	}
	scope := r.scope()
	if k, err := model.ParseEndpointKey(found.text); err == nil && scope.Has(k.Network.Tenant) {
		if e, is := v.Endpoints.Get(k); is {
			found.exact, found.list = true, []model.Endpoint{e}
			return found, nil
		}
	}
	found.list = slices.DeleteFunc(slices.Clone(v.Endpoints.Find(found.text)), func(e model.Endpoint) bool { return !scope.Has(e.Key.Network.Tenant) })
	return found, nil
}

// one returns the endpoint that is meant.
func (f endpointsFound) one() (model.Endpoint, error) {
	if f.exact {
		return f.list[0], nil
	}
	return chooseEndpoint(f.list, f.text)
}

// ofEndpoints is about all endpoints that are found.
func ofEndpoints(_ *request, found endpointsFound) (access.Resource, error) {
	res := access.Resource{Objects: []audit.Object{{Kind: "endpoint", Key: found.text}}}
	for _, e := range found.list {
		res.Tenants = append(res.Tenants, string(e.Key.Network.Tenant))
	}
	return res, nil
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
			return model.Endpoint{}, model.Errorf(model.ErrConflict, "endpoint %q is ambiguous; name one of %s", key, strings.Join(keys, ", "))
		}
	}
	return model.Endpoint{}, notFound("endpoint", key)
}
