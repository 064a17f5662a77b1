package ovs

import (
	"context"
	"hash/fnv"
	"sync"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// bridge is the row of our bridge in the database, and the bridges of others. rowMu guards
// the row, so that corrections do not wait for an Apply. Methods that use connections need
// Driver.mu.
type bridge struct {
	*env
	conns *connections

	rowMu  sync.Mutex // one correction of the bridge's row at a time; may be taken under Driver.mu
	bridge string     // the row, once it was known as Contiv's
	noted  string     // the last route that was to be given; "" = none
}

// wantedBridge is what the bridge has to be; rowMu is held.
func (b *bridge) wantedBridge() bridgeRow {
	secure := "secure"
	ids := map[string]string{markKey: markBridge}
	if b.noted != "" {
		ids[routeKey] = b.noted
	}
	return bridgeRow{
		Name: b.cfg.Bridge, FailMode: &secure, DatapathType: b.cfg.Datapath,
		ExternalIDs: ids,
		OtherConfig: map[string]string{
			"disable-in-band": "true",
			// A fixed address keeps the datapath from changing with its ports.
			hwaddr: stationMAC(b.cfg, 4).String(),
		},
	}
}

// stationMAC is an address of this host's bridge, always the same: kind tells its
// interfaces apart.
func stationMAC(cfg Config, kind byte) model.MAC {
	h := fnv.New32a()
	h.Write([]byte(cfg.Bridge + cfg.VTEP.String()))
	s := h.Sum32()
	return model.MAC{2, kind, byte(s >> 24), byte(s >> 16), byte(s >> 8), byte(s)}
}

// ensureBridge makes the bridge, or corrects it, and tells whether it did. It does not
// need Driver.mu.
func (b *bridge) ensureBridge(ctx context.Context, db *database) (bool, error) {
	b.rowMu.Lock()
	defer b.rowMu.Unlock()
	want := b.wantedBridge()
	db.mu.Lock()
	have := db.bridge(b.cfg.Bridge)
	db.mu.Unlock()
	if have == nil {
		if err := db.createBridge(ctx, want); err != nil {
			return false, model.Errorf(model.ErrUnavailable, "create bridge %s: %w", b.cfg.Bridge, err)
		}
		return true, nil
	}
	if have.ExternalIDs[markKey] != markBridge && have.UUID != b.bridge {
		return false, model.Errorf(model.ErrConflict, "bridge %s exists and is not Contiv's: give another name with --ovs-bridge or remove it", b.cfg.Bridge)
	}
	b.bridge = have.UUID
	changed, err := db.updateBridge(ctx, have, want)
	if err != nil {
		return false, model.Errorf(model.ErrUnavailable, "update bridge %s: %w", b.cfg.Bridge, err)
	}
	return changed, nil
}

// restoreBridge makes the bridge again if somebody has deleted it, and corrects what
// somebody has changed of it: without it, and in versions of OpenFlow that it does not
// speak any more, there is no switch to connect to.
func (b *bridge) restoreBridge(ctx context.Context, db *database) error {
	changed, err := b.ensureBridge(ctx, db)
	if changed {
		b.drift.Add(b.cfg.Log, driver.DriftPort, b.cfg.Bridge, 1)
	}
	return err
}

// bridgeDiffers reports whether somebody has changed what has to be of the bridge.
func (b *bridge) bridgeDiffers(db *database) bool {
	b.rowMu.Lock()
	want := b.wantedBridge()
	b.rowMu.Unlock()
	db.mu.Lock()
	defer db.mu.Unlock()
	have := db.bridge(b.cfg.Bridge)
	if have == nil {
		return false // its ports are gone too
	}
	_, changed := corrected(have, want)
	return changed
}

// enforceBridge puts back what others change of the bridge until the connection to the
// database, or ctx, ends. It does not need Driver.mu, which somebody may hold who waits for a
// switch that does not answer because of just that.
func (b *bridge) enforceBridge(ctx context.Context, db *database) {
	for {
		ch := db.changes.Next()
		if b.bridgeDiffers(db) {
			if err := b.restoreBridge(ctx, db); err != nil {
				b.cfg.Log.Warn("changes of the bridge are not reverted yet", "bridge", b.cfg.Bridge, "error", err)
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
