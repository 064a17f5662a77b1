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

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// driverChoice is the host's data plane, as its state directory remembers it.
type driverChoice struct {
	Version int    `json:"version"` // 1
	Driver  string `json:"driver"`  // of planes, one that forwards
	Why     string `json:"why"`     // a sentence for people
	Since   string `json:"since"`   // RFC 3339
}

const choiceFile = "driver.json"

// driverEvidence is what auto goes by. Its functions are asked in their order, and
// only where those before do not decide.
type driverEvidence struct {
	remembered *driverChoice
	inUse      func(context.Context) (driver, why string) // what an earlier version left here; "" = nothing
	lacks      func(dataPlane) string                     // what this machine lacks for it; "" = nothing
}

// choose says which data plane the host gets: the one that is asked for; or, by
// auto, the one that it has, for ever; else the first that it can run.
func choose(ctx context.Context, asked string, e driverEvidence) (driverChoice, error) {
	c := driverChoice{Version: 1, Driver: asked, Why: "--driver asks for it", Since: time.Now().UTC().Format(time.RFC3339)}
	old := e.remembered
	switch {
	case asked != driverAuto && old != nil && old.Driver == asked:
		return *old, nil
	case asked != driverAuto:
		return c, nil
	case old != nil:
		return *old, e.canStay(*old)
	}
	if c.Driver, c.Why = e.inUse(ctx); c.Driver != "" {
		return c, nil
	}
	var lacking []string
	for _, p := range dataPlanes {
		if !p.forwards {
			continue
		}
		lacks := e.lacks(p)
		if lacks != "" {
			lacking = append(lacking, lacks)
			continue
		}
		if c.Driver, c.Why = p.name, "auto: this kernel has all that "+p.name+" needs"; len(lacking) > 0 {
			c.Why = "auto: " + strings.Join(lacking, "; ")
		}
		return c, nil
	}
	return c, model.Errorf(model.ErrInvalid, "this host can run no data plane: %s", strings.Join(lacking, "; "))
}

// canStay refuses a host whose data plane its machine cannot run any more.
func (e driverEvidence) canStay(old driverChoice) error {
	p, _ := dataPlaneByName(old.Driver) // recall knows it
	lacks := e.lacks(p)
	if lacks == "" {
		return nil
	}
	var others []string
	for _, other := range dataPlanes {
		if other.forwards && other.name != p.name && e.lacks(other) == "" {
			others = append(others, "--driver "+other.name)
		}
	}
	return model.Errorf(model.ErrInvalid, "this host's data plane is %s since %s, which this kernel cannot run: %s; start a kernel that can, or change to another (%s)",
		old.Driver, old.Since, lacks, strings.Join(others, ", "))
}

// chooseDriver chooses by what this host shows.
func chooseDriver(ctx context.Context, o options) (driverChoice, error) {
	old, err := readChoice(o.stateDir)
	if err != nil && o.driver == driverAuto {
		return driverChoice{}, err // with an explicit driver the record is overwritten
	}
	return choose(ctx, o.driver, driverEvidence{
		remembered: old, lacks: dataPlane.missing,
		inUse: func(ctx context.Context) (string, string) { return inUse(ctx, o) },
	})
}

// inUse tells which data plane an earlier version, which remembered no choice,
// uses here, and by what it is seen; "" = none.
func inUse(ctx context.Context, o options) (driver, why string) {
	for _, p := range dataPlanes {
		if p.inUse == nil {
			continue
		}
		if by := p.inUse(ctx, o); by != "" {
			return p.name, "auto: an earlier version uses it, by " + by
		}
	}
	return "", ""
}

// openDriver opens the driver that was chosen.
func openDriver(ctx context.Context, o options, log *slog.Logger) (driver.Driver, error) {
	p, ok := dataPlaneByName(o.driver)
	if !ok {
		return nil, model.Errorf(model.ErrInvalid, "no driver is named %q", o.driver)
	}
	return p.open(ctx, o, log)
}

// readChoice reads what the state directory remembers; nil when nothing was chosen yet.
func readChoice(stateDir string) (*driverChoice, error) {
	path := filepath.Join(stateDir, choiceFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var c driverChoice
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if p, known := dataPlaneByName(c.Driver); err == nil && (c.Version != 1 || !known || !p.forwards) {
		err = errors.New("it is not a choice of version 1")
	}
	if err != nil {
		return nil, model.Errorf(model.ErrInvalid, "read which data plane this host has from %s: %w; name it with --driver", path, err)
	}
	return &c, nil
}

// save writes a choice down, durably, unless it is there: a start on a disk that
// is full goes on with what the host has.
func (c driverChoice) save(stateDir string) error {
	if old, err := readChoice(stateDir); err == nil && old != nil && *old == c {
		return nil
	}
	path := filepath.Join(stateDir, choiceFile)
	err := os.MkdirAll(stateDir, 0o700)
	if err == nil {
		err = durable.WriteJSON(path, c)
	}
	if err != nil {
		return fmt.Errorf("save the data plane's name in %s: %w", path, err)
	}
	return nil
}

// fellBack reports whether auto took it because the machine lacks something for
// one that it prefers.
func (c driverChoice) fellBack() bool {
	first := dataPlanes[0].name
	return c.Driver != first && strings.HasPrefix(c.Why, "auto: "+first)
}
