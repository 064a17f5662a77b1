package main

import (
	"context"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/token"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
)

// tokenAPI serves the cluster's tokens.
type tokenAPI struct{ store *token.Store }

// tokensOf returns nil where there are none.
func (g apiAccess) tokensOf() apiserver.Tokens {
	if g.tokens == nil {
		return nil
	}
	return tokenAPI{g.tokens}
}

// CreateToken implements apiserver.Tokens.
func (t tokenAPI) CreateToken(ctx context.Context, by access.Identity, r api.TokenRequest) (api.NewToken, error) {
	if r.Life < 1 || r.Life > int64(token.MaxLife/time.Second) { // in seconds: it must not overflow
		return api.NewToken{}, model.Errorf(model.ErrInvalid, "life %d: must be from 1 second to 366 days, in seconds", r.Life)
	}
	secret, made, err := t.store.Create(ctx, token.TokenRequest{
		Name: r.Name, Grant: access.Grant{Role: access.Role(r.Role), Tenants: r.Tenants}, Life: time.Duration(r.Life) * time.Second, By: by.Name,
	})
	if err != nil {
		return api.NewToken{}, err
	}
	return api.NewToken{Token: tokenToAPI(made), Secret: secret}, nil
}

// ListTokens implements apiserver.Tokens.
func (t tokenAPI) ListTokens(ctx context.Context) ([]api.Token, error) {
	all, err := t.store.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]api.Token, 0, len(all))
	for _, r := range all {
		out = append(out, tokenToAPI(r))
	}
	return out, nil
}

// RevokeToken implements apiserver.Tokens.
func (t tokenAPI) RevokeToken(ctx context.Context, id string) error {
	parsed, err := token.ParseID(id)
	if err != nil {
		return model.Errorf(model.ErrInvalid, "id: %w", err)
	}
	return t.store.Revoke(ctx, parsed)
}

func tokenToAPI(r token.Record) api.Token {
	return api.Token{
		ID: string(r.ID), Name: r.Name, Role: string(r.Grant.Role), Tenants: r.Grant.Tenants, TenantsGone: r.Gone, By: r.By,
		Created: r.Created.UTC().Format(time.RFC3339), Expires: r.Expires.UTC().Format(time.RFC3339),
	}
}
