package oidc

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/go-jose/go-jose/v4"
)

// minRSA is the shortest RSA key that is believed, in bits (NIST SP 800-131A).
const minRSA = 2048

// errBadSignature tells that the issuer's keys are known, and none fits.
var errBadSignature = errors.New("it is not signed with a key of its issuer")

// keySet has the issuer's keys. Its errors distinguish a wrong signature from keys that
// could not be fetched.
type keySet struct {
	issuer *issuer
	url    string
	turn   chan struct{} // holds one, for the goroutine that asks the issuer

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	fetches int // how often the keys were read
}

func newKeySet(i *issuer, url string) *keySet {
	k := &keySet{issuer: i, url: url, turn: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	return k
}

// forOne is the oidc.KeySet for one token: go-oidc tells errors of key sets as texts.
type forOne struct {
	*keySet
	err error
}

// VerifySignature implements oidc.KeySet.
func (f *forOne) VerifySignature(ctx context.Context, jwt string) (payload []byte, err error) {
	payload, f.err = f.verifySignature(ctx, jwt)
	return payload, f.err
}

// verifySignature returns what is signed. A key that is not known has the issuer asked for
// its keys, unless that was done moments ago; *awayError is that it could not be.
func (k *keySet) verifySignature(ctx context.Context, jwt string) ([]byte, error) {
	algs := make([]jose.SignatureAlgorithm, len(algorithms))
	for i, a := range algorithms {
		algs[i] = jose.SignatureAlgorithm(a)
	}
	signed, err := jose.ParseSignedCompact(jwt, algs)
	if err != nil { // else it has one signature
		return nil, errBadSignature
	}
	id := signed.Signatures[0].Protected.KeyID
	keys, round := k.known()
	payload, named := verify(signed, id, keys)
	if payload != nil {
		return payload, nil
	}
	if named {
		return nil, errBadSignature
	}
	if keys, err = k.read(ctx, round); err != nil {
		if round > 0 && id == "" && errors.Is(err, errTooManyRequests) { // what it is signed with was looked for among fresh keys
			return nil, errBadSignature
		}
		return nil, &awayError{err}
	}
	if payload, _ = verify(signed, id, keys); payload != nil {
		return payload, nil
	}
	return nil, errBadSignature
}

// verify returns what is signed with one of the keys, nil = it is not; named reports
// whether a key has the name that the token gives.
func verify(signed *jose.JSONWebSignature, id string, keys []jose.JSONWebKey) (payload []byte, named bool) {
	for _, key := range keys {
		if id != "" && key.KeyID != id {
			continue
		}
		named = id != ""
		if alg := signed.Signatures[0].Protected.Algorithm; key.Algorithm != "" && key.Algorithm != alg {
			continue
		}
		if payload, err := signed.Verify(key.Key); err == nil {
			return payload, named
		}
	}
	return nil, named
}

func (k *keySet) known() ([]jose.JSONWebKey, int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys, k.fetches
}

// read asks the issuer for its keys, unless another has done so since the round that the
// caller knows.
func (k *keySet) read(ctx context.Context, round int) ([]jose.JSONWebKey, error) {
	select {
	case <-k.turn:
		defer func() { k.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if keys, now := k.known(); now != round {
		return keys, nil
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := k.issuer.client.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the issuer's keys: it answers %s", resp.Status)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&set); err != nil {
		return nil, fmt.Errorf("read the issuer's keys: %w", err)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) == nil && signs(key) { // RFC 7517 section 5: others are ignored
			keys = append(keys, key)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = keys
	k.fetches++
	return keys, nil
}

// signs reports whether tokens may be signed with a key.
func signs(key jose.JSONWebKey) bool {
	if !key.Valid() || !key.IsPublic() || key.Use != "" && key.Use != "sig" {
		return false
	}
	if k, is := key.Key.(*rsa.PublicKey); is {
		return k.N.BitLen() >= minRSA
	}
	return true
}
