package oidc

import (
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// An issuer has several keys, in any order, and for any algorithm.
func TestTokenIsVerifiedByAnyKeyOfItsIssuer(t *testing.T) {
	p := newProvider(t)
	size := func(bits int, id string) jose.JSONWebKey {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.RS256), Use: "sig"}
	}
	mine, other, large := p.signer, newKey(t, "other"), size(minRSA, "one")
	for _, keys := range [][]jose.JSONWebKey{{other, large, mine}, {large, mine, other}, {mine, other, large}} {
		p.set(func() {
			p.keys = nil
			for _, k := range keys {
				p.keys = append(p.keys, k.Public())
			}
		})
		v := p.verifier(nil)
		want(t, v, p.token(nil), http.StatusOK, "")
		want(t, v, p.sign(jose.RS256, large, p.claims(nil)), http.StatusOK, "")
		unnamed := mine
		unnamed.KeyID = ""
		want(t, v, p.sign(jose.ES256, unnamed, p.claims(nil)), http.StatusOK, "")
	}
}

// Anybody can make a token that names a known key: it is no reason to ask the issuer.
func TestForgedTokenOfKnownKeyAsksNoIssuer(t *testing.T) {
	p := newProvider(t)
	v := p.verifier(nil)
	want(t, v, p.token(nil), http.StatusOK, "")
	for range 3 {
		want(t, v, p.sign(jose.ES256, newKey(t, "one"), p.claims(nil)), 401, "not signed with a key of its issuer")
	}
	p.set(func() {
		if p.asked["/keys"] != 1 {
			t.Errorf("the issuer was asked for its keys %d times", p.asked["/keys"])
		}
	})
}

// When the issuer may not be asked now, a token is refused only if the keys that are known
// decide it: one without a key's name, of an issuer whose keys were read.
func TestTokenWaitsWhileIssuerMayNotBeAsked(t *testing.T) {
	p := newProvider(t)
	v := p.verifier(nil)
	now := v.now()
	v.now = func() time.Time { return now }
	want(t, v, p.token(nil), http.StatusOK, "")
	for range requestBurst {
		_, _ = v.Identify(t.Context(), p.sign(jose.ES256, newKey(t, "unheard of"), p.claims(nil)))
	}
	want(t, v, p.sign(jose.ES256, newKey(t, "two"), p.claims(nil)), 503, "")
	want(t, v, p.sign(jose.ES256, newKey(t, ""), p.claims(nil)), 401, "not signed with a key of its issuer")

	p.set(func() { p.keysAt = p.URL + "/nowhere" }) // its keys were never read
	v = p.verifier(nil)
	v.now = func() time.Time { return now }
	for range requestBurst + 1 {
		want(t, v, p.sign(jose.ES256, newKey(t, ""), p.claims(nil)), 503, "")
	}
}

// What an issuer answers by mistake is no reason to call a token wrong.
func TestRubbishInsteadOfKeysIsTheIssuersFault(t *testing.T) {
	p := newProvider(t)
	p.set(func() { p.keysAt = p.URL + "/rubbish" })
	want(t, p.verifier(nil), p.token(nil), 503, "the issuer does not answer as it should")
}

func TestRubbishIsNoSignature(t *testing.T) {
	if _, err := newKeySet(nil, "").verifySignature(t.Context(), "rubbish"); !errors.Is(err, errBadSignature) {
		t.Error(err)
	}
}
