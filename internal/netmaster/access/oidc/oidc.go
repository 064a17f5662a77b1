package oidc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
)

// algorithms are those with a key that only the issuer has.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// maxToken is the longest token that is looked at, in bytes.
const maxToken = 16 << 10

// Verifier is the access.Bearer for an issuer's tokens. It is safe for concurrent use.
type Verifier struct {
	cfg    Config
	issuer *issuer
	now    func() time.Time

	turn chan struct{} // holds one; its holder may use keys
	keys *keySet       // nil until the issuer has told where its keys are
}

// New returns a Verifier. The issuer is not asked before the first token comes.
func New(cfg Config) (*Verifier, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("OpenID Connect: %w", err)
	}
	v := &Verifier{cfg: cfg, now: time.Now, turn: make(chan struct{}, 1)}
	v.turn <- struct{}{}
	v.issuer = newIssuer(cfg, func() time.Time { return v.now() })
	return v, nil
}

// Takes implements access.Bearer: it is for what has the three parts of a JWT.
func (v *Verifier) Takes(shown string) bool { return strings.Count(shown, ".") == 2 }

// Identify implements access.Bearer.
func (v *Verifier) Identify(ctx context.Context, shown string) (access.Identity, error) {
	claimed := access.Identity{How: access.ByOIDC}
	if len(shown) > maxToken {
		return claimed, httpguard.Unauthorized("the token of %s is longer than %d bytes", v.cfg.Issuer, maxToken)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*v.cfg.Timeout) // where its keys are, and the keys
	defer cancel()
	keys, err := v.discovered(ctx)
	asked := err
	var token *oidc.IDToken
	if err == nil {
		set := &forOne{keySet: keys}
		token, err = oidc.NewVerifier(v.cfg.Issuer, set, &oidc.Config{ClientID: v.cfg.ClientID, SupportedSigningAlgs: algorithms, Now: v.now}).Verify(ctx, shown)
		asked = set.err
	}
	if away, is := errors.AsType[*awayError](asked); is {
		return claimed, httpguard.Unavailable(retryAfter, away.error, "tokens of %s cannot be judged now: the issuer does not answer as it should; try again, or show a certificate or a token of netmaster", v.cfg.Issuer)
	}
	if err != nil && ctx.Err() != nil {
		return claimed, httpguard.Unavailable(retryAfter, ctx.Err(), "tokens of %s cannot be judged now: the issuer did not answer in time", v.cfg.Issuer)
	}
	if late, is := errors.AsType[*oidc.TokenExpiredError](err); is {
		return claimed, httpguard.Unauthorized("the token of %s is over since %s: get another", v.cfg.Issuer, late.Expiry.UTC().Format(time.RFC3339))
	}
	if err != nil { // its text has no secret: go-oidc tells claims and algorithms
		return claimed, httpguard.Unauthorized("the token of %s is not accepted: %s", v.cfg.Issuer, strings.TrimPrefix(err.Error(), "oidc: "))
	}
	if why := v.notForThisClient(token, shown); why != "" {
		return claimed, httpguard.Unauthorized("the token of %s is not accepted: %s", v.cfg.Issuer, why)
	}
	return v.identity(token)
}

// maxLife is how far in the future a token may end.
const maxLife = 366 * 24 * time.Hour

// logoutEvent marks a logout token (OpenID Connect Back-Channel Logout section 2.4).
const logoutEvent = "http://schemas.openid.net/event/backchannel-logout"

// notForThisClient says why a token that its issuer signed is no ID token for this client;
// empty = it is one.
func (v *Verifier) notForThisClient(token *oidc.IDToken, shown string) string {
	var header struct {
		Type string `json:"typ"`
	}
	first, _, _ := strings.Cut(shown, ".")
	if raw, err := base64.RawURLEncoding.DecodeString(first); err != nil || json.Unmarshal(raw, &header) != nil {
		return "its header cannot be read"
	}
	if t := strings.TrimPrefix(strings.ToLower(header.Type), "application/"); t != "" && t != "jwt" {
		return fmt.Sprintf("its type is %q, and it has to be an ID token, of type JWT", httpguard.Clip(header.Type))
	}
	var claims struct {
		Party  *string                    `json:"azp"`
		Events map[string]json.RawMessage `json:"events"`
	}
	if err := token.Claims(&claims); err != nil {
		return "its claims cannot be read"
	}
	_, logout := claims.Events[logoutEvent]
	switch {
	case token.Subject == "":
		return "it has no claim \"sub\" with a user's name"
	case claims.Party != nil && *claims.Party != v.cfg.ClientID:
		return fmt.Sprintf("it was made for %q (claim azp), and not for %q", httpguard.Clip(*claims.Party), v.cfg.ClientID)
	case logout:
		return "it is a logout token, and has to be an ID token"
	case token.Expiry.After(v.now().Add(maxLife)):
		return "it ends more than 366 days from now"
	}
	return ""
}

// discovered returns the issuer's keys, once it has told where they are.
func (v *Verifier) discovered(ctx context.Context) (*keySet, error) {
	select {
	case <-v.turn:
		defer func() { v.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if v.keys != nil {
		return v.keys, nil
	}
	p, err := oidc.NewProvider(oidc.ClientContext(ctx, v.issuer.client), v.cfg.Issuer)
	if err != nil {
		return nil, &awayError{err}
	}
	var found struct {
		Keys string `json:"jwks_uri"`
	}
	if err := p.Claims(&found); err != nil {
		return nil, &awayError{err}
	}
	v.keys = newKeySet(v.issuer, found.Keys)
	return v.keys, nil
}

// identity reads the claims of a token that was verified.
func (v *Verifier) identity(token *oidc.IDToken) (access.Identity, error) {
	var claims map[string]json.RawMessage
	id := access.Identity{How: access.ByOIDC, ID: token.Subject}
	if err := token.Claims(&claims); err != nil {
		return id, httpguard.Unauthorized("the token of %s is not accepted: its claims cannot be read", v.cfg.Issuer)
	}
	if json.Unmarshal(claims[v.cfg.UserClaim], &id.Name) != nil || id.Name == "" {
		return id, httpguard.Unauthorized("the token of %s is not accepted: it has no claim %q with a user's name", v.cfg.Issuer, v.cfg.UserClaim)
	}
	var verified bool
	if v.cfg.UserClaim == "email" && (json.Unmarshal(claims["email_verified"], &verified) != nil || !verified) {
		return id, httpguard.Unauthorized("the token of %s is not accepted: its issuer has not verified the email address", v.cfg.Issuer)
	}
	groups, err := texts(claims[v.cfg.GroupsClaim])
	if err != nil {
		return id, httpguard.Unauthorized("the token of %s is not accepted: its claim %q is not a list of groups", v.cfg.Issuer, v.cfg.GroupsClaim)
	}
	for _, name := range slices.Sorted(maps.Keys(v.cfg.Groups)) {
		if slices.Contains(groups, name) {
			id.Grants = append(id.Grants, v.cfg.Groups[name])
		}
	}
	if len(id.Grants) == 0 {
		id.Note = fmt.Sprintf("none of the %d groups in the token's claim %q has a role here", len(groups), v.cfg.GroupsClaim)
	}
	return id, nil
}

// texts reads a list of texts, or a single one; nothing is an empty list.
func texts(raw json.RawMessage) (all []string, err error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &all); err == nil {
		return all, nil
	}
	all = make([]string, 1)
	return all, json.Unmarshal(raw, &all[0])
}
