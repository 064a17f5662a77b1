package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/ovs"
)

// openTimeout bounds the wait for a switch that does not answer.
const openTimeout = 15 * time.Second

func openOVS(ctx context.Context, o options, log *slog.Logger) (driver.Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return ovs.New(ctx, ovs.Config{
		OVSDB: o.ovsDB, RunDir: o.ovsRunDir, Bridge: o.ovsBridge, Datapath: o.ovsDatapath,
		Uplinks: o.uplinks, VTEP: o.vtep, VXLANPort: uint16(o.vxlanPort), Log: log,
	})
}
