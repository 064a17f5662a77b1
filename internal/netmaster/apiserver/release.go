package apiserver

import (
	"cmp"
	"net/http"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
)

// release gives to users what belongs to an object of Kubernetes.
func (s *storeHandlers) release(_ http.ResponseWriter, r *request, ask api.OwnershipRelease) (any, error) {
	rev, err := s.control.Ownership.Release(r.Context(), r.actor, model.Owned{Kind: cmp.Or(ask.Kind, "release"), Key: ask.Key})
	r.committed(rev)
	return ask, err
}

func ofRelease(_ *request, ask api.OwnershipRelease) (access.Resource, error) {
	return access.Resource{Objects: []audit.Object{{Kind: cmp.Or(ask.Kind, "release"), Key: ask.Key}}}, nil
}
