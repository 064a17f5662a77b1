package apiserver

import (
	"context"
	"net/http"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Tokens keeps what lets its bearers in. It knows who asks by the request's context.
type Tokens interface {
	CreateToken(ctx context.Context, r api.TokenRequest) (api.NewToken, error)
	ListTokens(ctx context.Context) ([]api.Token, error)
	RevokeToken(ctx context.Context, id string) error
}

func (s *server) handleTokens() {
	s.handle("GET", "/api/v1/tokens", func(_ http.ResponseWriter, r *http.Request) (any, error) {
		if s.tokens == nil {
			return nil, errNoTokens()
		}
		return s.tokens.ListTokens(r.Context())
	})
	s.handle("POST", "/api/v1/tokens", s.createToken)
	s.handle("DELETE", "/api/v1/tokens/{id}", func(_ http.ResponseWriter, r *http.Request) (any, error) {
		if s.tokens == nil {
			return nil, errNoTokens()
		}
		id := r.PathValue("id")
		return id, s.tokens.RevokeToken(r.Context(), id)
	})
}

func (s *server) createToken(w http.ResponseWriter, r *http.Request) (any, error) {
	if s.tokens == nil {
		return nil, errNoTokens()
	}
	var ask api.TokenRequest
	if _, err := decode(w, r, &ask); err != nil {
		return nil, err
	}
	w.Header().Set("Cache-Control", "no-store")
	return s.tokens.CreateToken(r.Context(), ask)
}

func errNoTokens() error {
	return model.Errorf(model.ErrConflict, "this netmaster lets nobody in by tokens of the cluster: start all netmasters with --tokens")
}
