package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// takeOver moves the host's containers from another driver to this one: see
// driver.Predecessor for the order. Until the new driver is prepared the old one
// goes on forwarding, by the last picture that it knew; what the new one refuses
// as a whole is an error, and what is left of the old one is removed in a later
// pass.
func (a *Agent) takeOver(ctx context.Context, want desired.Host) (driver.Report, error) {
	old := a.cfg.Predecessor
	start := time.Now()
	if a.can.UserSpace {
		a.Interfaces.SetTxChecksum(false)
	}
	if p := a.can.Preparer; p != nil {
		if err := p.Prepare(ctx, want); err != nil {
			return driver.Report{}, fmt.Errorf("prepare to take over from %s: %w", old, err)
		}
	}
	ready := time.Now()
	if err := old.Release(ctx); err != nil {
		return driver.Report{}, fmt.Errorf("take over from %s: %w", old, err)
	}
	rep, err := a.cfg.Driver.Apply(ctx, want)
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
	if rep, err = a.cfg.Driver.Apply(ctx, want); err != nil {
		return rep, err
	}
	rep.Changes += changes
	a.cfg.Predecessor = nil
	if !a.can.UserSpace {
		a.Interfaces.SetTxChecksum(true)
	}
	a.log.Info("the containers have changed to another driver", "from", old.String(), "to", a.cfg.DriverName, "ports", rep.Ports.Len(),
		"prepared", ready.Sub(start), "programmed", programmed.Sub(ready), "removed", gone.Sub(programmed), "took", time.Since(ready))
	return rep, nil
}
