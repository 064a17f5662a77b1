package control

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// internKey returns where an identity, whose number does not matter, is interned.
// Its labels are filtered.
func internKey(of model.IdentityRecord) (tables.InternKey, error) {
	of.ID = 0
	b, err := json.Marshal(of) // maps in key order
	if err != nil {
		return tables.InternKey{}, fmt.Errorf("encode identity: %w", err)
	}
	sum := sha256.Sum256(b)
	return tables.InternKey{Tenant: of.Network.Tenant, Hash: hex.EncodeToString(sum[:16])}, nil
}

// intern returns the number of an identity, giving it one when it is new.
func intern(ctx context.Context, tx store.Tx, cl *claim, of model.IdentityRecord) (model.Identity, error) {
	k, err := internKey(of)
	if err != nil {
		return 0, err
	}
	row, err := tables.InternedIdentities.Find(tx, k)
	if err != nil {
		return 0, err
	}
	if row.Exists() {
		i := row.Value
		if !i.Draining {
			return i.ID, nil
		}
		i.Draining = false // it is used after all
		return i.ID, tables.InternedIdentities.Put(tx, i)
	}
	owner := of.Network.String()
	if of.Group != "" {
		owner += ":" + string(of.Group)
	}
	x, err := cl.freeNumber(ctx, tx, tables.NumberIdentity, uint32(model.IdentityFirst), uint32(model.IdentityLast), owner)
	if err != nil {
		return 0, err
	}
	of.ID = model.Identity(x)
	if err := tables.InternedIdentities.Create(tx, tables.Interned{InternKey: k, ID: of.ID}); err != nil {
		return 0, err
	}
	if err := tables.Identities.Create(tx, of); err != nil {
		return 0, err
	}
	return of.ID, tables.PutCursor(tx, tables.Cursor{Kind: tables.NumberIdentity, Last: x})
}

// forget removes an identity that nothing has any more.
func forget(tx store.Tx, k tables.InternKey, id model.Identity) {
	tables.InternedIdentities.Delete(tx, k)
	tables.Identities.Delete(tx, tables.IdentityKey{Tenant: k.Tenant, ID: id})
	tables.Numbers.Delete(tx, tables.NumberKey{Kind: tables.NumberIdentity, Number: uint32(id)})
}

var (
	identityRecords   = newRowsPart[tables.IdentityKey, model.IdentityRecord](nil, func(a, b tables.IdentityKey) int { return cmp.Compare(a.ID, b.ID) })
	identitiesOf      = newPart(func() index[model.TenantName, model.Identity] { return index[model.TenantName, model.Identity]{} })
	identitiesOfGroup = newPart(func() index[model.GroupKey, model.Identity] { return index[model.GroupKey, model.Identity]{} })

	_ = register(identityRecords, enterIdentity, kind{})
)

// enterIdentity enters what an identity stands for.
func enterIdentity(v *View, _ tables.IdentityKey, old, now *model.IdentityRecord, _ store.Revision) {
	if old != nil {
		indexIdentity(v, v.joined(*old), false)
	}
	if now != nil {
		indexIdentity(v, v.joined(*now), true)
	}
}

// identity is what an identity stands for, with its namespace's labels.
func (v *View) identity(t model.TenantName, id model.Identity) model.IdentityRecord {
	return v.joined(identityRecords.in(v).all[tables.IdentityKey{Tenant: t, ID: id}])
}

func indexIdentity(v *View, r model.IdentityRecord, in bool) {
	identitiesOf.in(v).put(r.Network.Tenant, r.ID, in)
	identitiesOfGroup.in(v).put(model.GroupKey{Tenant: r.Network.Tenant, Name: r.Group}, r.ID, in)
	if r.Namespace != "" {
		identitiesInNamespace.in(v).put(r.Namespace, tables.IdentityKey{Tenant: r.Network.Tenant, ID: r.ID}, in)
	}
	indexTraits(v, r, in)
}
