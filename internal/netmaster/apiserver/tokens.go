package apiserver

import (
	"context"
	"net/http"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
)

// tokenHandlers answers for the cluster's tokens.
type tokenHandlers struct {
	tokens Tokens // nil = none
}

// Tokens keeps what lets its bearers in.
type Tokens interface {
	// CreateToken makes a token for a client.
	CreateToken(ctx context.Context, by access.Identity, r api.TokenRequest) (api.NewToken, error)
	ListTokens(ctx context.Context) ([]api.Token, error)
	RevokeToken(ctx context.Context, id string) error
}

func (s *server) handleTokens() {
	s.router.handle("GET", "/api/v1/tokens", access.AdminOnly, nil, func(_ http.ResponseWriter, r *request) (any, error) {
		if s.tokens.tokens == nil {
			return nil, errNoTokens()
		}
		return s.tokens.tokens.ListTokens(r.Context())
	})
	handleRead(s.router, "POST", "/api/v1/tokens", access.AdminOnly, readBody[api.TokenRequest], ofToken, s.tokens.createToken)
	s.router.handle("DELETE", "/api/v1/tokens/{id}", access.AdminOnly, namedResource("token", "id"), func(_ http.ResponseWriter, r *request) (any, error) {
		if s.tokens.tokens == nil {
			return nil, errNoTokens()
		}
		id := r.PathValue("id")
		return id, s.tokens.tokens.RevokeToken(r.Context(), id)
	})
}

func ofToken(_ *request, ask api.TokenRequest) (access.Resource, error) {
	return access.Resource{Objects: []audit.Object{{Kind: "token", Key: ask.Name + " " + ask.Role + " " + strings.Join(ask.Tenants, ",")}}}, nil
}

func (s *tokenHandlers) createToken(w http.ResponseWriter, r *request, ask api.TokenRequest) (any, error) {
	if s.tokens == nil {
		return nil, errNoTokens()
	}
	w.Header().Set("Cache-Control", "no-store")
	return s.tokens.CreateToken(r.Context(), r.client, ask)
}

func errNoTokens() error {
	return model.Errorf(model.ErrConflict, "this netmaster does not accept tokens of the cluster: start all netmasters with --tokens")
}
