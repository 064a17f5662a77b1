package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/contiv/netplugin/v2/internal/agent/attachment"
	"github.com/contiv/netplugin/v2/internal/agent/observe"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/waiting"
)

// A host's name belongs to one installation while that lives: its agent keeps a
// claim in the store, with a lease. Only who holds it writes the host's record
// and its status, and has netmaster create and release endpoints of the host.

const (
	// claimEvery is how often an agent looks whether what it keeps in the store is
	// still there; a change of its host record is noticed at once.
	claimEvery = 10 * time.Second
	// claimRetry is how soon it tries again to get what it does not have.
	claimRetry = time.Second
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

// takenError says that a name, or a tunnel's address, is not for this agent:
// mostly, since somebody else has it.
type takenError struct {
	text   string
	former bool // it may be a former run of this very installation, whose lease will end
}

func (e takenError) Error() string { return e.text }

// announce claims the host's name, and keeps the claim, the host's record and
// the registration of netplugin.vtep in the store until ctx ends: whatever of
// them is missing or wrong is written again. It fails when the name is
// another's before this agent has ever held it; later it says so and tries
// again. 9002 and 9003 of 1.x are not served, so they are not registered.
func (a *Agent) announce(ctx context.Context) error {
	started, ever, told := time.Now(), false, false
	for ctx.Err() == nil {
		session, err := a.cfg.Store.NewSession(ctx, cluster.ServiceLease)
		if err == nil {
			err = a.hold(ctx, session, func() { ever = true })
			if cerr := session.Close(); cerr != nil {
				a.log.Debug("the claim to the host's name ends with its lease", "error", cerr)
			}
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end is why it failed
		}
		var taken takenError
		switch {
		case errors.As(err, &taken) && !ever && (!taken.former || time.Since(started) > a.cfg.ClaimPatience):
			return model.Errorf(model.ErrConflict, "%w", err)
		case errors.As(err, &taken) && ever:
			a.naming.Set(naming{why: taken.text})
			a.Tell(observe.AboutName, taken.text)
		case errors.As(err, &taken):
			if !told {
				a.log.Info("waiting for a former run's claim to this host's name to end", "holder", taken.text, "atMost", a.cfg.ClaimPatience)
			}
			told = true
		case err != nil && !told:
			a.log.Warn("the host's name is not claimed in the store yet; trying again", "error", err)
			told = true
		}
		_ = waiting.Pause(ctx, claimRetry) // the loop sees the end
	}
	return nil
}

// hold enters what the agent keeps in the store with a session, and again
// whenever it may be missing, until the session or ctx ends.
func (a *Agent) hold(ctx context.Context, session store.Session, entered func()) error {
	if err := a.refuseEarlier(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(claimEvery)
	defer tick.Stop()
	for fresh := true; ; fresh = false {
		wrote, err := a.enter(ctx, session, fresh)
		switch {
		case err == nil:
			entered()
			a.naming.Set(naming{held: true})
			a.Tell(observe.AboutName, "")
			if fresh {
				a.Pay()
				a.TellStatus()
			}
			if wrote != "" && !fresh {
				a.log.Warn("what this host keeps in the store was missing or wrong, and is written again", "what", wrote)
			}
		case fresh || errors.As(err, new(takenError)) || errors.Is(err, store.ErrSessionLost):
			return err
		}
		tick.Reset(claimEvery)
		if err != nil {
			tick.Reset(claimRetry)
		}
		select {
		case <-tick.C:
		case <-a.reannounce:
		case <-session.Done():
			return store.ErrSessionLost
		case <-ctx.Done():
			return nil
		}
	}
}

// enter writes what is missing or wrong of the host's claim, record and
// registration, and all of them if the session is fresh; and says what it wrote.
func (a *Agent) enter(ctx context.Context, session store.Session, fresh bool) (wrote string, err error) {
	claim := tables.HostClaim{
		Host: a.cfg.Host, Installation: a.installation.ID, Boot: attachment.BootID(), Control: a.cfg.Control, VTEP: a.cfg.VTEP, Since: a.since,
	}
	host := model.Host{
		Name: a.cfg.Host, Control: a.cfg.Control, VTEP: a.cfg.VTEP, Driver: a.cfg.DriverName, Installation: a.installation.ID, Store: a.cluster.Mark(),
		Format: model.HostFormat,
	}
	service := cluster.Service{
		ServiceName: cluster.ServiceAgent, Version: a.cfg.Version, HostAddr: a.cfg.VTEP.String(),
		Port: a.cfg.VXLANPort, Hostname: string(a.cfg.Host), Installation: a.installation.ID,
	}
	former := ""
	_, err = a.cfg.Store.Update(ctx, func(tx store.Tx) error {
		wrote, former = "", ""
		if err := tx.Prefetch(tables.HostClaims.Key(claim.Host), tables.Hosts.Key(host.Name)); err != nil {
			return err
		}
		claimed, err := tables.HostClaims.Find(tx, claim.Host)
		if err != nil {
			return err
		}
		row, err := tables.Hosts.Find(tx, host.Name)
		if err != nil {
			return err
		}
		registered, there, err := service.Find(tx)
		if err != nil {
			return err
		}
		if claimed.Exists() {
			if err := a.mayReplace(claimed.Value, claim); err != nil {
				return err
			}
		} else if row.Exists() {
			if former, err = a.maySucceed(row.Value, host); err != nil {
				return err
			}
		}
		if err := mayRead(row.Value); err != nil {
			return err
		}
		if there && registered.Hostname != service.Hostname && registered.Installation != service.Installation {
			return takenError{former: registered.Installation == "", text: fmt.Sprintf(
				"tunnel address %s is that of host %q, which is alive: two hosts cannot have one; give this one its own with --vtep-ip", service.HostAddr, registered.Hostname)}
		}
		note := func(what string) {
			if wrote != "" {
				wrote += ", "
			}
			wrote += what
		}
		if fresh || claimed.Value != claim {
			note("claim to the host's name")
			if err := tables.HostClaims.Put(tx, claim, tables.WithLease(session)); err != nil {
				return err
			}
		}
		registered.TTL = 0
		if fresh || registered != service {
			note("registration of netplugin.vtep")
			if err := service.Put(tx, session); err != nil {
				return err
			}
		}
		if !row.Exists() || row.Value != host {
			note("host record")
			return tables.Hosts.Put(tx, host)
		}
		return nil
	})
	if err == nil && former != "" {
		a.log.Warn("the host's name was another installation's, which is gone; it is this one's now", "former", former, "now", a.installation.ID)
	}
	return wrote, err
}

// mayReplace decides over a claim that stands.
func (a *Agent) mayReplace(old, now tables.HostClaim) error {
	if old.Installation == now.Installation {
		if old.Boot == now.Boot && old.Control == now.Control && old.VTEP == now.VTEP {
			return nil // a former run here: the state directory's lock holds that it has ended
		}
		return takenError{former: true, text: fmt.Sprintf(
			"host %q is alive at %s, since %s, with the installation %s of this state directory (%s): one of them is a copy of the other, such as a cloned machine; on the copy remove the state directory and give it a name of its own with --host",
			old.Host, old.Control, old.Since, old.Installation, a.cfg.StateDir)}
	}
	return takenError{text: fmt.Sprintf(
		"the host name %q is taken: another installation (%s) is alive under it at %s, tunnel address %s, since %s; give this one a name of its own with --host",
		old.Host, old.Installation, old.Control, old.VTEP, old.Since)}
}

// maySucceed decides over the record of a host that does not live: it is this
// installation's if it says so, or if the machine's address is that of the
// record, which two machines cannot have. It returns the former installation.
func (a *Agent) maySucceed(old, now model.Host) (former string, err error) {
	same := func(x, y netip.Addr) bool { return x == y && x.IsValid() && !x.IsLoopback() }
	switch {
	case old.Installation == now.Installation:
		return "", nil
	case same(old.Control, now.Control), same(old.VTEP, now.VTEP), a.cfg.TakeHost:
		if old.Installation == "" {
			return "an earlier version", nil
		}
		return old.Installation, nil
	}
	who := old.Installation
	if who == "" {
		who = "of an earlier version"
	}
	return "", takenError{text: fmt.Sprintf(
		"the host name %q is another installation's (%s, at %s, tunnel address %s), which is not alive now: give this one a name of its own with --host; or, if that machine will not come back, start once with --take-host, which releases its endpoints",
		old.Name, who, old.Control, old.VTEP)}
}

// mayRead refuses a host on which a later agent has been.
func mayRead(old model.Host) error {
	if old.Format <= model.HostFormat {
		return nil
	}
	return takenError{text: fmt.Sprintf(
		"host %q was run by a newer netplugin: its record in the store is of format %d, and this one knows up to %d: start the newer one again; or, to go back, end all containers, take the newer one off with its --uninstall, and have the cluster forget the host with 'netctl host rm %s'",
		old.Name, old.Format, model.HostFormat, old.Name)}
}

// refuseEarlier looks for a living agent of the same name from before there
// were claims: it is known by its registration only.
func (a *Agent) refuseEarlier(ctx context.Context) error {
	services, err := cluster.Services(ctx, a.cfg.Store, cluster.ServiceAgent)
	if err != nil {
		return err
	}
	for _, s := range services {
		if s.Hostname == string(a.cfg.Host) && s.Installation == "" && s.HostAddr != a.cfg.VTEP.String() {
			return takenError{former: true, text: fmt.Sprintf(
				"the host name %q is taken: a netplugin of an earlier version is alive under it, tunnel address %s; give this one a name of its own with --host", s.Hostname, s.HostAddr)}
		}
	}
	return nil
}

// named tells whether the host's name is this agent's.
func (a *Agent) named() error {
	n, _ := a.naming.Get()
	return n.err()
}

// mine tells whether netmaster may be asked to create or release endpoints of
// this host: not under a name that is not ours, and not in a store that is not
// followed.
func (a *Agent) mine() error {
	if err := a.named(); err != nil {
		return err
	}
	return a.cluster.MayWrite()
}

// awaitName waits until the name is claimed, or ctx ends.
func (a *Agent) awaitName(ctx context.Context) {
	_ = a.naming.Until(ctx, func(n naming) bool { return n.held || n.why != "" })
}

// writeStatus puts the host's status into the store.
func (a *Agent) writeStatus(ctx context.Context, now tables.HostStatus) error {
	_, err := a.cfg.Store.Update(ctx, func(tx store.Tx) error { return tables.HostStatuses.Put(tx, now) })
	return err
}
