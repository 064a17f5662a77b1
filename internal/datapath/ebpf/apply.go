package ebpf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// applied is the desired state that the maps hold.
type applied struct {
	host  desired.Host
	known bool // the maps hold all of it
	begun bool // this process has begun an epoch; the previous process may have died before its own
}

// networkMoved reports whether a network changed its tag, domain or subnets. Entries of
// endpoints contain these.
func (a *applied) networkMoved(want desired.Host) bool {
	for c := range want.Networks.Diff(a.host.Networks) {
		if c.Had && c.Has && (c.Old.Encap != c.New.Encap || c.Old.Tag != c.New.Tag || c.Old.Joined != c.New.Joined || c.Old.Subnet != c.New.Subnet || c.Old.Subnet6 != c.New.Subnet6) {
			return true
		}
	}
	return want.VTEP != a.host.VTEP
}

// applyRun is one Apply. It goes to each part in turn.
type applyRun struct {
	last, want desired.Host // the desired states before and after
	rep        *driver.Report
	w          *writer
	scratch    bool // compare the whole desired state with the maps
	verify     bool // check the programs of every port
	networks   map[model.NetworkID]*desired.Network
	tunnelErr  error // why there is no tunnel
}

// Apply implements driver.Driver.
func (d *Driver) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rep := driver.Report{Revision: want.Revision}
	if err := ctx.Err(); err != nil {
		return rep, fmt.Errorf("ebpf driver: %w", err)
	}
	if d.closed {
		return rep, model.Errorf(model.ErrUnavailable, "ebpf driver: it is closed")
	}
	before := d.dp.applied.host.PolicySets
	err := d.dp.apply(want, &rep)
	d.pendingAudits.Note(before, want.PolicySets)
	err = errors.Join(err, d.reportEstablished())
	d.dp.applied.known = err == nil && len(rep.Problems) == 0
	if err != nil {
		return rep, fmt.Errorf("ebpf driver: %w", err)
	}
	return rep, nil
}

// apply writes the difference between what the maps hold and the desired state.
func (dp *datapath) apply(want desired.Host, rep *driver.Report) error {
	w := &dp.tables.w
	w.changes, w.global = 0, 0
	run := &applyRun{want: want, rep: rep, w: w, networks: map[model.NetworkID]*desired.Network{}}
	if run.scratch = !dp.applied.known || dp.applied.networkMoved(want); run.scratch {
		dp.applied.host = desired.Host{}
	}
	run.last, dp.applied.known = dp.applied.host, false
	err := dp.write(run)
	dp.ports.failUnserved(run)
	if err == nil && dp.tables.compareDue(w.changes > 0) {
		err = dp.tables.compare(time.Now().Add(dp.tables.compareFor))
	}
	rep.Changes, rep.Verified = w.changes, dp.tables.verified
	if err = errors.Join(err, dp.endpoints.generations.write()); w.global > 0 || err != nil || !dp.applied.begun {
		epoch := dp.settings.newGeneration()
		dp.applied.begun = epoch == nil
		err = errors.Join(err, epoch)
	}
	dp.policies.purgeStale(time.Now().Add(-staleGrace)) // after what is written, which else would take its memory at once
	dp.applied.host = want
	return err
}

// write writes what others refer to first and removes it last.
func (dp *datapath) write(run *applyRun) error {
	dp.att.begin()
	dp.endpoints.begin()
	dp.ports.begin()
	dp.networks.begin(run)
	dp.routing.begin()
	dp.bandwidth.begin()
	dp.policies.begin()
	dp.conntrack.begin()
	dp.services.begin(run)
	for _, step := range []func(*applyRun) error{
		dp.networks.check, dp.devices.put, dp.conntrack.rejoin, dp.networks.put, dp.routing.putRoutedNetworks, dp.routing.putTunnels, dp.routing.putNodes,
		dp.policies.put, dp.endpoints.putRemotes, dp.putPins, dp.ports.put, dp.ports.forgetGone, dp.networks.putMembers, dp.networks.move, dp.groups.put,
		dp.services.put, dp.ports.remove, dp.bandwidth.remove, dp.ports.sweepPrivates, dp.devices.removeHostSide, dp.endpoints.remove, dp.conntrack.removeMoved, dp.policies.remove,
		dp.networks.remove, dp.routing.sweep,
	} {
		if err := step(run); err != nil {
			return err
		}
	}
	return nil
}

// putPins restores missing pins when the programs of every port are checked.
func (dp *datapath) putPins(run *applyRun) error {
	if run.verify = dp.ports.verifyAll(run); run.verify {
		dp.pins.restore(run)
	}
	return nil
}

func (run *applyRun) problem(object string, err error) {
	run.rep.Problems = append(run.rep.Problems, driver.Problem{Object: object, Err: err})
}

func (run *applyRun) count(done ...bool) {
	for _, d := range done {
		if d {
			run.w.changes++
		}
	}
}

// oldAddresses returns the keys that an endpoint had before this Apply.
func (run *applyRun) oldAddresses(id model.NetworkID, mac model.MAC, ips ...netip.Addr) []domainAddr {
	n, ok := run.last.Networks.Get(id)
	if !ok {
		return nil
	}
	return addresses(n, mac, ips...)
}

// routedNetworks returns the routed networks, sorted by number.
func (run *applyRun) routedNetworks() (out []*desired.Network) {
	for _, n := range run.networks {
		if n.Routed {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *desired.Network) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
