package tables

import (
	"strconv"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// IdentityKey names an identity record; numbers are unique within the cluster,
// the tenant is where agents find the record.
type IdentityKey struct {
	Tenant model.TenantName
	ID     model.Identity
}

// IdentitiesOf is the prefix of a tenant's identity records.
func IdentitiesOf(t model.TenantName) string { return TenantPrefix(t) + "identities/" }

// Identities holds what identity numbers stand for, by tenant.
var Identities = declare(TableSpec[IdentityKey, model.IdentityRecord]{
	Noun: "identity", Version: 1, Unlisted: true,
	Path: "state/tenant/*/identities/*",
	Parse: func(n []string) (IdentityKey, bool) {
		id, err := strconv.ParseUint(n[1], 10, 32)
		return IdentityKey{model.TenantName(n[0]), model.Identity(id)}, err == nil
	},
	KeyOf: func(r model.IdentityRecord) IdentityKey { return IdentityKey{r.Network.Tenant, r.ID} },
	Show:  identityName,
	Scope: func(k IdentityKey) string { return IdentitiesOf(k.Tenant) },
	Name:  identityName,
})

func identityName(k IdentityKey) string { return strconv.FormatUint(uint64(k.ID), 10) }

// InternKey is the content hash of an identity.
type InternKey struct {
	Tenant model.TenantName `json:"tenant"`
	Hash   string           `json:"hash"`
}

// Interned is the number of an identity with given contents. Draining is the
// mark of garbage collection: who uses the identity takes it off.
type Interned struct {
	InternKey
	ID       model.Identity `json:"id"`
	Draining bool           `json:"draining,omitempty"`
}

// InternedIdentities holds identities by their contents.
var InternedIdentities = declare(TableSpec[InternKey, Interned]{
	Noun: "interned identity", Version: 1, Unlisted: true,
	Path:  "state/alloc/identity/*/*",
	Parse: func(n []string) (InternKey, bool) { return InternKey{model.TenantName(n[0]), n[1]}, true },
	KeyOf: func(i Interned) InternKey { return i.InternKey },
	Scope: func(k InternKey) string { return allocOf("identity", k.Tenant) },
	Name:  func(k InternKey) string { return store.Segment(k.Hash) },
})
