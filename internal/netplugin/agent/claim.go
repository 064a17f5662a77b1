package agent

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/netplugin/observe"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// A host's name belongs to one installation while that lives. Its agent tells the
// cluster's netmasters who it is, and they keep its claim to the name, the host's
// record and its registrations in the store. Only who has the name tells the
// host's status, and has netmaster create and release endpoints of the host. With
// no netmaster there, nothing of it expires.

const (
	// beatEvery is how often an agent says that it lives; after
	// cluster.ServiceTTL of silence, which some netmaster was there to hear, its
	// host counts as away.
	beatEvery = 3 * time.Second
	// lookEvery is how often it has netmaster see whether what is kept is still
	// there; a change of its host record is noticed at once.
	lookEvery = 9 * time.Second
	// claimRetry is how soon it tries again to get what it does not have.
	claimRetry = time.Second
	// leaveTimeout bounds the last word.
	leaveTimeout = 2 * time.Second
)

// naming is whether the host's name is this agent's.
type naming struct {
	held bool
	why  string // when it is not
}

var errNotClaimed = model.Errorf(model.ErrUnavailable, "the host's name is not claimed in the store yet")

func (n naming) err() error {
	switch {
	case n.held:
		return nil
	case n.why != "":
		return model.Errorf(model.ErrUnavailable, "%s", n.why)
	}
	return errNotClaimed
}

// announce claims the host's name, and has netmasters keep the claim, the host's
// record and its registrations until ctx ends: whatever of them is missing or
// wrong is written again. It fails when the name is another's before this agent
// has ever held it; later it says so and tries again. 9002 and 9003 of 1.x are not
// served, so they are not registered.
func (a *Agent) announce(ctx context.Context) error {
	defer a.leave(ctx)
	var former time.Time // since when a former run's claim is in the way
	ever, held, told := false, false, false
	var looked time.Time
	var said api.HostReport // that a netmaster kept
	way := lifeline{path: a.path, changes: a.hostChanges(), log: a.log, now: time.Now}
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		_, masters := a.masters.Known()
		look := !held
		select {
		case <-tick.C:
		case <-masters:
			if held {
				continue
			}
		case <-a.reannounce:
			look = true
		case <-ctx.Done():
			return nil
		}
		report := a.report()
		same := reflect.DeepEqual(report, said)
		report.Look = look || time.Since(looked) >= lookEvery
		way.ask()
		kept, err := a.keep(ctx, report)
		if err == nil {
			way.answered()
		} else if ctx.Err() == nil {
			way.silent()
		}
		tick.Reset(claimRetry)
		switch {
		case ctx.Err() != nil:
			if err == nil && kept.Taken == "" {
				a.naming.Set(naming{held: true}) // which leave gives back
			}
			return nil
		case err != nil:
			if !told && !errors.Is(err, masterclient.ErrNone) { // Say tells of none
				a.log.Warn("no netmaster keeps this host's place in the cluster now; trying again", "error", err)
				told = true
			}
		case kept.Taken != "" && ever:
			held = false
			a.naming.Set(naming{why: kept.Taken})
			a.SetStanding(observe.AboutName, kept.Taken)
		case kept.Taken != "" && kept.Former && (former.IsZero() || time.Since(former) <= a.cfg.ClaimPatience):
			if former.IsZero() {
				former = time.Now()
				a.log.Info("waiting for a former run's claim to this host's name to end", "holder", kept.Taken, "atMost", a.cfg.ClaimPatience)
			}
		case kept.Taken != "":
			return model.Errorf(model.ErrConflict, "%s", kept.Taken)
		default:
			tick.Reset(beatEvery)
			told = false
			said = report
			said.Look = false
			if report.Look {
				looked = time.Now()
			}
			if kept.Wrote != "" && same {
				a.log.Warn("what this host keeps in the store was missing or wrong, and is written again", "what", kept.Wrote)
			}
			if kept.Heir != "" {
				a.log.Warn("the host's name was another installation's, which is gone; it is this one's now", "former", kept.Heir, "now", a.installation.ID)
			}
			if !ever {
				if err := a.installation.remember(a.cfg.StateDir, a.cfg.Host); err != nil {
					a.log.Warn("the next start waits for a netmaster before it touches the data plane", "error", err)
				}
			}
			a.naming.Set(naming{held: true})
			a.SetStanding(observe.AboutName, "")
			if !held {
				a.Pay()
				a.kick("the host's name")
			}
			if !held || kept.Wrote != "" {
				a.TellStatus()
			}
			ever, held = true, true
		}
	}
}

