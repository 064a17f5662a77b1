package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const clientID = "contiv"

// provider is a small issuer of ID tokens.
type provider struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	keys   []jose.JSONWebKey // public ones that it shows
	signer jose.JSONWebKey
	away   bool
	issuer string // that discovery tells; empty = itself
	keysAt string // likewise
	asked  map[string]int
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{t: t, asked: map[string]int{}}
	p.Server = httptest.NewTLSServer(p)
	t.Cleanup(p.Close)
	p.rotate("one")
	return p
}

func newKey(t testing.TB, id string) jose.JSONWebKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"}
}

// rotate signs with a new key, and shows no other.
func (p *provider) rotate(id string) {
	p.t.Helper()
	key := newKey(p.t, id)
	p.set(func() { p.signer, p.keys = key, []jose.JSONWebKey{key.Public()} })
}

func (p *provider) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[r.URL.Path]++
	if p.away {
		http.Error(w, "away", http.StatusBadGateway)
		return
	}
	var answer any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		issuer, keys := p.URL, p.URL+"/keys"
		if p.issuer != "" {
			issuer = p.issuer
		}
		if p.keysAt != "" {
			keys = p.keysAt
		}
		answer = map[string]any{"issuer": issuer, "jwks_uri": keys, "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token", "id_token_signing_alg_values_supported": []string{"ES256", "none", "HS256"}}
	case "/keys":
		answer = jose.JSONWebKeySet{Keys: p.keys}
	case "/rubbish":
		answer = "no keys"
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		p.t.Error(err)
	}
}

