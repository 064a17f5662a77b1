package agent

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
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
	// heartbeatInterval is how often an agent says that it lives; after
	// cluster.ServiceTTL of silence, which some netmaster was there to hear, its
	// host counts as away.
	heartbeatInterval = 3 * time.Second
	// checkInterval is how often it has netmaster see whether what is kept is still
	// there; a change of its host record is noticed at once.
	checkInterval = 9 * time.Second
	// leaseRetry is how soon it tries again to get what it does not have.
	leaseRetry = time.Second
	// warnAfter is how many heartbeats in a row no netmaster accepts before the log warns:
	// a store that chooses another leader refuses one or two.
	warnAfter = 3
	// leaveTimeout bounds the last word.
	leaveTimeout = 2 * time.Second
)

// nameLease is whether the host's name is this agent's.
type nameLease struct {
	leased bool
	why    string // when it is not
}

var errNotClaimed = model.Errorf(model.ErrUnavailable, "the host's name is not leased in the store yet")

func (n nameLease) err() error {
	switch {
	case n.leased:
		return nil
	case n.why != "":
		return model.Errorf(model.ErrUnavailable, "%s", n.why)
	}
	return errNotClaimed
}

// hostLease is this agent's lease of the host's name. Only registration.announce changes it;
// everything that acts under the name asks it first.
type hostLease struct {
	host         model.HostName
	installation installation
	naming       waiting.Value[nameLease]
}

// registration keeps this host known to netmasters: its name, record and status. Only the
// goroutine of announce changes the lease; the rest is fixed from the start.
type registration struct {
	cfg           *Config
	answersProbes bool // of other hosts, to tunnels
	masters       *masterclient.Client
	mirror        *mirror
	lease         *hostLease
	attachments   *attachment.Service
	observer      *observe.Observer
	way           *lifeline
	listening     func() []string     // where this process listens
	kick          func(reason string) // requests a sync of the data plane
	reannounce    waiting.Bell        // the host's record has changed
	since         string              // RFC 3339: when this agent began
}

// announce claims the host's name, and has netmasters keep the claim, the host's
// record and its registrations until ctx ends: whatever of them is missing or
// wrong is written again. It fails when the name is another's before this agent
// has ever held it; later it says so and tries again. 9002 and 9003 of 1.x are not
// served, so they are not registered.
func (g *registration) announce(ctx context.Context) error {
	defer g.leave(ctx)
	var former time.Time // since when a former run's claim is in the way
	ever, held, missed := false, false, 0
	var looked time.Time
	var said api.HostReport // that a netmaster kept
	defer g.way.changes.Save()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		_, masters := g.masters.Known()
		look := !held
		select {
		case <-tick.C:
		case <-masters:
			if held {
				continue
			}
		case <-g.way.changes.Noted:
			g.way.changes.Save()
			continue
		case <-g.reannounce:
			look = true
		case <-ctx.Done():
			return nil
		}
		report := g.report()
		same := reflect.DeepEqual(report, said)
		report.Look = look || time.Since(looked) >= checkInterval
		g.way.ask()
		kept, err := g.keep(ctx, report)
		if err == nil {
			g.way.answered()
		} else if ctx.Err() == nil {
			g.way.noAnswer()
		}
		tick.Reset(leaseRetry)
		switch {
		case ctx.Err() != nil:
			if err == nil && kept.Taken == "" {
				g.lease.naming.Set(nameLease{leased: true}) // which leave gives back
			}
			return nil
		case err != nil:
			if errors.Is(err, masterclient.ErrNone) { // the client of netmasters logs that it knows none
				continue
			}
			if missed++; missed == warnAfter {
				g.cfg.Log.Warn("no netmaster accepts this host's heartbeat; trying again", "error", err)
			}
		case kept.Taken != "" && ever:
			held = false
			g.lease.naming.Set(nameLease{why: kept.Taken})
			g.observer.SetCondition(observe.AboutName, kept.Taken)
		case kept.Taken != "" && kept.Former && (former.IsZero() || time.Since(former) <= g.cfg.LeasePatience):
			if former.IsZero() {
				former = time.Now()
				g.cfg.Log.Info("waiting for the previous run's lease on this host's name to expire", "holder", kept.Taken, "atMost", g.cfg.LeasePatience)
			}
		case kept.Taken != "":
			return model.Errorf(model.ErrConflict, "%s", kept.Taken)
		default:
			tick.Reset(heartbeatInterval)
			missed = 0
			said = report
			said.Look = false
			if report.Look {
				looked = time.Now()
			}
			if kept.Wrote != "" && same {
				g.cfg.Log.Warn("records of this host in the store were missing or wrong; they are written again", "what", kept.Wrote)
			}
			if kept.Heir != "" {
				g.cfg.Log.Warn("the host's name was taken over from another installation, which is gone", "former", kept.Heir, "now", g.lease.installation.ID)
			}
			if !ever {
				if err := g.lease.installation.remember(g.cfg.StateDir, g.cfg.Host); err != nil {
					g.cfg.Log.Warn("the next start waits for a netmaster before it touches the data plane", "error", err)
				}
			}
			g.lease.naming.Set(nameLease{leased: true})
			g.observer.SetCondition(observe.AboutName, "")
			if !held {
				g.attachments.ReleasePending()
				g.kick("the host's name")
			}
			if !held || kept.Wrote != "" {
				g.observer.ReportStatus()
			}
			ever, held = true, true
		}
	}
}

