package observe

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// status writes what the agent observes to the store: when it has changed, at most
// every Config.StatusEvery (at once when the host has become ready), and else every
// Config.StatusBeat, which keeps the host's last word young. So an idle host costs the
// store one write of some 1,000 bytes a minute, beside the renewals of its
// registration's lease.
type status struct {
	judge      judge
	agent      Agent
	netmasters *masterclient.Client
	control    *statemirror.ControlPlane
	log        *slog.Logger
	now        func() time.Time // the time of day

	every, look, beat time.Duration // Config.StatusEvery, StatusLook and StatusBeat

	dirty   waiting.Bell // what is observed may have changed
	rewrite waiting.Bell // what was written may be gone
}

// newStatus returns a status whose judge is not set yet.
func newStatus(cfg *Config) *status {
	return &status{
		agent: cfg.Agent, netmasters: cfg.Netmasters, control: cfg.Control, log: cfg.Log, now: cfg.Now,
		every: cfg.StatusEvery, look: cfg.StatusLook, beat: cfg.StatusBeat,
		dirty: waiting.NewBell(), rewrite: waiting.NewBell(),
	}
}

func (s *status) request() { s.dirty.Ring() }

func (s *status) run(ctx context.Context) {
	var last tables.HostStatus
	var said, at time.Time // of the last write, and the time of day then
	var master error       // as of the last beat while one answers: asking costs it a request
	var around *tables.Surroundings
	look := time.NewTicker(s.look)
	defer look.Stop()
	for {
		select {
		case <-s.dirty:
		case <-s.rewrite:
			said = time.Time{}
		case <-look.C:
		case <-ctx.Done():
			return
		}
		if s.agent.Named() != nil { // another's status is not ours to write; the claim pokes
			continue
		}
		// Netmasters know the last word's age by the time of day, which may have been set.
		since := time.Since(said)
		beat := since >= s.beat || (s.now().Round(0).Sub(at)-since).Abs() >= s.beat
		if beat || master != nil { // a netmaster that does not answer is asked each time: that costs it nothing
			actx, cancel := context.WithTimeout(ctx, healthTimeout)
			master = s.netmasters.Ping(actx)
			cancel()
		}
		if beat {
			around = s.control.Surroundings()
		}
		now := s.judge.status(ctx, master)
		now.Surroundings = around
		if beat || !sameStatus(now, last) {
			day := s.now().Round(0)
			now.Updated = day.UTC().Format(time.RFC3339)
			err := s.agent.WriteStatus(ctx, now)
			switch {
			case err == nil:
				last, said, at = now, time.Now(), day
			case ctx.Err() == nil:
				s.log.Debug("the status cannot be written to the store", "error", err)
				s.request()
			}
		}
		if s.pause(ctx, now.Ready, master) != nil {
			return
		}
	}
}

// pause waits for Config.StatusEvery, or until a host that was not ready is, or the status
// may be gone: without the report, a host that has just started looks broken.
func (s *status) pause(ctx context.Context, ready bool, master error) error {
	end := time.NewTimer(s.every)
	defer end.Stop()
	changed := false
	for over := false; !over; {
		select {
		case <-s.dirty:
			changed = true
			over = !ready && s.judge.status(ctx, master).Ready
		case <-s.rewrite: // waits for nothing
			s.rewrite.Ring()
			return nil
		case <-end.C:
			over = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if changed {
		s.request()
	}
	return nil
}

// sameStatus leaves out what changes all the time, and would make every host
// write with every commit and connection anywhere.
func sameStatus(x, y tables.HostStatus) bool {
	x.Updated, x.Revision, x.Verified, x.Tables = y.Updated, y.Revision, y.Verified, y.Tables
	return reflect.DeepEqual(x, y)
}

const maxProblems = 100

// published returns the first ports that containers publish, and how many more there are.
func (s *observation) published() tables.PublishedPorts {
	var out []tables.PublishedPort
	for _, e := range s.finished {
		for _, b := range e.Ports {
			out = append(out, tables.PublishedPort{Endpoint: e.Endpoint, Protocol: b.Proto, HostIP: b.HostIP, HostPort: b.HostPort, Port: b.ContainerPort})
		}
	}
	slices.SortFunc(out, func(a, b tables.PublishedPort) int {
		return cmp.Or(cmp.Compare(a.HostPort, b.HostPort), cmp.Compare(a.Protocol, b.Protocol), a.HostIP.Compare(b.HostIP))
	})
	if n := len(out); n > tables.MaxPublished {
		return tables.PublishedPorts{Ports: out[:tables.MaxPublished], Unlisted: n - tables.MaxPublished}
	}
	return tables.PublishedPorts{Ports: out}
}

// status draws up the status; master is why no netmaster answers, nil when one
// does.
func (j judge) status(ctx context.Context, master error) tables.HostStatus {
	seen := j.observe()
	s := tables.HostStatus{
		Host: j.cfg.Host, Driver: j.cfg.DriverName, DriverWhy: j.cfg.DriverWhy, Version: j.cfg.Version,
		Revision: seen.Report.Revision, Attachments: len(seen.finished), Ready: true, BGP: j.cfg.Agent.BGP(),
	}
	s.Ports, s.Pending = seen.CountPorts()
	if at := seen.Report.Verified; !at.IsZero() {
		s.Verified = at.UTC().Format(time.RFC3339)
	}
	s.Published = seen.published()
	if seen.Err != nil {
		s.Error = seen.Err.Error()
	}
	for _, c := range checks {
		err := master
		if c.Condition != condition.HostNetmaster {
			err = c.holds(ctx, j.cfg, seen)
		}
		if err != nil {
			s.Conditions = append(s.Conditions, tables.HostCondition{Name: c.Name(), Severity: c.Severity(), Message: err.Error()})
			s.Ready = s.Ready && c.Ready()
		}
	}
	for _, k := range sortedKeys(seen.problems) {
		if s.Problems == nil {
			s.Problems, s.Kinds = map[string]string{}, map[string]int{}
		}
		if s.Kinds[problemKind(k)]++; len(s.Problems) < maxProblems {
			s.Problems[k] = seen.problems[k]
		}
	}
	for name, t := range tablesOf(j.cfg.Can) {
		if t.Quiet {
			continue
		}
		if s.Tables == nil {
			s.Tables = map[string]tables.TableFill{}
		}
		s.Tables[name] = tables.TableFill{Entries: t.Entries, Capacity: t.Capacity}
	}
	return s
}
