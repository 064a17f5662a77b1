package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/ovs"
)

// openTimeout bounds the wait for a switch that does not answer.
const openTimeout = 15 * time.Second

func openOVS(ctx context.Context, o options, log *slog.Logger) (driver.Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	cfg := ovsConfig(o, log)
	if o.debugHooks { // tests of whole clusters seed a fault and must notice it
		var err error
		if cfg, err = cfg.Mutated(os.Getenv(envPrefix + "TEST_MUTATION")); err != nil {
			return nil, err
		}
	}
	return ovs.New(ctx, cfg)
}

func ovsConfig(o options, log *slog.Logger) ovs.Config {
	return ovs.Config{
		OVSDB: o.ovsDB, RunDir: o.ovsRunDir, Bridge: o.ovsBridge, Datapath: o.ovsDatapath,
		Uplinks: o.uplinks, VTEP: o.vtep, VXLANPort: uint16(o.vxlanPort), Log: log,
	}
}
