package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/compile"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/waiting"
)

// outcome is what the newest pass reached.
type outcome struct {
	at       time.Time
	took     time.Duration
	revs     map[model.TenantName]store.Revision // what its picture had seen of each tenant
	report   driver.Report
	refused  []string // ports of the report that fail, but for an interface that is not there yet
	problems []compile.Problem
	ports    uint64 // the last change of published ports that is in the host's stack
	vlan     bool   // the picture has VLAN networks: those with containers here
	err      error  // of the data plane as a whole
}

// reached holds the newest outcome and lets others wait for the next.
type reached struct {
	again   waiting.Changes
	mu      sync.Mutex
	last    outcome
	passes  uint64
	errors  uint64
	changes uint64
}

func (p *reached) set(o outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.err != nil {
		// The last report still tells what the data plane holds, but no port may
		// be taken for programmed while it does not follow.
		p.errors++
		o.report, o.refused, o.revs, o.ports = p.last.report, p.last.refused, nil, p.last.ports
	}
	p.passes++
	p.changes += uint64(max(o.report.Changes, 0))
	p.last = o
	p.again.Tell()
}

func (p *reached) get() (outcome, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.again.Next()
}

// pass makes the data plane follow once; see reconcile.Config.
func (a *Agent) pass(ctx context.Context, reasons []string) ([]string, error) {
	a.way.refresh(slices.Contains(reasons, "drift"))
	ports := a.way.published.Load()
	a.control.want(slices.Contains(reasons, "drift"))
	a.cluster.setControl(a.control.past)
	pic, ok := a.cluster.compile()
	if !ok || !a.control.known() {
		return nil, nil // the snapshot's arrival wakes the runner again
	}
	if o, _ := a.reached.get(); o.at.IsZero() { // nothing of a later agent's may be touched
		if err := mayRead(a.cluster.ownRecord()); err != nil {
			return nil, err
		}
	}
	pic.problems = append(pic.problems, a.names.follow(ctx, pic.want)...)
	pic.problems = append(pic.problems, a.withoutUplink(pic.want)...)
	if n := a.legacyPods.Load(); n > 0 {
		pic.problems = append(pic.problems, compile.Problem{Object: "contivk8s of 1.x", Text: fmt.Sprintf(
			"%s%d pods were attached by it since netplugin started, and their labels chose neither tenant, network nor group: install this version's contivk8s", model.NoEffectPrefix, n)})
	}
	pic.problems = append(pic.problems, a.journal.problems()...)
	if why := a.spoolTrouble.Load(); why != nil && *why != "" {
		pic.problems = append(pic.problems, compile.Problem{Object: "spool", Text: *why})
	}
	start := time.Now()
	apply := a.cfg.Driver.Apply
	if a.cfg.Predecessor != nil {
		apply = a.takeOver
	}
	report, err := apply(ctx, pic.want)
	o := outcome{
		at: time.Now(), took: time.Since(start),
		revs: pic.revs, report: report, problems: pic.problems, err: err,
	}
	for _, n := range pic.want.Networks.All() {
		o.vlan = o.vlan || n.Encap == model.EncapVLAN
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err == nil {
		o.ports, o.problems = ports, append(o.problems, a.way.follow(ctx, pic.want, slices.Contains(reasons, "drift"))...)
	}
	for name, st := range report.Ports {
		// An interface that does not exist yet is announced by who makes it.
		if st.Err != nil && !errors.Is(st.Err, model.ErrNotFound) {
			o.refused = append(o.refused, name)
		}
	}
	a.applyTime.Observe(o.took.Seconds())
	a.reached.set(o)
	a.status.poke()
	a.log.Debug("applied", "reasons", reasons, "revision", pic.want.Revision,
		"changes", report.Changes, "ports", len(report.Ports), "took", o.took, "error", err)
	if err != nil {
		return nil, fmt.Errorf("apply revision %d to the data plane: %w", pic.want.Revision, err)
	}
	failed := slices.Clone(o.refused)
	for _, p := range report.Problems {
		failed = append(failed, p.Object)
	}
	a.logProblems(o)
	slices.Sort(failed)
	return failed, nil
}

// grouped is how many problems of one kind are logged by name at a time: a
// cluster's endpoints may all have the same one.
const grouped = 3

// logProblems logs problems when they come and when they have gone, not at
// every pass; many of one kind, which is the first word of their objects, in one
// line.
func (a *Agent) logProblems(o outcome) {
	now := problemTexts(o)
	came, went := map[string][]string{}, map[string][]string{}
	for k, text := range now {
		if a.problems[k] != text {
			kind, _, _ := strings.Cut(k, " ")
			came[kind] = append(came[kind], k)
		}
	}
	for k := range a.problems {
		if _, still := now[k]; !still {
			kind, _, _ := strings.Cut(k, " ")
			went[kind] = append(went[kind], k)
		}
	}
	for _, kind := range sortedKeys(came) {
		objects := came[kind]
		slices.Sort(objects)
		if len(objects) > grouped {
			a.log.Warn("the data plane is not as wanted", "kind", kind, "count", len(objects), "first", objects[0], "problem", now[objects[0]])
			continue
		}
		for _, k := range objects {
			a.log.Warn("the data plane is not as wanted", "object", k, "problem", now[k])
		}
	}
	for _, kind := range sortedKeys(went) {
		objects := went[kind]
		slices.Sort(objects)
		if len(objects) > grouped {
			a.log.Info("problems have gone", "kind", kind, "count", len(objects), "first", objects[0])
			continue
		}
		for _, k := range objects {
			a.log.Info("a problem has gone", "object", k)
		}
	}
	a.problems = now
}

func problemTexts(o outcome) map[string]string {
	out := make(map[string]string, len(o.problems))
	for _, p := range o.problems {
		out[p.Object] = p.Text
	}
	for _, p := range o.report.Problems {
		out[p.Object] = p.Err.Error()
	}
	for _, name := range o.refused {
		out["port "+name] = o.report.Ports[name].Err.Error()
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// startGrace is how long an attachment waits for an agent that has just started.
const startGrace = 5 * time.Second

// awaitFirst waits for the first pass of the driver, the claim to the host's
// name and the first netmaster, within startGrace.
func (a *Agent) awaitFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startGrace)
	defer cancel()
	err := a.reached.again.Until(ctx, func() (bool, error) {
		o, _ := a.reached.get()
		return !o.at.IsZero(), nil
	})
	if err != nil {
		return // its end
	}
	a.awaitName(ctx)
	a.masters.wait(ctx)
}

// fallback is how long waitProgrammed waits for the tenant's mirror to reach
// the revision that netmaster named before it accepts an endpoint that looks as
// netmaster answered: asked again for an endpoint that exists, netmaster may
// name a revision that never touched the tenant.
const fallback = 2 * time.Second

// waitProgrammed waits until the data plane holds the port of an endpoint, with
// its policy as of revision rev or later.
func (a *Agent) waitProgrammed(ctx context.Context, ep model.Endpoint, hostIf string, rev store.Revision) error {
	started := time.Now()
	timer := time.NewTimer(fallback)
	defer timer.Stop()
	for {
		o, changed := a.reached.get()
		why := a.missing(o, ep, hostIf, rev, time.Since(started) >= fallback)
		if why == nil {
			return nil
		}
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return model.Errorf(model.ErrUnavailable, "wait until port %s is programmed: %w", hostIf, why)
		}
	}
}

// missing says why a port does not count as programmed yet.
func (a *Agent) missing(o outcome, ep model.Endpoint, hostIf string, rev store.Revision, late bool) error {
	if o.err != nil {
		return o.err
	}
	seen, ok := o.revs[ep.Key.Network.Tenant]
	if !ok || seen < rev && (!late || !a.cluster.knows(ep)) {
		return fmt.Errorf("the picture has reached revision %d of tenant %s, not %d", seen, ep.Key.Network.Tenant, rev)
	}
	st, ok := o.report.Ports[hostIf]
	if !ok {
		return errors.New("the port is not in the picture")
	}
	return st.Err
}

// knows tells whether the mirror holds the endpoint as given.
func (c *clusterView) knows(ep model.Endpoint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.mirrors[ep.Key.Network.Tenant]
	if m == nil {
		return false
	}
	got, ok := m.endpoints[ep.Key]
	return ok && got.MAC == ep.MAC && got.IPv4 == ep.IPv4 && got.IPv6 == ep.IPv6
}
