package apiserver

import (
	"cmp"
	"net/http"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// release gives to users what belongs to an object of Kubernetes.
func (s *storeHandlers) release(_ http.ResponseWriter, r *request, ask api.Release) (any, error) {
	return ask, s.control.Ownership.Release(r.Context(), control.Author{}, model.Owned{Kind: cmp.Or(ask.Kind, "release"), Key: ask.Key})
}

func ofRelease(_ *request, ask api.Release) (access.Resource, error) {
	return access.Resource{Objects: []audit.Object{{Kind: cmp.Or(ask.Kind, "release"), Key: ask.Key}}}, nil
}
