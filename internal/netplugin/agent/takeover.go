package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// dataPlane applies desired states to the driver, and takes the host over from another one.
// Only the runner's goroutine uses it.
type dataPlane struct {
	driver      driver.Driver
	name        string // of the driver
	can         driver.Capabilities
	predecessor driver.Predecessor // nil = none, or it is gone
	interfaces  *attachment.Interfaces
	log         *slog.Logger
	unsupported *statemirror.Unsupported
	pace        *statemirror.PolicyPacer
	retry       *time.Timer // kicks when a step of pace is due
}

// apply has the driver apply the next step towards a desired state.
func (d *dataPlane) apply(ctx context.Context, want desired.Host, start time.Time) (statemirror.Step, driver.Report, error) {
	apply := d.driver.Apply
	if d.predecessor != nil {
		apply = d.takeOver
	}
	step := d.pace.Next(want, start)
	report, err := apply(ctx, step.Want)
	d.pace.Done(step, time.Since(start), time.Now(), err)
	report.Ports = step.Statuses(report.Ports)
	if in, more := d.pace.Due(time.Now()); more {
		d.retry.Reset(in)
	}
	return step, report, err
}

// takeOver moves the host's containers from another driver to this one: see
// driver.Predecessor for the order. Until the new driver is prepared the old one
// goes on forwarding, by the last desired state that it knew; what the new one refuses
// as a whole is an error, and what is left of the old one is removed in a later
// pass.
func (d *dataPlane) takeOver(ctx context.Context, want desired.Host) (driver.Report, error) {
	old := d.predecessor
	start := time.Now()
	if d.can.UserSpace {
		d.interfaces.SetTxChecksum(false)
	}
	if p := d.can.Preparer; p != nil {
		if err := p.Prepare(ctx, want); err != nil {
			return driver.Report{}, fmt.Errorf("prepare to take over from %s: %w", old, err)
		}
	}
	ready := time.Now()
	if err := old.Release(ctx); err != nil {
		return driver.Report{}, fmt.Errorf("take over from %s: %w", old, err)
	}
	rep, err := d.driver.Apply(ctx, want)
	if err != nil {
		return rep, err
	}
	programmed := time.Now()
	if err := old.Remove(ctx); err != nil {
		rep.Problems = append(rep.Problems, driver.Problem{Object: old.String(), Err: fmt.Errorf("it cannot be removed yet: %w", err)})
		return rep, nil
	}
	gone := time.Now()
	changes := rep.Changes
	if rep, err = d.driver.Apply(ctx, want); err != nil {
		return rep, err
	}
	rep.Changes += changes
	d.predecessor = nil
	if !d.can.UserSpace {
		d.interfaces.SetTxChecksum(true)
	}
	d.log.Info("the containers have switched to another driver", "from", old.String(), "to", d.name, "ports", rep.Ports.Len(),
		"prepared", ready.Sub(start), "programmed", programmed.Sub(ready), "removed", gone.Sub(programmed), "took", time.Since(ready))
	return rep, nil
}
