package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs"
)

const driverOVS = "ovs"

var ovsPlane = dataPlane{
	name: driverOVS, about: "Open vSwitch", forwards: true,
	flags: ovsFlags, inUse: ovsInUse, open: openOVS, left: ovsLeftovers,
}

func ovsFlags(fs *flags.Set, o *options) {
	o.ovsDB, o.ovsRunDir = "unix:/var/run/openvswitch/db.sock", "/var/run/openvswitch"
	o.ovsBridge, o.ovsDatapath = "contivBr", "auto"
	fs.String(&o.ovsDB, "ovs-db", "address", "database of Open vSwitch: unix:/path or tcp:ip:port").Must(checkOVSDB)
	fs.String(&o.ovsRunDir, "ovs-run-dir", "directory", "directory of the bridges' management sockets").Must(checkPath)
	fs.String(&o.ovsBridge, "ovs-bridge", "name", "name of the bridge to create").Must(checkInterfaces)
	fs.Enum(&o.ovsDatapath, "ovs-datapath", "type", "datapath: system (kernel), netdev (user space), or auto (system if the kernel has it)", "auto", "system", "netdev")
}

func checkOVSDB(v string) error {
	kind, rest, ok := strings.Cut(v, ":")
	switch {
	case ok && kind == "unix" && strings.HasPrefix(rest, "/"):
		return nil
	case ok && kind == "tcp" && daemon.CheckHostPort(rest) == nil:
		return nil
	}
	return errors.New("must be unix:/path or tcp:ip:port")
}

// ovsInUse goes by the bridge, or by attachments without a choice: earlier
// versions took Open vSwitch unless told otherwise.
func ovsInUse(ctx context.Context, o options) string {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if bridge, err := ovs.InUse(ctx, ovsConfig(o, nil)); err == nil && bridge != "" {
		return "its bridge " + bridge
	}
	files, err := filepath.Glob(filepath.Join(o.stateDir, "attach", "*.json"))
	if err == nil && len(files) > 0 {
		return "attachments in " + o.stateDir + ": it took Open vSwitch unless told otherwise"
	}
	return ""
}

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

func ovsLeftovers(ctx context.Context, o options, log *slog.Logger) (driver.Predecessor, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	p, err := ovs.Leftovers(ctx, ovsConfig(o, log))
	if err != nil {
		err = fmt.Errorf("ask Open vSwitch for bridge %s: %w; start it, or remove the bridge with 'ovs-vsctl del-br %s' later", o.ovsBridge, err, o.ovsBridge)
	}
	return p, err
}

func ovsConfig(o options, log *slog.Logger) ovs.Config {
	return ovs.Config{
		OVSDB: o.ovsDB, RunDir: o.ovsRunDir, Bridge: o.ovsBridge, Datapath: o.ovsDatapath,
		Uplinks: o.uplinks, VTEP: o.vtep, VXLANPort: uint16(o.vxlanPort), Log: log,
	}
}
