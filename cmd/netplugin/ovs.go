package main

import (
	"context"
	"log/slog"

	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/driver"
)

func openOVS(context.Context, options, *slog.Logger) (driver.Driver, error) {
	return nil, daemon.Usagef("--driver ovs: this build has no Open vSwitch driver yet; use --driver fake")
}
