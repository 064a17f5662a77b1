package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ebpf"
)

const driverEBPF = "ebpf"

var ebpfPlane = dataPlane{
	name: driverEBPF, about: "a kernel and nothing else", forwards: true,
	flags: func(fs *flags.Set, o *options) {
		fs.String(&o.ebpfSizes, "ebpf-map-sizes", "map=entries,...", "sizes of eBPF maps that differ from the built-in ones, such as conns=262144").Must(func(v string) error { _, err := parseMapSizes(v); return err })
	},
	lacks: func() string {
		if err := ebpf.Probe(); err != nil {
			return err.Error()
		}
		return ""
	},
	inUse: func(_ context.Context, o options) string {
		if ebpf.InUse(o.ebpfPinDir) {
			return "what is pinned in " + o.ebpfPinDir
		}
		return ""
	},
	open: func(ctx context.Context, o options, log *slog.Logger) (driver.Driver, error) {
		return ebpf.New(ctx, ebpfConfig(o, log))
	},
	busy: func(o options) error { return ebpf.Busy(o.ebpfPinDir) },
	left: func(_ context.Context, o options, log *slog.Logger) (driver.Predecessor, error) {
		return ebpf.Leftovers(ebpfConfig(o, log)), nil
	},
}

func ebpfConfig(o options, log *slog.Logger) ebpf.Config {
	sizes, _ := parseMapSizes(o.ebpfSizes) // checked as a flag
	return ebpf.Config{PinDir: o.ebpfPinDir, Uplinks: o.uplinks, VXLANPort: uint16(o.vxlanPort), Sizes: sizes, Log: log}
}

func parseMapSizes(v string) (map[string]uint32, error) {
	sizes := map[string]uint32{}
	for _, s := range flags.Split(v) {
		name, size, _ := strings.Cut(s, "=")
		n, err := strconv.ParseUint(size, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is not map=entries, such as conns=262144", s)
		}
		sizes[name] = uint32(n)
	}
	return sizes, ebpf.CheckSizes(sizes)
}
