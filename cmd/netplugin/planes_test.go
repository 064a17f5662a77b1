package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
)

// thirdLeft is what the driver of TestOneRowAddsADriver left on the host.
type thirdLeft struct{ fails error }

func (l thirdLeft) Release(context.Context) error { return l.fails }
func (l thirdLeft) Remove(context.Context) error  { return l.fails }
func (thirdLeft) String() string                  { return "what the third left" }

// TestOneRowAddsADriver: one row makes a driver known to all that choose, open, warn
// and clean up.
func TestOneRowAddsADriver(t *testing.T) {
	old := dataPlanes
	t.Cleanup(func() { dataPlanes = old })
	var flag string
	opened := false
	dataPlanes = append([]dataPlane{{
		name: "third", about: "a test's", forwards: true,
		flags: func(fs *flags.Set, _ *options) {
			fs.String(&flag, "third-flag", "x", "for the third").From("")
		},
		inUse: func(context.Context, options) string { return "its trace" },
		open: func(context.Context, options, *slog.Logger) (driver.Driver, error) {
			opened = true
			return reference.New(), nil
		},
		left: func(context.Context, options, *slog.Logger) (driver.Predecessor, error) {
			return thirdLeft{}, errors.New("in doubt")
		},
	}}, dataPlanes[0], fakePlane)
	var o options
	fs := newFlags(&o)
	if err := fs.ParseAll([]string{"--driver", "third", "--third-flag", "a", "--ebpf-map-sizes", "conns=131072", "--ip-forward", "--flow-log", "/x"}, noEnv); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(fs.Help(), "third (a test's)") {
		t.Error("the help text does not name it")
	}
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	o.stateDir, o.ebpfPinDir = t.TempDir(), t.TempDir()
	drv, err := openDriver(t.Context(), o, log)
	if err != nil || !opened || flag != "a" {
		t.Fatalf("opened %v with flag %q: %v", opened, flag, err)
	}
	o.warnIdle(fs, log)
	o.warnUnsupported(fs, drv.Capabilities(), log)
	if strings.Contains(out.String(), "--flow-log") {
		t.Errorf("a driver that tells of logged connections is warned of: %s", out.String())
	}
	o.warnUnsupported(fs, driver.Capabilities{Egress: true}, log)
	if got := out.String(); strings.Contains(got, "third-flag") || !strings.Contains(got, "--ebpf-map-sizes") || !strings.Contains(got, "flag=--flow-log why=") ||
		!strings.Contains(got, `flag=--ip-forward why="it is for a driver with egress"`) {
		t.Errorf("warnings: %s", got)
	}
	out.Reset()
	o.driver = driverEBPF
	o.warnIdle(fs, log)
	if !strings.Contains(out.String(), `flag=--third-flag why="it is for driver third"`) {
		t.Errorf("warnings with another driver: %s", out.String())
	}
	if d, why := inUse(t.Context(), o); d != "third" || !strings.Contains(why, "its trace") {
		t.Errorf("in use: %q, %q", d, why)
	}
	c := driverChoice{Version: 1, Driver: "third", Why: "w", Since: "s"}
	if err := c.save(o.stateDir); err != nil {
		t.Fatal(err)
	}
	if got, err := chooseDriver(t.Context(), options{driver: driverAuto, stateDir: o.stateDir}); err != nil || got != c {
		t.Errorf("remembered: %+v, %v", got, err)
	}
	if p := predecessor(t.Context(), o, log); p == nil || p.String() != "what the third left" || !strings.Contains(out.String(), "in doubt") {
		t.Errorf("predecessor %v: %s", p, out.String())
	}
	o.driver = driverFake
	if p := predecessor(t.Context(), o, log); p != nil {
		t.Errorf("a driver that forwards nothing takes over from %s", p)
	}
	all := predecessors{thirdLeft{}, thirdLeft{errors.New("held")}}
	if err := errors.Join(all.Release(t.Context()), all.Remove(t.Context())); err == nil || strings.Count(err.Error(), "what the third left: held") != 2 {
		t.Errorf("several: %v", err)
	}
}

// TestErrorSaysWhatEachDriverLacks: on a host that can run no data plane, the error says what each one lacks.
func TestErrorSaysWhatEachDriverLacks(t *testing.T) {
	_, err := choose(t.Context(), driverAuto, driverEvidence{
		inUse: func(context.Context) (string, string) { return "", "" },
		lacks: func(p dataPlane) string { return p.name + " lacks all" },
	})
	if err == nil || !strings.Contains(err.Error(), "ebpf lacks all; ovs lacks all") {
		t.Errorf("error %v", err)
	}
}
