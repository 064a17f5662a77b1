package apiserver

import (
	"net/http"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

func (s *hostHandlers) evictHost(w http.ResponseWriter, r *request) (any, error) {
	if err := refuseBody(w, r); err != nil {
		return nil, err
	}
	force, err := boolQuery(r, "force")
	if err != nil {
		return nil, err
	}
	name := model.HostName(r.PathValue("name"))
	n, rev, err := s.control.Hosts.EvictHost(r.Context(), r.actor, name, force)
	r.committed(rev)
	if n > 0 || err == nil {
		s.log.Info("a host was evicted on request", "host", string(name), "endpointsReleased", n, "error", err)
	}
	if err != nil {
		return nil, err
	}
	return api.HostRemoval{Host: string(name), EndpointsReleased: n}, nil
}

// hostDrainer answers that a host drains, or does no more.
func (s *hostHandlers) hostDrainer(drain bool) handler {
	return func(w http.ResponseWriter, r *request) (any, error) {
		if drain {
			if err := refuseBody(w, r); err != nil {
				return nil, err
			}
		}
		h, rev, err := s.control.Hosts.DrainHost(r.Context(), r.actor, model.HostName(r.PathValue("name")), drain)
		r.committed(rev)
		if err != nil {
			return nil, err
		}
		if drain {
			s.log.Info("a host drains on request: services send its providers no new connections", "host", string(h.Name))
		} else {
			s.log.Info("a host was uncordoned on request", "host", string(h.Name))
		}
		return s.hostToAPI(h, time.Now()), nil
	}
}