// keep has a netmaster keep what a report says. Its answer is waited for a little beyond
// ctx: a report that arrived behind the last word would have this agent live on.
func (g *registration) keep(ctx context.Context, report api.HostReport) (api.HostReportResponse, error) {
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(leaveTimeout/2, cancel) })()
	return g.masters.ReportHost(call, report)
}

// leave tells a netmaster that this agent ends, if it has the host's name.
func (g *registration) leave(ctx context.Context) {
	if g.lease.checkName() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	report := g.report()
	report.Leaving = true
	if _, err := g.masters.ReportHost(ctx, report); err != nil {
		g.cfg.Log.Debug("no netmaster can be told that this host shuts down; it is noticed by missing heartbeats", "error", err)
	}
}

// report is what netmasters are to keep.
func (g *registration) report() api.HostReport {
	r := api.HostReport{
		Version: api.HostReportVersion, Host: string(g.cfg.Host), Installation: g.lease.installation.ID, Boot: attachment.BootID(), Since: g.since,
		Control: g.cfg.Control.String(), VTEP: g.cfg.VTEP.String(), VXLANPort: g.cfg.VXLANPort, Driver: g.cfg.DriverName,
		Store: g.mirror.cluster.Mark(), Format: model.HostFormat, AgentVersion: g.cfg.Version, TakeHost: g.cfg.TakeHost, Confirms: true, AnswersProbes: g.answersProbes,
	}
	if g.cfg.OwnIPv6 != nil {
		if at := g.cfg.OwnIPv6(); at.IsValid() {
			r.IPv6 = at.String()
		}
	}
	for _, at := range cluster.Reachable(g.listening()) {
		r.Listening = append(r.Listening, at.String())
	}
	return r
}

// mayRead refuses a host on which a later agent has been.
func mayRead(old model.Host) error {
	if old.Format <= model.HostFormat {
		return nil
	}
	return model.Errorf(model.ErrConflict, "host %q was run by a newer netplugin, and this one changes nothing there", old.Name)
}

// checkName reports whether the host's name is this agent's.
func (c *hostLease) checkName() error {
	n, _ := c.naming.Get()
	return n.err()
}

// mayProgram reports whether the data plane may get this host's desired state: not before
// this installation has had the host's name once. An agent that starts with another host's
// name would take this machine's containers for none of its own.
func (c *hostLease) mayProgram() bool {
	n, _ := c.naming.Get()
	return c.installation.Host == c.host || n.leased || n.why != ""
}

// checkOwnsHost reports whether netmaster may be asked to create or release endpoints of
// this host: not under a name that is not ours, and not in a store that is not
// followed.
func (a *Agent) checkOwnsHost() error {
	if err := a.lease.checkName(); err != nil {
		return err
	}
	return a.mirror.cluster.Guard.MayWrite()
}

// awaitName waits until the name is claimed, or ctx ends.
func (c *hostLease) awaitName(ctx context.Context) {
	_ = c.naming.Until(ctx, func(n nameLease) bool { return n.leased || n.why != "" })
}

// writeStatus has a netmaster keep what this host observes.
func (g *registration) writeStatus(ctx context.Context, now tables.HostStatus) error {
	r := api.HostStatusReport{
		Version: api.HostReportVersion, Host: string(now.Host), Installation: g.lease.installation.ID, Driver: now.Driver, DriverWhy: now.DriverWhy,
		AgentVersion: now.Version, Updated: now.Updated, Revision: now.Revision, Verified: now.Verified, Ports: now.Ports, Pending: now.Pending, Error: now.Error,
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
	if s := now.Surroundings; s != nil {
		r.Surroundings = &api.UnderlayNetworks{}
		for _, at := range s.Addresses {
			r.Surroundings.Addresses = append(r.Surroundings.Addresses, at.String())
		}
		for _, tag := range s.VLANs {
			r.Surroundings.VLANs = append(r.Surroundings.VLANs, int(tag))
		}
	}
	r.Published.Unlisted = now.Published.Unlisted
	for _, p := range now.Published.Ports {
		to := api.PublishedPort{Endpoint: p.Endpoint.String(), Protocol: p.Protocol.String(), HostPort: int(p.HostPort), Port: int(p.Port)}
		if p.HostIP.IsValid() {
			to.HostIP = p.HostIP.String()
		}
		r.Published.Ports = append(r.Published.Ports, to)
	}
	return g.masters.ReportStatus(ctx, r)
}
