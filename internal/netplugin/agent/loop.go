package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// sync makes the data plane follow once; see reconcile.Config.
func (a *Agent) sync(ctx context.Context, reasons []string) ([]string, error) {
	look := slices.Contains(reasons, "drift")
	known := a.mirror.way.Addresses.Refresh(look) // before the desired state, which may know more by then
	ports := a.Attachments.Ports.Changes()
	a.mirror.control.Refresh(look)
	pic, ok := a.mirror.cluster.Compile()
	if !ok || !known || !a.mirror.control.Known() || !a.lease.mayProgram() {
		return nil, nil // what it waits for wakes the runner again
	}
	if o, _ := a.reached.Get(); o.At.IsZero() { // nothing of a later agent's may be touched
		if err := mayRead(a.mirror.cluster.Hosts.OwnRecord()); err != nil {
			return nil, err
		}
	}
	pic.Want.Router = a.bgp.routerInterface(pic.Want)
	if a.listener != nil {
		pic.Want.Groups = a.listener.Follow(pic.Want)
	}
	pic.Problems = append(pic.Problems, a.names.follow(ctx, pic.Want)...)
	pic.Problems = append(pic.Problems, a.mirror.underlay.Problems(pic.Want)...)
	pic.Problems = append(pic.Problems, a.mirror.control.Problems()...)
	pic.Problems = append(pic.Problems, a.l2.problems()...)
	pic.Problems = append(pic.Problems, a.bgp.fabric.Problems()...)
	pic.Problems = append(pic.Problems, a.dataPlane.unsupported.Problems(pic.Want)...)
	pic.Problems = append(pic.Problems, a.legacy.problems()...)
	pic.Problems = append(pic.Problems, a.Attachments.Problems()...)
	start := time.Now()
	step, report, err := a.dataPlane.apply(ctx, pic.Want, start)
	pic.Problems = append(pic.Problems, step.Problems()...)
	o := statemirror.SyncStatus{
		At: time.Now(), Took: time.Since(start),
		Revs: pic.Revs, Report: report, Problems: pic.Problems, Networks: pic.Want.Networks, Services: pic.Want.Services, Err: err,
	}
	for _, n := range pic.Want.Networks.All() {
		o.VLAN = o.VLAN || n.Encap == model.EncapVLAN
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var failed []string
	if err == nil {
		var problems []compile.Problem
		problems, failed = a.Attachments.Ports.FollowEgress(ctx, pic.Want, look)
		o.Ports, o.Problems = ports, append(o.Problems, problems...)
	}
	for name, st := range report.Ports.All() {
		// An interface that does not exist yet is announced by who makes it.
		if _, waits := step.Waits[name]; st.Err != nil && !waits && !errors.Is(st.Err, model.ErrNotFound) {
			o.Refused = append(o.Refused, name)
		}
	}
	if err == nil {
		a.bgp.followBGP(pic, report)
		a.l2.announceVLAN(step.Want, report)
		a.l2.announceToNeighbours(step.Want)
		a.probers.tunnels.Follow(step.Want)
	}
	a.reached.Set(o)
	a.Observer.SyncDone(o)
	a.cfg.Log.Debug("applied", "reasons", reasons, "revision", pic.Want.Revision,
		"changes", report.Changes, "ports", report.Ports.Len(), "took", o.Took, "error", err)
	if err != nil {
		return nil, fmt.Errorf("apply revision %d to the data plane: %w", pic.Want.Revision, err)
	}
	failed = append(failed, o.Refused...)
	for _, p := range report.Problems {
		failed = append(failed, p.Object)
	}
	slices.Sort(failed)
	return failed, nil
}

// startGrace is how long an attachment waits for an agent that has just started.
const startGrace = 5 * time.Second

// awaitFirst waits for the first pass of the driver, the claim to the host's
// name and the first netmaster, within startGrace.
func (a *Agent) awaitFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startGrace)
	defer cancel()
	if a.reached.Until(ctx, func(o statemirror.SyncStatus) (bool, error) { return !o.At.IsZero(), nil }) != nil {
		return // its end
	}
	a.lease.awaitName(ctx)
	a.masters.Await(ctx)
}
