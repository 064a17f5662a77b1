package main

import (
	"context"
	"log/slog"

	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/ebpf"
)

func openEBPF(ctx context.Context, o options, log *slog.Logger) (driver.Driver, error) {
	return ebpf.New(ctx, ebpf.Config{
		PinDir: o.ebpfPinDir, Uplinks: o.uplinks, VXLANPort: uint16(o.vxlanPort), Log: log,
	})
}
