package ovs

import (
	"context"
	"hash/fnv"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// wantedBridge is what the bridge has to be; d.rowMu is held.
func (d *Driver) wantedBridge() bridgeRow {
	secure := "secure"
	ids := map[string]string{markKey: markBridge}
	if d.noted != "" {
		ids[routeKey] = d.noted
	}
	return bridgeRow{
		Name: d.cfg.Bridge, FailMode: &secure, DatapathType: d.cfg.Datapath,
		ExternalIDs: ids,
		OtherConfig: map[string]string{
			"disable-in-band": "true",
			// A fixed address keeps the datapath from changing with its ports.
			hwaddr: d.stationMAC(4).String(),
		},
	}
}

// stationMAC is an address of this host's bridge, always the same: kind tells its
// interfaces apart.
func (d *Driver) stationMAC(kind byte) model.MAC {
	h := fnv.New32a()
	h.Write([]byte(d.cfg.Bridge + d.cfg.VTEP.String()))
	s := h.Sum32()
	return model.MAC{2, kind, byte(s >> 24), byte(s >> 16), byte(s >> 8), byte(s)}
}

// ensureBridge makes the bridge, or corrects it, and tells whether it did. It does not
// need d.mu.
func (d *Driver) ensureBridge(ctx context.Context, db *database) (bool, error) {
	d.rowMu.Lock()
	defer d.rowMu.Unlock()
	want := d.wantedBridge()
	db.mu.Lock()
	have := db.bridge(d.cfg.Bridge)
	db.mu.Unlock()
	if have == nil {
		if err := db.createBridge(ctx, want); err != nil {
			return false, model.Errorf(model.ErrUnavailable, "create bridge %s: %w", d.cfg.Bridge, err)
		}
		return true, nil
	}
	if have.ExternalIDs[markKey] != markBridge && have.UUID != d.bridge {
		return false, model.Errorf(model.ErrConflict, "bridge %s exists and is not Contiv's: give another name with --ovs-bridge or remove it", d.cfg.Bridge)
	}
	d.bridge = have.UUID
	changed, err := db.updateBridge(ctx, have, want)
	if err != nil {
		return false, model.Errorf(model.ErrUnavailable, "update bridge %s: %w", d.cfg.Bridge, err)
	}
	return changed, nil
}

// restoreBridge makes the bridge again if somebody has deleted it, and corrects what
// somebody has changed of it: without it, and in versions of OpenFlow that it does not
// speak any more, there is no switch to connect to.
func (d *Driver) restoreBridge(ctx context.Context, db *database) error {
	changed, err := d.ensureBridge(ctx, db)
	if changed {
		d.drift.Repaired(d.cfg.Log, driver.DriftPort, d.cfg.Bridge, 1)
	}
	return err
}

// bridgeMoved tells whether somebody has changed what has to be of the bridge.
func (d *Driver) bridgeMoved(db *database) bool {
	d.rowMu.Lock()
	want := d.wantedBridge()
	d.rowMu.Unlock()
	db.mu.Lock()
	defer db.mu.Unlock()
	have := db.bridge(d.cfg.Bridge)
	if have == nil {
		return false // its ports are gone too
	}
	_, changed := corrected(have, want)
	return changed
}

// keepBridge puts back what others change of the bridge until the connection to the
// database, or ctx, ends. It does not need d.mu, which somebody may hold who waits for a
// switch that does not answer because of just that.
func (d *Driver) keepBridge(ctx context.Context, db *database) {
	for {
		ch := db.changes.Next()
		if d.bridgeMoved(db) {
			if err := d.restoreBridge(ctx, db); err != nil {
				d.cfg.Log.Warn("what was changed of the bridge is not put back yet", "bridge", d.cfg.Bridge, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-db.lost:
			return
		case <-ch:
		}
	}
}
