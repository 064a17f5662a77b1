package apiserver

import (
	"net/http"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
)

// cleanupAnswer tells how much a clean-up did; 1.x answered 200 with nothing,
// whatever had happened (known fault 31).
type cleanupAnswer struct {
	EndpointsDeleted int `json:"endpointsDeleted"`
}

// cleanup deletes endpoints whose containers are gone for good: those of a
// network, of a group, or one.
func (s *endpointHandlers) cleanup(_ http.ResponseWriter, r *request) (any, error) {
	tenant, err := model.ParseTenantName(r.PathValue("tenant"))
	if err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	switch what := r.PathValue("what"); what {
	case "net":
		k := model.NetworkKey{Tenant: tenant, Name: model.NetworkName(id)}
		n, rev, err := s.control.Endpoints.DeleteEndpointsOfNetwork(r.Context(), r.actor, k)
		r.committed(rev)
		return cleanupAnswer{n}, err
	case "group":
		k := model.GroupKey{Tenant: tenant, Name: model.GroupName(id)}
		n, rev, err := s.control.Endpoints.DeleteEndpointsOfGroup(r.Context(), r.actor, k)
		r.committed(rev)
		return cleanupAnswer{n}, err
	case "ep":
		v, err := s.control.View(r.Context())
		if err != nil {
			return nil, err
		}
		var found []model.Endpoint
		for _, e := range v.Endpoints.Find(id) {
			if e.Key.Network.Tenant == tenant {
				found = append(found, e)
			}
		}
		e, err := chooseEndpoint(found, id)
		if err != nil {
			return nil, err
		}
		_, rev, err := s.control.Endpoints.DeleteEndpoint(r.Context(), r.actor, e.Key)
		r.committed(rev)
		return cleanupAnswer{1}, err
	default:
		return nil, model.InvalidField("category", clip([]byte(what)), "must be net, group or ep")
	}
}

func ofCleanup(r *request) (access.Resource, error) {
	return access.Resource{Objects: []audit.Object{{Kind: "endpoint", Key: r.PathValue("tenant") + ":" + r.PathValue("what") + ":" + r.PathValue("id")}}}, nil
}
