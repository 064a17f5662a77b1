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
func intern(ctx context.Context, tx store.Tx, cl *allocator, of model.IdentityRecord) (model.Identity, error) {
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
