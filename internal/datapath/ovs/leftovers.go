package ovs

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	dbmodel "github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// bridges1x are the bridges that Contiv 1.x makes.
var bridges1x = []string{"contivVxlanBridge", "contivVlanBridge"}

// InUse returns the name of the driver's bridge, or of one of Contiv 1.x, when
// the database has it; "" when it has none, or when there is no database.
func InUse(ctx context.Context, cfg Config) (string, error) {
	db, err := peek(ctx, cfg)
	if db == nil {
		return "", err
	}
	defer db.close()
	db.mu.Lock()
	defer db.mu.Unlock()
	if b := db.bridge(cfg.Bridge); b != nil && b.ExternalIDs[markKey] == markBridge {
		return b.Name, nil
	}
	for _, name := range bridges1x {
		if db.bridge(name) != nil {
			return name, nil
		}
	}
	return "", nil
}

// peek opens the database of a switch that may not be there; nil when its
// socket does not exist.
func peek(ctx context.Context, cfg Config) (*database, error) {
	if path, ok := strings.CutPrefix(cfg.OVSDB, "unix:"); ok {
		if _, err := os.Stat(path); err != nil {
			if os.IsNotExist(err) {
				return nil, nil
			}
			return nil, err
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	db, err := openDatabase(ctx, cfg.OVSDB, cfg.Log)
	if err != nil {
		return nil, model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
	}
	return db, nil
}

// leftovers is the driver's bridge on a host that changes to another driver.
type leftovers struct{ cfg Config }

// Leftovers returns what the driver left in the switch, nil when there is
// nothing. Bridges of others, those of Contiv 1.x included, are not part of it.
func Leftovers(ctx context.Context, cfg Config) (driver.Predecessor, error) {
	if cfg.Bridge == "" {
		cfg.Bridge = DefaultBridge
	}
	name, err := InUse(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if name != cfg.Bridge {
		if left, err := newShaper(cfg).remaining(); err != nil || len(left) == 0 {
			return nil, err
		}
	}
	return &leftovers{cfg}, nil
}

func (l *leftovers) String() string { return "Open vSwitch's bridge " + l.cfg.Bridge }

// Release removes the tunnel port, and the host's side of egress, which the next driver
// makes again under the same name.
func (l *leftovers) Release(ctx context.Context) error {
	return l.change(ctx, func(db *database, b *bridgeRow) ([]ovsdb.Operation, error) {
		var ids []string
		db.mu.Lock()
		for _, id := range b.Ports {
			if p := db.ports[id]; p != nil && (p.ExternalIDs[markKey] == markTunnel || p.ExternalIDs[markKey] == markHost) {
				ids = append(ids, id)
			}
		}
		db.mu.Unlock()
		return db.mutatePorts(b, ovsdb.MutateOperationDelete, ids)
	})
}

// Remove removes the bridge with its ports and flows, and the queues of ports with a
// limit, whatever becomes of the bridge.
func (l *leftovers) Remove(ctx context.Context) error {
	s := newShaper(l.cfg)
	err := l.removeBridge(ctx)
	left, e := s.remaining()
	errs := []error{err, e}
	for name, near := range left {
		errs = append(errs, s.remove(name, near))
	}
	return errors.Join(errs...)
}

func (l *leftovers) removeBridge(ctx context.Context) error {
	return l.change(ctx, func(db *database, b *bridgeRow) ([]ovsdb.Operation, error) {
		row := db.rootRow()
		return db.c.Where(row).Mutate(row, dbmodel.Mutation{Field: &row.Bridges, Mutator: ovsdb.MutateOperationDelete, Value: []string{b.UUID}})
	})
}

func (d *database) rootRow() *rootRow {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &rootRow{UUID: d.root}
}

// removalTimeout bounds how long leftovers are waited for, so that an uninstall ends without
// a switch.
const removalTimeout = 3 * time.Second

// change makes a change to the bridge, if it is there and ours, and waits until
// the switch follows.
func (l *leftovers) change(ctx context.Context, ops func(*database, *bridgeRow) ([]ovsdb.Operation, error)) error {
	db, err := peek(ctx, l.cfg)
	if db == nil {
		return err // without a database nothing is left
	}
	defer db.close()
	db.mu.Lock()
	b := db.bridge(l.cfg.Bridge)
	db.mu.Unlock()
	if b == nil || b.ExternalIDs[markKey] != markBridge {
		return nil
	}
	todo, err := ops(db, b)
	if err != nil || len(todo) == 0 {
		return err
	}
	defer dropRoute(ctx, l.cfg.RunDir, b.ExternalIDs[routeKey])
	return db.follow(ctx, b.Name, removalTimeout, todo)
}

// follow makes a change to a bridge and waits, no longer than within, until the switch has
// followed it.
func (d *database) follow(ctx context.Context, bridge string, within time.Duration, ops []ovsdb.Operation) error {
	row := d.rootRow()
	next, err := d.c.Where(row).Mutate(row, dbmodel.Mutation{Field: &row.NextCfg, Mutator: ovsdb.MutateOperationAdd, Value: 1})
	if err != nil {
		return err
	}
	d.mu.Lock()
	before := d.next
	d.mu.Unlock()
	if err := d.transact(ctx, append(ops, next...)); err != nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: change bridge %s: %w", bridge, err)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := d.wait(ctx, func() bool { return d.current > before }); err != nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: wait until ovs-vswitchd has applied a change of bridge %s: %w", bridge, err)
	}
	return nil
}
