package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/ebpf"
	"github.com/contiv/netplugin/v2/internal/driver/ovs"
	"github.com/contiv/netplugin/v2/internal/durable"
	"github.com/contiv/netplugin/v2/internal/model"
)

// choice is the host's data plane, as its state directory remembers it.
type choice struct {
	Version int    `json:"version"` // 1
	Driver  string `json:"driver"`  // ebpf or ovs
	Why     string `json:"why"`     // a sentence for people
	Since   string `json:"since"`   // RFC 3339
}

const choiceFile = "driver.json"

// evidence is what auto goes by. Its functions are asked in their order, and
// only where those before do not decide.
type evidence struct {
	remembered *choice
	inUse      func(context.Context) (driver, why string) // what an earlier version left here; "" = nothing
	lacks      func() string                              // what the kernel lacks for ebpf; "" = nothing
}

// choose says which data plane the host gets: the one that is asked for; or, by
// auto, the one that it has, for ever; else ebpf where the kernel can.
func choose(ctx context.Context, asked string, e evidence) (choice, error) {
	c := choice{Version: 1, Driver: asked, Why: "--driver asks for it", Since: time.Now().UTC().Format(time.RFC3339)}
	old := e.remembered
	switch {
	case asked != driverAuto && old != nil && old.Driver == asked:
		return *old, nil
	case asked != driverAuto:
		return c, nil
	case old != nil && old.Driver == driverEBPF:
		if lacks := e.lacks(); lacks != "" {
			return c, model.Errorf(model.ErrInvalid, "this host's data plane is ebpf since %s, which this kernel cannot run: %s; start a kernel that can, or change to Open vSwitch with --driver ovs", old.Since, lacks)
		}
		return *old, nil
	case old != nil:
		return *old, nil
	}
	if c.Driver, c.Why = e.inUse(ctx); c.Driver != "" {
		return c, nil
	}
	c.Driver, c.Why = driverEBPF, "auto: this kernel has all that ebpf needs"
	if lacks := e.lacks(); lacks != "" {
		c.Driver, c.Why = driverOVS, "auto: "+lacks
	}
	return c, nil
}

// chooseDriver chooses by what this host shows.
func chooseDriver(ctx context.Context, o options) (choice, error) {
	old, err := recall(o.stateDir)
	if err != nil && o.driver == driverAuto {
		return choice{}, err // otherwise it is written anew
	}
	return choose(ctx, o.driver, evidence{
		remembered: old, lacks: lacks,
		inUse: func(ctx context.Context) (string, string) { return inUse(ctx, o) },
	})
}

// lacks says what this kernel lacks for ebpf; "" = nothing.
func lacks() string {
	if err := ebpf.Probe(); err != nil {
		return err.Error()
	}
	return ""
}

// predecessor finds what the other driver left on this host; nil when nothing.
func predecessor(ctx context.Context, o options, log *slog.Logger) driver.Predecessor {
	switch o.driver {
	case driverOVS:
		return ebpf.Leftovers(ebpfConfig(o, log))
	case driverEBPF:
		ctx, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		old, err := ovs.Leftovers(ctx, ovsConfig(o, log))
		if err != nil {
			log.Warn("whether Open vSwitch still has a bridge of Contiv's cannot be known; if so, ovs-vsctl del-br removes it",
				"bridge", o.ovsBridge, "error", err)
		}
		return old
	}
	return nil
}

// inUse tells which data plane an earlier version, which remembered no choice,
// uses here. What cannot be asked is not in use, unless there are attachments:
// such versions took Open vSwitch unless told otherwise.
func inUse(ctx context.Context, o options) (driver, why string) {
	if ebpf.InUse(o.ebpfPinDir) {
		return driverEBPF, "auto: an earlier version uses it, by what is pinned in " + o.ebpfPinDir
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if bridge, err := ovs.InUse(ctx, ovsConfig(o, nil)); err == nil && bridge != "" {
		return driverOVS, "auto: an earlier version uses it, by its bridge " + bridge
	}
	files, err := filepath.Glob(filepath.Join(o.stateDir, "attach", "*.json"))
	if err == nil && len(files) > 0 {
		return driverOVS, "auto: an earlier version, which took it unless told otherwise, has attachments in " + o.stateDir
	}
	return "", ""
}

// recall reads what the state directory remembers; nil when nothing was chosen yet.
func recall(stateDir string) (*choice, error) {
	path := filepath.Join(stateDir, choiceFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var c choice
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err == nil && (c.Version != 1 || c.Driver != driverEBPF && c.Driver != driverOVS) {
		err = errors.New("it is not a choice of version 1")
	}
	if err != nil {
		return nil, model.Errorf(model.ErrInvalid, "read which data plane this host has from %s: %w; name it with --driver", path, err)
	}
	return &c, nil
}

// remember writes a choice down, durably.
func (c choice) remember(stateDir string) error {
	path := filepath.Join(stateDir, choiceFile)
	err := os.MkdirAll(stateDir, 0o700)
	if err == nil {
		err = durable.WriteJSON(path, c)
	}
	if err != nil {
		return fmt.Errorf("remember the data plane in %s: %w", path, err)
	}
	return nil
}

// fellBack tells whether auto took Open vSwitch because the kernel lacks something.
func (c choice) fellBack() bool {
	return c.Driver == driverOVS && strings.HasPrefix(c.Why, "auto: ebpf")
}
