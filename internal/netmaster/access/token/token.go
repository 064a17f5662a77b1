package token

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Bounds of tokens.
const (
	MaxTokens = 2000
	MaxLife   = 366 * 24 * time.Hour
	maxName   = 64 // bytes
	// expiredRetention is for how long one that is over is listed, and its bearer told so.
	expiredRetention = 30 * 24 * time.Hour
	// deletesPerTransaction is how many that are over one Create removes: each takes two of
	// the operations that a store has at least (store.MinOps).
	deletesPerTransaction = 20
)

// Record is what the store has of a token, and what lists show: no secret.
type Record struct {
	ID      ID           `json:"id"`
	Name    string       `json:"name"` // of who has it, for people and the audit log
	Grant   access.Grant `json:"grant"`
	Created time.Time    `json:"created"`
	By      string       `json:"by"` // who had it made
	Expires time.Time    `json:"expires"`
	Hash    []byte       `json:"hash"` // of the whole token, SHA-256
	// Since has of each of the grant's tenants the revision of its creation: the token is
	// for these, and not for one that is created under the same name later.
	Since map[string]store.Revision `json:"since,omitempty"`
	// Gone are the grant's tenants that were deleted, as List tells them: for these the
	// token is good no more.
	Gone []string `json:"-"`
}

// TokenRequest is a token that is to be made.
type TokenRequest struct {
	Name  string
	Grant access.Grant
	Life  time.Duration // how long it is good, up to MaxLife
	By    string        // who asks for it
}

// version of a Record.
const version = 1

const scope = store.AccessTokens

var records = tables.NewTable(tables.TableSpec[ID, Record]{
	Noun: "token", Version: version,
	Path: "access/tokens/*",
	Parse: func(names []string) (ID, bool) {
		id, err := ParseID(names[0])
		return id, err == nil
	},
	KeyOf: func(r Record) ID { return r.ID },
	Scope: func(ID) string { return scope },
	Name:  func(id ID) string { return store.Segment(string(id)) },
})

// Store has the tokens. It is safe for concurrent use, by all netmasters of a
// cluster.
type Store struct {
	store store.Store
	now   func() time.Time
	// patience bounds a look at the store, as package apiserver's DefaultTimeout does.
	patience time.Duration
}

// NewStore returns the tokens in a cluster's store.
func NewStore(s store.Store) *Store {
	return &Store{store: s, now: time.Now, patience: 8 * time.Second}
}

// Create makes a token and returns it with its secret, which cannot be shown again. Errors
// are model.ErrInvalid, ErrExhausted, ErrUnavailable.
func (s *Store) Create(ctx context.Context, w TokenRequest) (secret string, made Record, err error) {
	if err := w.check(); err != nil {
		return "", made, err
	}
	now := s.now().UTC().Truncate(time.Second)
	_, err = s.store.Update(ctx, func(tx store.Tx) error {
		all, err := records.List(tx, scope)
		if err != nil {
			return err
		}
		gone := 0
		for _, r := range all {
			if gone < deletesPerTransaction && now.Sub(r.Expires) > expiredRetention {
				records.Delete(tx, r.ID)
				gone++
			}
		}
		if len(all)-gone >= MaxTokens {
			return model.Errorf(model.ErrExhausted, "there are %d tokens, the limit: revoke some", len(all))
		}
		since, err := tenantsSince(tx, w.Grant.Tenants)
		if err != nil {
			return err
		}
		for _, name := range w.Grant.Tenants {
			if since[name] == 0 {
				return model.Errorf(model.ErrNotFound, "tenants: tenant %q does not exist: create it first", httpguard.Clip(name))
			}
		}
		t := newText()
		hash := t.hash()
		secret = t.String()
		made = Record{
			ID: t.id, Name: w.Name, Grant: w.Grant,
			Created: now, By: w.By, Expires: now.Add(w.Life), Hash: hash[:], Since: since,
		}
		return records.Create(tx, made)
	})
	if err != nil {
		return "", Record{}, err
	}
	return secret, made.public(), nil
}

func (w TokenRequest) check() error {
	switch {
	case w.Name == "" || len(w.Name) > maxName || strings.ContainsFunc(w.Name, isNotPrintable):
		return model.InvalidField("name", httpguard.Clip(w.Name), fmt.Sprintf("must be 1 to %d printable bytes: who has the token", maxName))
	case w.Life < time.Second || w.Life > MaxLife:
		return model.InvalidField("life", w.Life.String(), "must be from a second to 366 days")
	}
	switch w.Grant.Role {
	case access.ClusterAdmin, access.TenantAdmin, access.Viewer:
	default: // hosts and netmasters have certificates, whose names are checked
		return model.InvalidField("role", httpguard.Clip(string(w.Grant.Role)), "must be cluster-admin, tenant-admin or viewer")
	}
	if err := w.Grant.Check(); err != nil {
		return model.Errorf(model.ErrInvalid, "%w", err)
	}
	return nil
}

func isNotPrintable(c rune) bool { return !unicode.IsPrint(c) }

// List returns all tokens, without hashes, in the order of their ids.
func (s *Store) List(ctx context.Context) ([]Record, error) {
	kvs, _, err := s.store.Range(ctx, scope)
	if err != nil {
		return nil, err
	}
	tenants, _, err := s.store.Range(ctx, tables.TenantsScope)
	if err != nil {
		return nil, err
	}
	since := map[string]store.Revision{}
	for _, kv := range tenants {
		since[kv.Key] = kv.Create
	}
	out := make([]Record, 0, len(kvs))
	for _, kv := range kvs {
		row, err := records.Decode(kv)
		if err != nil {
			return nil, err
		}
		shown := row.Value.public()
		for _, name := range shown.Grant.Tenants {
			if of, bound := row.Value.Since[name]; bound && (of == 0 || since[tables.Tenants.Key(model.TenantName(name))] != of) {
				shown.Gone = append(shown.Gone, name)
			}
		}
		out = append(out, shown)
	}
	return out, nil
}

