package token

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var errAway = errors.New("away")

// failing is a store whose transactions lose it: at once, at their first reads, or later; or
// whose lists of a scope do.
type failing struct {
	store.Store
	at string // "begin", "prefetch", "get", "observe", a scope
}

func (f failing) Range(ctx context.Context, scope string) ([]store.KV, store.Revision, error) {
	if f.at == scope {
		return nil, 0, errAway
	}
	return f.Store.Range(ctx, scope)
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

func (tx failingTx) Observe(scope string) error {
	if tx.at == "observe" {
		return errAway
	}
	return tx.Tx.Observe(scope)
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

func TestListsFailWhileTheStoreIsAway(t *testing.T) {
	s, _ := newStore(t, memoryStore(t))
	mem := s.store
	for _, at := range []string{scope, tables.TenantsScope} {
		s.store = failing{mem, at}
		if all, err := s.List(t.Context()); !errors.Is(err, errAway) || all != nil {
			t.Errorf("without %s: %v, %v", at, all, err)
		}
	}
	s.store = failing{mem, "observe"}
	if _, _, err := s.Create(t.Context(), TokenRequest{Name: "bob", Grant: viewer, Life: time.Hour}); !errors.Is(err, errAway) {
		t.Errorf("a token is made: %v", err)
	}
}

// counting is a store that loses its first transactions, and counts them all.
type counting struct {
	store.Store
	lost    error
	losses  int
	updates int
}

func (c *counting) Update(ctx context.Context, fn func(store.Tx) error) (store.Revision, error) {
	if c.updates++; c.updates <= c.losses {
		return 0, c.lost
	}
	return c.Store.Update(ctx, fn)
}

// The upgrade binds each token that has to be bound once, whatever becomes of others.
func TestUpgradeBindsEarlierTokens(t *testing.T) {
	mem := memoryStore(t)
	s, _ := newStore(t, mem)
	grant := access.Grant{Role: access.TenantAdmin, Tenants: []string{"blue"}}
	var secrets []string
	var ids []ID
	for range 3 {
		secret, made, err := s.Create(t.Context(), TokenRequest{Name: "anna", Grant: grant, Life: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		secrets, ids = append(secrets, secret), append(ids, made.ID)
	}
	if _, _, err := s.Create(t.Context(), TokenRequest{Name: "bob", Grant: viewer, Life: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids[1:] {
		_, err := mem.Update(t.Context(), func(tx store.Tx) error {
			r, err := records.Get(tx, id)
			r.Since = nil
			return errors.Join(err, records.Put(tx, r))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for at, want := range map[string]string{scope: "read tokens: away", "begin": "away", "prefetch": "away", "get": "away"} {
		s.store = failing{mem, at}
		if err := s.RecordTenants(t.Context()); !errors.Is(err, errAway) || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v, want %s", at, err, want)
		}
	}
	s.store = &counting{Store: mem, lost: errAway, losses: 1}
	if id, err := s.Identify(t.Context(), secrets[1]); refused(err) != 503 || id.Grants != nil {
		t.Errorf("a token that cannot be bound: %+v, %v", id, err)
	}
	once := &counting{Store: mem, lost: model.ErrNotFound, losses: 1}
	if s.store = once; s.RecordTenants(t.Context()) != nil || once.updates != 2 {
		t.Errorf("with one that was revoked meanwhile: %d transactions of two", once.updates)
	}
	once = &counting{Store: mem}
	if s.store = once; s.RecordTenants(t.Context()) != nil || once.updates != 1 {
		t.Errorf("with one left: %d transactions", once.updates)
	}
	if _, err := s.Identify(t.Context(), secrets[0]); err != nil || once.updates != 2 {
		t.Errorf("a bound token: %v, bound again by %d transactions", err, once.updates)
	}
	if _, err := s.recordTenants(t.Context(), "ABCDEFGH27"); !errors.Is(err, model.ErrNotFound) {
		t.Errorf("a token that was revoked: %v", err)
	}
	// Another netmaster may have bound it just before, and a tenant be another one since then.
	setTenant(t, mem, "blue", false)
	setTenant(t, mem, "blue", true)
	if _, err := s.recordTenants(t.Context(), ids[0]); err != nil {
		t.Error(err)
	}
	if id, err := s.Identify(t.Context(), secrets[0]); refused(err) != 401 || id.Grants != nil {
		t.Errorf("a token that was bound twice: %+v, %v", id, err)
	}
}
