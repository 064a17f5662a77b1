package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// openTimeout bounds the wait for a data plane that does not answer.
const openTimeout = 15 * time.Second

// dataPlane is a data plane that a host may have. Functions may be nil where a row
// has nothing to say.
type dataPlane struct {
	name  string // as --driver and driver.json have it
	about string // for the help text
	// forwards: it moves packets of this host, and auto may take it; else it is
	// for tests of the control plane, needs no address and is not remembered.
	forwards bool
	// flags sets the defaults of those flags that do nothing with any other plane,
	// and binds them.
	flags func(*flags.Set, *options)
	// lacks says what this machine lacks for it; "" = nothing.
	lacks func() string
	// inUse says by what it is seen that an earlier version, which remembered no
	// choice, uses it here; "" = by nothing. What cannot be asked is not in use.
	inUse func(context.Context, options) string
	open  func(context.Context, options, *slog.Logger) (driver.Driver, error)
	// busy fails while a netplugin works with it.
	busy func(options) error
	// left finds what it left on this host; nil when nothing. The error says what
	// to do.
	left func(context.Context, options, *slog.Logger) (driver.Predecessor, error)
}

// dataPlanes are all that a host may have, in the order in which auto prefers them:
// another one is a row here.
var dataPlanes = []dataPlane{ebpfPlane, ovsPlane, fakePlane}

// dataPlaneByName finds a row; false for auto and what is not known.
func dataPlaneByName(name string) (dataPlane, bool) {
	i := slices.IndexFunc(dataPlanes, func(p dataPlane) bool { return p.name == name })
	if i < 0 {
		return dataPlane{}, false
	}
	return dataPlanes[i], true
}

// missing says what this machine lacks for the plane; "" = nothing.
func (p dataPlane) missing() string {
	if p.lacks == nil {
		return ""
	}
	return p.lacks()
}

// ownFlags names the flags that are for the plane only.
func (p dataPlane) ownFlags() (names []string) {
	if p.flags == nil {
		return nil
	}
	var fs flags.Set
	p.flags(&fs, &options{})
	for _, f := range fs.Flags {
		names = append(names, f.Names[0])
	}
	return names
}

// forwards reports whether the host's driver moves packets: all do but those for
// tests.
func (o options) forwards() bool {
	p, known := dataPlaneByName(o.driver)
	return !known || p.forwards
}

func driverFlags(fs *flags.Set, o *options) {
	var about []string
	names := []string{driverAuto}
	for _, p := range dataPlanes {
		names = append(names, p.name)
		about = append(about, p.name+" ("+p.about+")")
	}
	fs.Enum(&o.driver, "driver", "name", "data plane: "+strings.Join(about, ", ")+", or auto (the host's previous one; at first, the first that it can run)", names...)
	for _, p := range dataPlanes {
		if p.flags != nil {
			p.flags(fs, o)
		}
	}
}

// leftovers are what all planes but one left on this host. The error lists the planes that
// could not be asked.
func leftovers(ctx context.Context, o options, but string, log *slog.Logger) (out predecessors, err error) {
	var errs []error
	for _, p := range dataPlanes {
		if p.name == but || p.left == nil {
			continue
		}
		left, err := p.left(ctx, o, log)
		if err != nil {
			errs = append(errs, err)
		}
		if left != nil {
			out = append(out, left)
		}
	}
	return out, errors.Join(errs...)
}

// predecessor is what other drivers left on this host; nil when nothing.
func predecessor(ctx context.Context, o options, log *slog.Logger) driver.Predecessor {
	if !o.forwards() {
		return nil
	}
	left, err := leftovers(ctx, o, o.driver, log)
	if err != nil {
		log.Warn("it is unknown whether another data plane has left something here", "error", err)
	}
	if len(left) == 0 {
		return nil
	}
	return left
}

// predecessors are several as one.
type predecessors []driver.Predecessor

// Release implements driver.Predecessor.
func (all predecessors) Release(ctx context.Context) error {
	return all.each(func(p driver.Predecessor) error { return p.Release(ctx) })
}

// Remove implements driver.Predecessor.
func (all predecessors) Remove(ctx context.Context) error {
	return all.each(func(p driver.Predecessor) error { return p.Remove(ctx) })
}

func (all predecessors) each(do func(driver.Predecessor) error) error {
	var errs []error
	for _, p := range all {
		if err := do(p); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p, err))
		}
	}
	return errors.Join(errs...)
}

func (all predecessors) String() string {
	var names []string
	for _, p := range all {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}
