package ovs

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
)

// connections are the connections to the database and the switch. Driver.mu guards db and sw.
type connections struct {
	*env
	unresponsive atomic.Bool // the switch has a connection and does not answer
	db           *database   // nil while it is away
	sw           *openflow.Conn
}

// dial connects to the bridge's management socket; the switch makes the socket soon
// after the bridge is in the database.
func dial(ctx context.Context, cfg Config) (*openflow.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := openflow.Dial(ctx, filepath.Join(cfg.RunDir, cfg.Bridge+".mgmt"))
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// maintainDatabase renews the database connection, has the bridge kept, and tells when the
// ports or uplinks that the flows were made for have changed by themselves, and when
// interfaces of ports have come or gone.
func (d *Driver) maintainDatabase(ctx context.Context, db *database) {
	d.wg.Go(func() { d.bridge.enforceBridge(ctx, db) })
	for {
		ch := db.changes.Next()
		d.mu.Lock()
		same := d.conns.db == db && d.want != nil
		stale, moved, led := same && d.ports.portsMoved(d.want), same && d.ports.devicesMoved(d.want), same && d.ports.tunnelMoved(d.want)
		d.mu.Unlock()
		switch {
		case stale:
			d.replay(ctx, "ports of the switch have changed")
		case led:
			d.notify("the tunnel has other options")
		case moved:
			d.notify("interfaces of ports have come, gone, or been set up or down")
		}
		select {
		case <-ctx.Done():
			return
		case <-ch:
		case <-db.lost:
			d.cfg.Log.Warn("connection to the switch's database is lost", "database", d.cfg.OVSDB)
			db.close()
			d.mu.Lock()
			d.conns.db = nil
			d.mu.Unlock()
			d.notify("connection to the switch's database is lost") // so that a pass finds out, and health tells
			if db = d.reopen(ctx); db == nil {
				return
			}
			at := db
			d.wg.Go(func() { d.bridge.enforceBridge(ctx, at) })
			d.replay(ctx, "the switch's database is back")
		}
	}
}

func (d *Driver) reopen(ctx context.Context) *database {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		db, err := openDatabase(try, d.cfg.OVSDB, d.cfg.Log)
		cancel()
		if err == nil {
			d.mu.Lock()
			d.conns.db = db
			d.mu.Unlock()
			return db
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// maintainSwitch renews the OpenFlow connection and replays everything as soon as
// there is a new one: in user space a switch that restarts has lost its flows.
func (d *Driver) maintainSwitch(ctx context.Context, sw *openflow.Conn) {
	for {
		conn, end := context.WithCancel(ctx)
		of := sw // which is another one by the time that it begins, perhaps
		d.wg.Go(func() { d.conns.heartbeat(conn, of) })
		d.followFlows(ctx, sw)
		end()
		if ctx.Err() != nil {
			return
		}
		d.mu.Lock()
		d.conns.sw, d.flows.known = nil, false
		d.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		d.cfg.Log.Warn("connection to the switch is lost", "bridge", d.cfg.Bridge)
		d.notify("connection to the switch is lost")
		for sw = nil; sw == nil; {
			sw, _ = dial(ctx, d.cfg) // tried again until the driver closes
			if ctx.Err() != nil {
				if sw != nil {
					_ = sw.Close() // it was not used yet
				}
				return
			}
		}
		d.mu.Lock()
		d.conns.sw = sw
		clear(d.underlay.asked) // a switch that restarts knows no neighbours
		d.mu.Unlock()
		d.replay(ctx, "connected to the switch again")
	}
}

// A switch is asked every heartbeatInterval whether it still works, and is silent when it has not
// answered for heartbeatTimeout.
const (
	heartbeatInterval = time.Second
	heartbeatTimeout  = 3 * time.Second
)

// Hangs implements driver.HangReporter.
func (d *Driver) Hangs() error {
	if d.conns.unresponsive.Load() {
		return errUnresponsive
	}
	return nil
}

// heartbeat tells when the switch stops answering, and when it answers again, until the
// connection or ctx ends: a switch that hangs keeps its connections.
func (c *connections) heartbeat(ctx context.Context, sw *openflow.Conn) {
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sw.Done():
			return
		case <-tick.C:
		}
		silence := time.AfterFunc(heartbeatTimeout, func() {
			if ctx.Err() == nil {
				c.unresponsive.Store(true)
				c.notify("the switch does not answer")
			}
		})
		_ = sw.Barrier(ctx) // of a connection that breaks others hear
		if silence.Stop() {
			continue
		}
		if c.unresponsive.Swap(false) {
			c.notify("the switch answers again")
		}
	}
}

// followFlows puts back what others change in the tables, until the connection
// or ctx ends.
func (d *Driver) followFlows(ctx context.Context, sw *openflow.Conn) {
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	changed, err := sw.WatchFlows(short, pipeline.CookieMagic, pipeline.MagicMask)
	cancel()
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.Warn("the switch does not report flow changes by others: they are found at the next check only", "error", err)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-sw.Done():
			return
		case <-changed:
			d.replay(ctx, "flows of the switch were changed from outside")
		}
	}
}

// replay makes the last desired state true again without waiting for anybody, and
// tells that it had to.
func (d *Driver) replay(ctx context.Context, reason string) {
	d.mu.Lock()
	var err error
	if d.want != nil {
		_, err = d.apply(ctx, *d.want, true)
	}
	d.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		d.cfg.Log.Warn("replay to the switch failed", "reason", reason, "error", err)
	} else {
		d.cfg.Log.Info("replayed to the switch", "reason", reason)
	}
	d.notify(reason)
}
