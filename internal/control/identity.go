package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// internKey returns where the identity of endpoints with a network, a group
// ("" = none) and filtered labels is interned.
func internKey(n model.NetworkKey, group model.GroupName, labels map[string]string) (store.InternKey, error) {
	b, err := json.Marshal(model.IdentityRecord{Network: n, Group: group, Labels: labels}) // maps in key order
	if err != nil {
		return store.InternKey{}, fmt.Errorf("encode identity: %w", err)
	}
	sum := sha256.Sum256(b)
	return store.InternKey{Tenant: n.Tenant, Hash: hex.EncodeToString(sum[:16])}, nil
}

// filter returns the labels that count for identities; nil when none do.
func (c *Controller) filter(labels map[string]string) map[string]string {
	var out map[string]string
	for k, v := range labels {
		if c.opts.LabelFilter(k) {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}

// intern returns the number of an identity, giving it one when it is new.
func (c *Controller) intern(ctx context.Context, tx store.Tx, cl *claim, n model.NetworkKey, group model.GroupName, labels map[string]string) (model.Identity, error) {
	k, err := internKey(n, group, labels)
	if err != nil {
		return 0, err
	}
	row, err := store.InternedIdentities.Find(tx, k)
	if err != nil {
		return 0, err
	}
	if row.Exists() {
		i := row.Value
		if !i.Draining {
			return i.ID, nil
		}
		i.Draining = false // it is used after all
		return i.ID, store.InternedIdentities.Put(tx, i)
	}
	owner := n.String()
	if group != "" {
		owner += ":" + string(group)
	}
	x, err := cl.freeNumber(ctx, tx, store.NumberIdentity, uint32(model.IdentityFirst), uint32(model.IdentityLast), owner)
	if err != nil {
		return 0, err
	}
	id := model.Identity(x)
	if err := store.InternedIdentities.Create(tx, store.Interned{InternKey: k, ID: id}); err != nil {
		return 0, err
	}
	if err := store.Identities.Create(tx, model.IdentityRecord{ID: id, Network: n, Group: group, Labels: labels}); err != nil {
		return 0, err
	}
	return id, putCursor(tx, store.NumberIdentity, x)
}

func putCursor(tx store.Tx, kind store.NumberKind, last uint32) error {
	b, err := store.EncodeCursor(store.Cursor{Kind: kind, Last: last})
	if err != nil {
		return err
	}
	tx.Put(store.CursorStoreKey(kind), b, nil)
	return nil
}

// forget removes an identity that nothing has any more.
func forget(tx store.Tx, k store.InternKey, id model.Identity) {
	store.InternedIdentities.Delete(tx, k)
	store.Identities.Delete(tx, store.IdentityKey{Tenant: k.Tenant, ID: id})
	store.Numbers.Delete(tx, store.NumberKey{Kind: store.NumberIdentity, Number: uint32(id)})
}
