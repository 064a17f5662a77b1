package oidc

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
)

// FuzzClaims: of whatever an issuer has signed, somebody is let in only by the name that the
// claim is, one that the issuer has verified where it is an email address, with the roles of
// the groups that are listed and no other; the rest is refused as a token, and not as a failure.
func FuzzClaims(f *testing.F) {
	const issuer, good = "https://login.example.com", `{"iss":"https://login.example.com","aud":"contiv","exp":1798761600,"sub":"u1"`
	for _, more := range []string{
		`}`, `,"groups":"admins"}`, `,"groups":["admins","viewers",""]}`, `,"groups":null}`, `,"groups":[null]}`, `,"groups":{"admins":1}}`, `,"groups":["admins",7]}`, `,"Groups":["admins"]}`,
		`,"email":"anna@example.com","email_verified":true,"groups":["viewers"]}`, `,"email":"anna@example.com","email_verified":"true"}`, `,"email":["anna"],"email_verified":true}`,
		`,"sub":7}`, `,"sub":""}`, `,"sub":"u2\u0000\u001b"}`, `,"aud":["other"]}`, `,"exp":1}`, `,"nbf":4102444800}`, `,"iss":"https://other"}`,
	} {
		f.Add([]byte(good+more), strings.Contains(more, "email"))
	}
	f.Add([]byte(`null`), false)
	f.Add([]byte(`[]`), true)
	key := newKey(f, "one")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		f.Fatal(err)
	}
	now := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	keys := newKeySet(nil, "")
	keys.keys = []jose.JSONWebKey{key.Public()}
	roles := map[string]access.Grant{"admins": {Role: access.ClusterAdmin}, "viewers": {Role: access.Viewer}}
	f.Fuzz(func(t *testing.T, claims []byte, email bool) {
		signed, err := signer.Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		user := "sub"
		if email {
			user = "email"
		}
		v, err := New(Config{Issuer: issuer, ClientID: clientID, UserClaim: user, Groups: roles})
		if err != nil {
			t.Fatal(err)
		}
		v.keys, v.now = keys, func() time.Time { return now }
		id, err := v.Identify(t.Context(), shown)
		if err != nil {
			if r, is := errors.AsType[*httpguard.Refusal](err); !is || r.Status != http.StatusUnauthorized || len(id.Grants) > 0 {
				t.Errorf("%q: %+v, %v", claims, id, err)
			}
			return
		}
		var said map[string]any
		if err := json.Unmarshal(claims, &said); err != nil {
			t.Fatalf("%q is taken: %v", claims, err)
		}
		groups, _ := said["groups"].([]any)
		if one, is := said["groups"].(string); is {
			groups = []any{one}
		}
		var want []access.Grant
		for _, name := range []string{"admins", "viewers"} {
			if slices.Contains(groups, any(name)) {
				want = append(want, roles[name])
			}
		}
		if id.Name == "" || id.Name != said[user] || email && said["email_verified"] != true || id.How != access.ByOIDC || !slices.EqualFunc(id.Grants, want, func(a, b access.Grant) bool { return a.Role == b.Role }) || (id.Note == "") != (len(want) > 0) {
			t.Errorf("%q lets in %+v", claims, id)
		}
	})
}
