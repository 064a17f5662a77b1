package token

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/store"
)

var errAway = errors.New("away")

// failing is a store whose transactions lose it: at once, at their first reads, or later.
type failing struct {
	store.Store
	at string // "begin", "prefetch", "get"
}

func (f failing) Update(ctx context.Context, fn func(store.Tx) error) (store.Revision, error) {
	if f.at == "begin" {
		return 0, errAway
	}
	return f.Store.Update(ctx, func(tx store.Tx) error { return fn(failingTx{tx, f.at}) })
}

type failingTx struct {
	store.Tx
	at string
}

func (tx failingTx) Prefetch(keys ...string) error {
	if tx.at == "prefetch" {
		return errAway
	}
	return tx.Tx.Prefetch(keys...)
}

func (tx failingTx) Get(key string) (store.KV, error) {
	if tx.at == "get" {
		return store.KV{}, errAway
	}
	return tx.Tx.Get(key)
}

// A token whose tenants cannot be looked up is neither accepted nor called a wrong one, and
// none is made.
func TestTenantsOfTokenAreNotGuessedWhileTheStoreIsAway(t *testing.T) {
	mem := memoryStore(t)
	s, _ := newStore(t, mem)
	grant := access.Grant{Role: access.TenantAdmin, Tenants: []string{"blue"}}
	secret, _, err := s.Create(t.Context(), TokenRequest{Name: "anna", Grant: grant, Life: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"begin", "prefetch", "get"} {
		s.store = failing{mem, at}
		if id, err := s.Identify(t.Context(), secret); refused(err) != 503 || id.Grants != nil {
			t.Errorf("%s: %+v, %v", at, id, err)
		}
		if _, _, err := s.Create(t.Context(), TokenRequest{Name: "bob", Grant: grant, Life: time.Hour}); !errors.Is(err, errAway) {
			t.Errorf("%s: a token is made: %v", at, err)
		}
	}
}