// claims are those of a good token, with changes: nil takes one away.
func (p *provider) claims(change map[string]any) map[string]any {
	now := time.Now()
	c := map[string]any{"iss": p.URL, "aud": clientID, "sub": "u1", "email": "anna@example.com", "email_verified": true, "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "groups": []string{"admins", "other"}}
	maps.Copy(c, change)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// sign makes a token with a key.
func (p *provider) sign(alg jose.SignatureAlgorithm, key any, claims map[string]any) string {
	p.t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		p.t.Fatal(err)
	}
	signed, err := s.Sign(body)
	if err != nil {
		p.t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

// token makes a token as the issuer does now.
func (p *provider) token(change map[string]any) string {
	p.t.Helper()
	p.mu.Lock()
	key := p.signer
	p.mu.Unlock()
	return p.sign(jose.ES256, key, p.claims(change))
}

func (p *provider) verifier(change func(*Config)) *Verifier {
	p.t.Helper()
	client := p.Client()
	p.t.Cleanup(client.CloseIdleConnections)
	cfg := Config{Issuer: p.URL, ClientID: clientID, Client: client, Timeout: 2 * time.Minute, Groups: map[string]access.Grant{
		"admins": {Role: access.ClusterAdmin}, "blue": {Role: access.TenantAdmin, Tenants: []string{"blue"}}, "see": {Role: access.Viewer},
	}}
	if change != nil {
		change(&cfg)
	}
	v, err := New(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// want asks for an identity, and for a refusal with a status and text.
func want(t *testing.T, v *Verifier, token string, status int, text string) access.Identity {
	t.Helper()
	id, err := v.Identify(t.Context(), token)
	check(t, id, err, status, text)
	return id
}

// settles is want for when the issuer has just changed: a request at the moment when the
// answer to another's question arrives gets that answer from go-oidc, or is checked with
// the keys before it.
func settles(t *testing.T, v *Verifier, token string, status int, text string) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; runtime.Gosched() {
		id, err := v.Identify(t.Context(), token)
		got := http.StatusOK
		if no, is := errors.AsType[*httpguard.Refusal](err); is {
			got = no.Status
		}
		if got == status || got == http.StatusOK && status == http.StatusServiceUnavailable || time.Now().After(deadline) {
			check(t, id, err, status, text)
			return
		}
	}
}

func check(t *testing.T, id access.Identity, err error, status int, text string) {
	t.Helper()
	if status == http.StatusOK {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	no, is := errors.AsType[*httpguard.Refusal](err)
	if !is || no.Status != status || !strings.Contains(no.Text, text) || len(id.Grants) > 0 {
		t.Errorf("got %v (identity %v), want status %d with %q", err, id, status, text)
	}
}

func TestTokensGiveTheIdentity(t *testing.T) {
	p := newProvider(t)
	v := p.verifier(nil)
	admin, blue, see := access.Grant{Role: access.ClusterAdmin}, access.Grant{Role: access.TenantAdmin, Tenants: []string{"blue"}}, access.Grant{Role: access.Viewer}
	for name, tc := range map[string]struct {
		change map[string]any
		grants []access.Grant
	}{
		"of a group":     {nil, []access.Grant{admin}},
		"of two":         {map[string]any{"groups": []string{"see", "blue"}}, []access.Grant{blue, see}},
		"of one as text": {map[string]any{"groups": "blue"}, []access.Grant{blue}},
		"of none":        {map[string]any{"groups": nil}, nil},
		"of others":      {map[string]any{"groups": []string{"Admins", "admins "}}, nil},
		"of this client": {map[string]any{"azp": clientID, "email_verified": false}, []access.Grant{admin}},
		"two audiences":  {map[string]any{"aud": []string{"x", clientID}, "groups": "see"}, []access.Grant{see}},
	} {
		id := want(t, v, p.token(tc.change), http.StatusOK, "")
		id.Note = strings.TrimSpace(id.Note)
		if d := cmp.Diff(access.Identity{Name: "u1", How: access.ByOIDC, ID: "u1", Grants: tc.grants, Note: id.Note}, id); d != "" || (tc.grants == nil) != (id.Note != "") {
			t.Errorf("%s: %s, note %q", name, d, id.Note)
		}
	}
	if v.Takes("contiv-X") || v.Takes("a.b") || !v.Takes(p.token(nil)) {
		t.Error("it takes what is no token of an issuer, or not what is one")
	}
	byEmail := p.verifier(func(c *Config) { c.UserClaim, c.GroupsClaim = "email", "teams" })
	if id := want(t, byEmail, p.token(map[string]any{"teams": "see"}), http.StatusOK, ""); id.Name != "anna@example.com" || id.ID != "u1" || len(id.Grants) != 1 {
		t.Errorf("by other claims: %+v", id)
	}
	want(t, byEmail, p.token(map[string]any{"email_verified": false}), 401, "not verified the email")
	want(t, byEmail, p.token(map[string]any{"email_verified": nil}), 401, "not verified the email")
	want(t, byEmail, p.token(map[string]any{"email": nil}), 401, `no claim "email"`)
	want(t, byEmail, p.token(map[string]any{"email": ""}), 401, `no claim "email"`)
	want(t, byEmail, p.token(map[string]any{"sub": nil}), 401, `no claim "sub"`)
}

func TestInvalidTokensAreRefused(t *testing.T) {
	p := newProvider(t)
	v := p.verifier(nil)
	good := p.token(nil)
	want(t, v, good, http.StatusOK, "")
	header, rest, _ := strings.Cut(good, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + payload + "."
	forged, _ := json.Marshal(p.claims(map[string]any{"groups": "admins", "sub": "other"}))
	public, err := p.signer.Public().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	signedAs := func(options *jose.SignerOptions) string {
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: p.signer}, options)
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(p.claims(nil))
		if err != nil {
			t.Fatal(err)
		}
		signed, err := s.Sign(body)
		if err != nil {
			t.Fatal(err)
		}
		text, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	typed := func(typ string) string { return signedAs((&jose.SignerOptions{}).WithType(jose.ContentType(typ))) }
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	weak, encrypts := jose.JSONWebKey{Key: short, KeyID: "weak", Use: "sig"}, newKey(t, "encrypts")
	encrypts.Use = "enc"
	other, open := newKey(t, "other"), newKey(t, "open")
	p.set(func() {
		p.keys = append(p.keys, weak.Public(), encrypts.Public(), other.Public(), open.Public())
		p.keys[3].Algorithm, p.keys[4].Algorithm = string(jose.ES384), ""
	})
	v = p.verifier(nil)
	want(t, v, p.sign(jose.ES256, open, p.claims(nil)), http.StatusOK, "")
	want(t, v, typed("JWT"), http.StatusOK, "")
	damaged := good[:len(good)-8] + strings.Map(func(r rune) rune {
		if r == 'A' {
			return 'B'
		}
		return 'A'
	}, good[len(good)-8:])
	foreign := newKey(t, "one") // another key under the name of the issuer's
	for name, tc := range map[string]struct{ token, text string }{
		"expired":               {p.token(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), "is over since"},
		"without an end":        {p.token(map[string]any{"exp": nil}), "is over since"},
		"not yet good":          {p.token(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), "before the nbf"},
		"for another":           {p.token(map[string]any{"aud": "other"}), "audience"},
		"for nobody":            {p.token(map[string]any{"aud": nil}), "audience"},
		"of another issuer":     {p.token(map[string]any{"iss": "https://example.com"}), "different provider"},
		"of no issuer":          {p.token(map[string]any{"iss": nil}), "different provider"},
		"of no user":            {p.token(map[string]any{"sub": nil}), "sub"},
		"of an empty user":      {p.token(map[string]any{"sub": ""}), "sub"},
		"for another party":     {p.token(map[string]any{"azp": "other"}), "azp"},
		"a logout token":        {typed("logout+jwt"), "logout+jwt"},
		"an access token":       {typed("at+jwt"), "at+jwt"},
		"a logout event":        {p.token(map[string]any{"events": map[string]any{logoutEvent: map[string]any{}}}), "logout token"},
		"without a near end":    {p.token(map[string]any{"exp": int64(1e18)}), "366 days"},
		"with a key to encrypt": {p.sign(jose.ES256, encrypts, p.claims(nil)), "not signed with a key of its issuer"},
		"of another algorithm":  {p.sign(jose.ES256, other, p.claims(nil)), "not signed with a key of its issuer"},
		"with a short key":      {p.sign(jose.RS256, weak, p.claims(nil)), "not signed with a key of its issuer"},
		"damaged":               {damaged, "not signed with a key of its issuer"},
		"of a strange user":     {p.token(map[string]any{"sub": 7}), "not accepted"},
		"of strange groups":     {p.token(map[string]any{"groups": map[string]any{"a": 1}}), "not a list of groups"},
		"with alg none":         {unsigned, "unexpected signature algorithm \"none\""},
		"without its signature": {header + "." + payload + ".", "not accepted"},
		"with other claims":     {header + "." + base64.RawURLEncoding.EncodeToString(forged) + "." + signature, "not signed with a key of its issuer"},
		"with a foreign key":    {p.sign(jose.ES256, foreign, p.claims(nil)), "not signed with a key of its issuer"},
		"with the public key":   {p.sign(jose.HS256, public, p.claims(nil)), "unexpected signature algorithm \"HS256\""},
		"rubbish":               {"a.b.c", "not accepted"},
		"empty":                 {"..", "not accepted"},
		"too long":              {good + strings.Repeat("A", maxToken), "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			v.issuer.limiter.SetBurst(1000) // so that none is refused for the former ones
			v.issuer.limiter.SetLimit(1000)
			if id := want(t, v, tc.token, 401, tc.text); id.How != access.ByOIDC {
				t.Errorf("for the record: %+v", id)
			}
		})
	}
	want(t, v, good, http.StatusOK, "")
}

// TestNewIssuerKeysCountAtOnce: a new key of the issuer counts at once, and one that it shows no
// more does not once the keys were looked at again; keys that are known are not
// asked for.
func TestNewIssuerKeysCountAtOnce(t *testing.T) {
	p := newProvider(t)
	v := p.verifier(nil)
	first := p.token(nil)
	for range 5 {
		want(t, v, first, http.StatusOK, "")
	}
	p.set(func() {
		if p.asked["/keys"] != 1 || p.asked["/.well-known/openid-configuration"] != 1 {
			t.Errorf("asked %v", p.asked)
		}
	})
	p.rotate("two")
	settles(t, v, p.token(nil), http.StatusOK, "")
	settles(t, v, first, 401, "not signed with a key of its issuer")
}

// TestIssuerThatIsAwayLetsNoTokenIn: an issuer that is away at the start, or later, opens no door, and is
// told as what it is; what needs it not goes on.
func TestIssuerThatIsAwayLetsNoTokenIn(t *testing.T) {
	p := newProvider(t)
	v := p.verifier(nil)
	now := time.Now()
	v.now = func() time.Time { return now }
	good := p.token(nil)
	away := func(is bool) {
		now = now.Add(requestBurst * requestInterval)
		p.set(func() { p.away = is })
	}
	away(true)
	for range 3 {
		want(t, v, good, 503, "the issuer does not answer")
	}
	want(t, v, "a.b.c", 503, "the issuer does not answer")
	away(false)
	want(t, v, good, http.StatusOK, "")
	away(true)
	want(t, v, good, http.StatusOK, "") // its key is known
	p.rotate("two")
	second := p.token(nil)
	settles(t, v, second, 503, "the issuer does not answer")
	away(false)
	settles(t, v, second, http.StatusOK, "")

	p.Close() // nothing listens at all
	want(t, v, second, http.StatusOK, "")
	p.rotate("three")
	now = now.Add(requestBurst * requestInterval)
	settles(t, v, p.token(nil), 503, "the issuer does not answer")
	never := p.verifier(nil)
	want(t, never, second, 503, "the issuer does not answer")
}

// TestIssuerWithoutAnswerTimesOut: an issuer that accepts and says nothing is away when the time is over.
func TestIssuerWithoutAnswerTimesOut(t *testing.T) {
	hold := make(chan struct{})
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer s.Close()
	defer close(hold)
	v, err := New(Config{Issuer: s.URL, ClientID: clientID, Client: s.Client(), Timeout: 50 * time.Millisecond, Groups: map[string]access.Grant{"a": {Role: access.Viewer}}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		want(t, v, "a.b.c", 503, "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Identify(ctx, "a.b.c"); err == nil {
		t.Error("a request that has ended is let in")
	}
}

// TestWrongIssuer: a server that is not the issuer that was named is not believed.
func TestWrongIssuer(t *testing.T) {
	p := newProvider(t)
	plain := httptest.NewServer(p) // its keys are the right ones, but anybody on the way could change them
	defer plain.Close()
	for _, lie := range []func(){
		func() { p.issuer, p.keysAt = "https://example.com", "" },
		func() { p.issuer, p.keysAt = "", plain.URL+"/keys" },
	} {
		p.set(lie)
		want(t, p.verifier(nil), p.token(nil), 503, "does not answer as it should")
	}
	foreign := p.verifier(func(c *Config) { c.Client = nil }) // which does not know the issuer's authority
	want(t, foreign, p.token(nil), 503, "does not answer as it should")
}

// TestUnknownKeysAskTheIssuerSeldom: tokens with unknown keys do not make it ask the issuer more often than the
// bound, and do not keep others out.
func TestUnknownKeysAskTheIssuerSeldom(t *testing.T) {
	p := newProvider(t)
	v := p.verifier(nil)
	now := time.Now()
	v.now = func() time.Time { return now }
	good := p.token(nil)
	want(t, v, good, http.StatusOK, "")
	bad := p.sign(jose.ES256, newKey(t, "none of it"), p.claims(nil))
	for range 50 {
		if _, err := v.Identify(t.Context(), bad); err == nil {
			t.Fatal("let in")
		}
		want(t, v, good, http.StatusOK, "")
	}
	p.set(func() {
		if n := p.asked["/keys"]; n > requestBurst {
			t.Errorf("the keys were asked for %d times", n)
		}
	})
	p.rotate("two")
	now = now.Add(requestInterval)
	settles(t, v, p.token(nil), http.StatusOK, "")
}

func TestBadIssuerSettingsAreRefused(t *testing.T) {
	good := Config{Issuer: "https://example.com/a", ClientID: "x", Groups: map[string]access.Grant{"a": {Role: access.Viewer}}}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for text, spoil := range map[string]func(*Config){
		"https URL":           func(c *Config) { c.Issuer = "http://example.com" },
		"must be an https":    func(c *Config) { c.Issuer = "" },
		"client id":           func(c *Config) { c.ClientID = "" },
		"groups: must not":    func(c *Config) { c.Groups = nil },
		"is for certificates": func(c *Config) { c.Groups = map[string]access.Grant{"a": {Role: access.Host}} },
		"must be one of":      func(c *Config) { c.Groups = map[string]access.Grant{"a": {Role: "root"}} },
		"tenants: must be 1":  func(c *Config) { c.Groups = map[string]access.Grant{"a": {Role: access.TenantAdmin}} },
		"tenants: must be omitted": func(c *Config) {
			c.Groups = map[string]access.Grant{"a": {Role: access.Viewer, Tenants: []string{"a"}}}
		},
		`group "a": tenants: te`: func(c *Config) {
			c.Groups = map[string]access.Grant{"a": {Role: access.TenantAdmin, Tenants: []string{"*"}}}
		},
	} {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}
