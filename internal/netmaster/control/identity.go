package control

import (
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

// enterIdentity enters what an identity stands for.
func (iv *IdentityView) enterIdentity(ch tables.Change) {
	_, old, now := iv.identityRecords.enter(ch)
	if old != nil {
		iv.indexIdentity(iv.joined(*old), false)
	}
	if now != nil {
		iv.indexIdentity(iv.joined(*now), true)
	}
}

// identity is what an identity stands for, with its namespace's labels.
func (iv *IdentityView) identity(t model.TenantName, id model.Identity) model.IdentityRecord {
	return iv.joined(iv.identityRecords.all[tables.IdentityKey{Tenant: t, ID: id}])
}

func (iv *IdentityView) indexIdentity(r model.IdentityRecord, in bool) {
	iv.identitiesOf.put(r.Network.Tenant, r.ID, in)
	iv.identitiesOfGroup.put(model.GroupKey{Tenant: r.Network.Tenant, Name: r.Group}, r.ID, in)
	if r.Namespace != "" {
		iv.identitiesInNamespace.put(r.Namespace, tables.IdentityKey{Tenant: r.Network.Tenant, ID: r.ID}, in)
	}
	iv.indexTraits(r, in)
}

// countUser counts an endpoint that has an identity, or has it no longer.
func (iv *IdentityView) countUser(id model.Identity, in bool) {
	if in {
		iv.identityUsers[id]++
	} else if iv.identityUsers[id]--; iv.identityUsers[id] == 0 {
		delete(iv.identityUsers, id)
	}
}

// enterIntern enters where an identity is found by its contents.
func (iv *IdentityView) enterIntern(k tables.InternKey, i *tables.Interned) {
	if i != nil {
		iv.interned[k] = *i
	} else {
		delete(iv.interned, k)
	}
}

// enterIdentities enters a change of an identity, of a namespace, or of where an identity is
// found by its contents.
func (iv *IdentityView) enterIdentities(ch tables.Change) {
	switch k := ch.Key.(type) {
	case tables.IdentityKey:
		iv.enterIdentity(ch)
	case model.NamespaceName:
		iv.enterNamespace(ch)
	case tables.InternKey:
		iv.enterIntern(k, value[tables.Interned](ch))
	}
}
