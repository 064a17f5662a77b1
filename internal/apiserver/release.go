package apiserver

import (
	"net/http"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

// release gives to users what belongs to an object of Kubernetes.
func (s *server) release(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask api.Release
	if _, err := decode(w, r, &ask); err != nil {
		return nil, err
	}
	return ask, s.control.Release(r.Context(), control.Author{}, model.Owned{Kind: ask.Kind, Key: ask.Key})
}
