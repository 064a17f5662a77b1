package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/ebpf"
)

func openEBPF(ctx context.Context, o options, log *slog.Logger) (driver.Driver, error) {
	return ebpf.New(ctx, ebpfConfig(o, log))
}

func ebpfConfig(o options, log *slog.Logger) ebpf.Config {
	sizes, _ := parseMapSizes(o.ebpfSizes) // checked as a flag
	return ebpf.Config{PinDir: o.ebpfPinDir, Uplinks: o.uplinks, VXLANPort: uint16(o.vxlanPort), Sizes: sizes, Log: log}
}

func parseMapSizes(v string) (map[string]uint32, error) {
	sizes := map[string]uint32{}
	for _, s := range daemon.SplitList(v) {
		name, size, _ := strings.Cut(s, "=")
		n, err := strconv.ParseUint(size, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is not map=entries, such as conns=262144", s)
		}
		sizes[name] = uint32(n)
	}
	return sizes, ebpf.CheckSizes(sizes)
}
