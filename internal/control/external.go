package control

import (
	"context"
	"fmt"
	"reflect"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

func putBgp(tx store.Tx, b model.Bgp) error {
	k := tables.BgpKey{Host: b.Host}
	if err := tx.Prefetch(tables.Bgps.Key(k), tables.Hosts.Key(b.Host)); err != nil {
		return err
	}
	old, err := tables.Bgps.Find(tx, k)
	if err != nil || old.Exists() && old.Value == b {
		return err
	}
	if !old.Exists() {
		h, err := tables.Hosts.Find(tx, b.Host)
		if err != nil {
			return err
		}
		if !h.Exists() {
			return model.Errorf(model.ErrNotFound, "hostname %q: the host does not exist: no netplugin has told of it yet", b.Host)
		}
	}
	return tables.Bgps.Put(tx, b)
}

// DeleteBgp deletes a host's BGP settings.
func (c *Controller) DeleteBgp(ctx context.Context, h model.HostName) error {
	return deleteRow(ctx, c, tables.Bgps, tables.BgpKey{Host: h}, nil)
}

// DeleteExtContracts deletes a group of external contracts that no endpoint
// group names: otherwise model.ErrInUse.
func (c *Controller) DeleteExtContracts(ctx context.Context, k model.ExtContractsKey) error {
	t := tables.TargetExtContracts(k)
	return deleteRow(ctx, c, tables.ExtContracts, k, &t)
}

func putAciGw(tx store.Tx, g model.AciGw) error {
	old, err := tables.AciGws.Find(tx, tables.AciGwKey{})
	if err != nil || old.Exists() && reflect.DeepEqual(old.Value, g) {
		return err
	}
	return tables.AciGws.Put(tx, g)
}

// DeleteAciGw deletes the settings of the ACI fabric.
func (c *Controller) DeleteAciGw(ctx context.Context) error {
	_, err := c.update(ctx, "delete aciGw", func(tx store.Tx) error {
		if _, err := tables.AciGws.Get(tx, tables.AciGwKey{}); err != nil {
			return err
		}
		tables.AciGws.Delete(tx, tables.AciGwKey{})
		return nil
	})
	return err
}

// HostStatus is what a host's agent observes of its data plane.
type HostStatus = tables.HostStatus

// HostStatuses reads what all agents have observed, in order of the hosts.
func (c *Controller) HostStatuses(ctx context.Context) ([]HostStatus, error) {
	kvs, _, err := c.store.Range(ctx, tables.HostStatusScope)
	if err != nil {
		return nil, fmt.Errorf("read the hosts' status: %w", err)
	}
	var out []HostStatus
	for _, kv := range kvs {
		row, err := tables.HostStatuses.Decode(kv)
		if err != nil {
			c.log.Error("a host's status cannot be read", "key", kv.Key, "error", err)
			continue
		}
		out = append(out, row.Value)
	}
	return out, nil
}
