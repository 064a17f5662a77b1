package api

import (
	"context"
	"net/http"
	"net/url"
)

// Token gives its bearer access. Only CreateToken returns its secret, once.
type Token struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"` // of who has it
	Role    string   `json:"role"` // cluster-admin, tenant-admin or viewer
	Tenants []string `json:"tenants,omitempty"`
	// TenantsGone are those of its tenants that were deleted: it is good for these no more,
	// also where one of the same name was created since.
	TenantsGone []string `json:"tenantsGone,omitempty"`
	By          string   `json:"by"`      // who had it made
	Created     string   `json:"created"` // RFC 3339
	Expires     string   `json:"expires"` // RFC 3339
}

// TokenRequest asks for a token.
type TokenRequest struct {
	Name    string   `json:"name"`
	Role    string   `json:"role"`
	Tenants []string `json:"tenants,omitempty"` // of a tenant-admin
	// Life is how long it is good, in seconds, up to 366 days.
	Life int64 `json:"life"`
}

// NewToken is a Token with its secret.
type NewToken struct {
	Token  Token  `json:"token"`
	Secret string `json:"secret"` // what is shown to netmasters
}

const tokensPath = "/api/v1/tokens"

// Tokens returns all tokens, in the order of their ids.
func (c *Client) Tokens(ctx context.Context) (all []Token, err error) {
	err = c.Do(ctx, http.MethodGet, tokensPath, nil, &all)
	return all, err
}

// CreateToken makes a token.
func (c *Client) CreateToken(ctx context.Context, r TokenRequest) (made NewToken, err error) {
	err = c.Do(ctx, http.MethodPost, tokensPath, r, &made)
	return made, err
}

// RevokeToken ends a token at once. One that is not there is KindNotFound.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	var revoked string
	return c.Do(ctx, http.MethodDelete, tokensPath+"/"+url.PathEscape(id), nil, &revoked)
}