// public is the record without its hash and other internal fields.
func (r Record) public() Record {
	r.Hash, r.Since = nil, nil
	return r
}

// Revoke ends a token at once. One that is not there is model.ErrNotFound.
func (s *Store) Revoke(ctx context.Context, id ID) error {
	_, err := s.store.Update(ctx, func(tx store.Tx) error {
		if _, err := records.Get(tx, id); err != nil {
			return err
		}
		records.Delete(tx, id)
		return nil
	})
	return err
}

// Takes reports whether Identify is for a bearer's text.
func (s *Store) Takes(shown string) bool { return Is(shown) }

// Identify finds out who shows a token, by the store as it is now: one that was
// revoked anywhere is refused at once. With an error the identity is what is claimed,
// and worth nothing. A store that is away is a Refusal with 503.
func (s *Store) Identify(ctx context.Context, shown string) (access.Identity, error) {
	t, err := parse(shown)
	if err != nil {
		return access.Identity{}, httpguard.Unauthorized("the token is not accepted: %v", err)
	}
	claimed := access.Identity{How: access.ByToken, ID: string(t.id)} // for the record of the refusal
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	kv, err := s.store.Get(ctx, records.Key(t.id))
	var row tables.Row[Record]
	if err == nil {
		row, err = records.Decode(kv)
	}
	if errors.Is(err, model.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return claimed, httpguard.Unavailable(time.Second, err, "tokens cannot be looked up now: the cluster store does not answer")
	}
	if err != nil {
		return claimed, err
	}
	got := t.hash()
	switch {
	case subtle.ConstantTimeCompare(got[:], row.Value.Hash) == 0: // also of none, and of half a hash
		return claimed, httpguard.Unauthorized("the token %s is not accepted: it was revoked, or never was one; have another made", t.id)
	case row.Version > version: // it may be good for less than is known here
		return claimed, httpguard.Unauthorized("the token %s was made by a later version of netmaster, which this one does not understand; ask another, or have another made", t.id)
	case !s.now().Before(row.Value.Expires):
		return claimed, httpguard.Unauthorized("the token %s is over since %s; have another made", t.id, row.Value.Expires.UTC().Format(time.RFC3339))
	}
	r := row.Value
	id := access.Identity{Name: r.Name, How: access.ByToken, ID: string(r.ID), Grants: []access.Grant{r.Grant}}
	if r.Grant.Role != access.TenantAdmin {
		return id, nil
	}
	if len(r.Since) == 0 {
		if r, err = s.recordTenants(ctx, r.ID); err != nil {
			return claimed, httpguard.Unavailable(time.Second, err, "the tenants of the token %s cannot be looked up now: the cluster store does not answer", t.id)
		}
	}
	if id.Grants[0].Tenants, err = s.validTenants(ctx, r); err != nil {
		return claimed, httpguard.Unavailable(time.Second, err, "the tenants of the token %s cannot be looked up now: the cluster store does not answer", t.id)
	}
	if len(id.Grants[0].Tenants) == 0 {
		return claimed, httpguard.Unauthorized("the token %s is not accepted: its tenants were deleted; one that was created under the same name later needs a new token", t.id)
	}
	return id, nil
}

// RecordTenants has tokens of versions that did not note which tenants they are for be for the
// tenants that exist now under their names.
func (s *Store) RecordTenants(ctx context.Context) error {
	kvs, _, err := s.store.Range(ctx, scope)
	if err != nil {
		return fmt.Errorf("read tokens: %w", err)
	}
	for _, kv := range kvs {
		row, bad := records.Decode(kv)
		if r := row.Value; bad == nil && r.Grant.Role == access.TenantAdmin && len(r.Since) == 0 {
			if _, bad := s.recordTenants(ctx, r.ID); !errors.Is(bad, model.ErrNotFound) {
				err = errors.Join(err, bad)
			}
		}
	}
	return err
}

// recordTenants notes of which tenants a token is, unless that is noted. A tenant that does not exist
// has revision 0: the token is not for one that comes later.
func (s *Store) recordTenants(ctx context.Context, id ID) (r Record, err error) {
	_, err = s.store.Update(ctx, func(tx store.Tx) error {
		if r, err = records.Get(tx, id); err != nil || len(r.Since) > 0 {
			return err
		}
		if r.Since, err = tenantsSince(tx, r.Grant.Tenants); err != nil {
			return err
		}
		return records.Put(tx, r)
	})
	return r, err
}

// validTenants returns the tenants of a token that are those for which it was made.
func (s *Store) validTenants(ctx context.Context, r Record) (tenants []string, err error) {
	_, err = s.store.Update(ctx, func(tx store.Tx) error {
		tenants = nil
		now, err := tenantsSince(tx, r.Grant.Tenants)
		for _, name := range r.Grant.Tenants {
			if now[name] != 0 && now[name] == r.Since[name] {
				tenants = append(tenants, name)
			}
		}
		return err
	})
	return tenants, err
}

// tenantsSince returns the revisions of tenants' creations; one that does not exist has 0.
func tenantsSince(tx store.Tx, names []string) (map[string]store.Revision, error) {
	if len(names) == 0 {
		return nil, nil
	}
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = tables.Tenants.Key(model.TenantName(name))
	}
	if err := tx.Prefetch(keys...); err != nil {
		return nil, err
	}
	out := map[string]store.Revision{}
	for _, name := range names {
		row, err := tables.Tenants.Find(tx, model.TenantName(name))
		if err != nil {
			return nil, err
		}
		out[name] = row.Create
	}
	return out, nil
}