// keep has a netmaster keep what a report says. Its answer is waited for a little beyond
// ctx: a report that arrived behind the last word would have this agent live on.
func (a *Agent) keep(ctx context.Context, report api.HostReport) (api.HostKept, error) {
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(leaveTimeout/2, cancel) })()
	return a.masters.KeepHost(call, report)
}

// leave tells a netmaster that this agent ends, if it has the host's name.
func (a *Agent) leave(ctx context.Context) {
	if a.named() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	report := a.report()
	report.Leaving = true
	if _, err := a.masters.KeepHost(ctx, report); err != nil {
		a.log.Debug("no netmaster hears that this host is away; one will notice", "error", err)
	}
}

// report is what netmasters are to keep.
func (a *Agent) report() api.HostReport {
	r := api.HostReport{
		Version: api.HostReportVersion, Host: string(a.cfg.Host), Installation: a.installation.ID, Boot: attachment.BootID(), Since: a.since,
		Control: a.cfg.Control.String(), VTEP: a.cfg.VTEP.String(), VXLANPort: a.cfg.VXLANPort, Driver: a.cfg.DriverName,
		Store: a.cluster.Mark(), Format: model.HostFormat, AgentVersion: a.cfg.Version, TakeHost: a.cfg.TakeHost, Confirms: true, AnswersProbes: a.can.TunnelProber != nil,
	}
	if a.cfg.OwnIPv6 != nil {
		if at := a.cfg.OwnIPv6(); at.IsValid() {
			r.IPv6 = at.String()
		}
	}
	for _, at := range cluster.Reachable(a.listening()) {
		r.Listening = append(r.Listening, at.String())
	}
	return r
}

// mayRead refuses a host on which a later agent has been.
func mayRead(old model.Host) error {
	if old.Format <= model.HostFormat {
		return nil
	}
	return model.Errorf(model.ErrConflict, "host %q was run by a newer netplugin, and this one touches nothing there", old.Name)
}

// named tells whether the host's name is this agent's.
func (a *Agent) named() error {
	n, _ := a.naming.Get()
	return n.err()
}

// mayProgram tells whether the data plane may be given this host's picture: not before
// this installation has had the host's name once. Whoever starts with the name of
// another host would take this machine's containers for none of its own.
func (a *Agent) mayProgram() bool {
	n, _ := a.naming.Get()
	return a.installation.Host == a.cfg.Host || n.held || n.why != ""
}

// mine tells whether netmaster may be asked to create or release endpoints of
// this host: not under a name that is not ours, and not in a store that is not
// followed.
func (a *Agent) mine() error {
	if err := a.named(); err != nil {
		return err
	}
	return a.cluster.Guard.MayWrite()
}

// awaitName waits until the name is claimed, or ctx ends.
func (a *Agent) awaitName(ctx context.Context) {
	_ = a.naming.Until(ctx, func(n naming) bool { return n.held || n.why != "" })
}

// writeStatus has a netmaster keep what this host observes.
func (a *Agent) writeStatus(ctx context.Context, now tables.HostStatus) error {
	r := api.HostStatusReport{
		Version: api.HostReportVersion, Host: string(now.Host), Installation: a.installation.ID, Driver: now.Driver, DriverWhy: now.DriverWhy,
		AgentVersion: now.Version, Updated: now.Updated, Revision: now.Revision, Ports: now.Ports, Pending: now.Pending, Error: now.Error,
		Problems: now.Problems, Attachments: now.Attachments, Ready: now.Ready, Kinds: now.Kinds,
	}
	for _, c := range now.Conditions {
		r.Conditions = append(r.Conditions, api.Condition{Name: c.Name, Severity: c.Severity, Message: c.Message})
	}
	for name, t := range now.Tables {
		if r.Tables == nil {
			r.Tables = map[string]api.TableFill{}
		}
		r.Tables[name] = api.TableFill(t)
	}
	if now.BGP != nil {
		bgp := api.BgpStatus(*now.BGP)
		r.BGP = &bgp
	}
	return a.masters.TellStatus(ctx, r)
}
