package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// HostLeases keeps in the store, for agents, which installation has a host's name, where
// the host is registered, its addresses and its status.
type HostLeases struct {
	commits     *Committer
	hostView    *HostView
	ownerView   *AddressOwnerView
	networkView *NetworkView
	heartbeats  *liveness.Heartbeats
	hosts       *Hosts
}

// A host's name belongs to one installation while that lives. Agents tell who
// they are every few seconds, and netmasters keep it in the store for them: the
// claim to the name, the host's record, its registration, where it listens.

// HostReport is what an agent has kept.
type HostReport struct {
	model.Host
	Boot      string // of the host's kernel
	Since     string // RFC 3339, by the host's clock: when the agent began
	Version   string // of the agent
	VXLANPort int
	Listening []netip.AddrPort // where it answers beyond its host
	TakeHost  bool             // take the name over from an installation that is not alive
	Look      bool             // see whether all of it is in the store
}

// lease is the report as the lease on the host's name.
func (r *HostReport) lease() tables.HostLease {
	at := make([]string, 0, len(r.Listening))
	for _, ap := range r.Listening {
		at = append(at, ap.String())
	}
	return tables.HostLease{
		Host: r.Name, Installation: r.Installation, Boot: r.Boot, Control: r.Control, VTEP: r.VTEP, Since: r.Since,
		VXLANPort: r.VXLANPort, Listening: strings.Join(at, ","), Kept: true,
	}
}

// registration is where a claim's host is registered.
func registration(c tables.HostLease, version string) cluster.Service {
	return cluster.Service{
		ServiceName: cluster.ServiceAgent, Version: version, HostAddr: c.VTEP.String(),
		Port: c.VXLANPort, Hostname: string(c.Host), Installation: c.Installation,
	}
}

// LeaseTakenError says that a name, or a tunnel's address, is not for who asked: mostly,
// since somebody else has it.
type LeaseTakenError struct {
	Text     string
	Previous bool // it may be a former run of this very installation, which will count as away soon
}

func (t LeaseTakenError) Error() string { return t.Text }

// LeaseResult is what came of RenewHost.
type LeaseResult struct {
	Wrote    string // what was missing or wrong in the store, and was written
	Previous string // the installation that had the name before, when it was another
	// Enrolled says which addresses count as the host's from now on; empty = no other ones.
	Enrolled string
}

// RenewHost keeps a host's claim, record and registrations in the store, and notes
// that its agent lives. It fails with Taken when the name is another's.
func (hl *HostLeases) RenewHost(ctx context.Context, a Actor, r HostReport) (result LeaseResult, err error) {
	if err := a.mayReport(r.Name); err != nil {
		return result, err
	}
	if err := hl.heartbeats.LeaderLost(); err != nil {
		return result, err
	}
	if len(r.Listening) > MaxListening {
		return result, model.InvalidField("listening", len(r.Listening), fmt.Sprintf("must be at most %d addresses", MaxListening))
	}
	// Other hosts would take a loopback address for their own.
	r.Listening = slices.DeleteFunc(slices.Clone(r.Listening), func(at netip.AddrPort) bool { return !at.Addr().IsGlobalUnicast() })
	reported := r.lease()
	if hl.heartbeats.Beat(reported) && !r.Look {
		return result, nil
	}
	var was, lease tables.HostLease
	said := r
	err = hl.commits.report(ctx, a, func(tx store.Tx) error {
		result, r = LeaseResult{}, said
		if err := tx.Prefetch(tables.HostLeases.Key(r.Name), tables.Hosts.Key(r.Name), tables.HostAddressRows.Key(tables.HostAddressesKey{Host: r.Name})); err != nil {
			return err
		}
		claimed, err := tables.HostLeases.Find(tx, r.Name)
		if err != nil {
			return err
		}
		row, err := tables.Hosts.Find(tx, r.Name)
		if err != nil {
			return err
		}
		lease = r.lease()
		service := registration(lease, r.Version)
		registered, there, err := service.Find(tx)
		if err != nil {
			return err
		}
		if claimed.Exists() {
			err = mayReplace(claimed.Value, lease)
		} else if err = earlier(tx, lease); err == nil && row.Exists() {
			result.Previous, err = maySucceed(row.Value, r)
		}
		if err != nil {
			return err
		}
		if other, is := hl.sameButForCase(r.Name); is && !row.Exists() {
			return LeaseTakenError{Text: fmt.Sprintf("the host name %q differs from host %q by case only, and both would be one name in DNS and in certificates: give this one another name with --host, or, if it is the same machine, the other's name; 'netctl host rm %s' removes a host that is gone", r.Name, other, other)}
		}
		if row.Exists() && row.Value.Format > r.Format {
			return LeaseTakenError{Text: NewerFormat(row.Value, r.Format)}
		}
		if there && registered.Hostname != service.Hostname && registered.Installation != service.Installation {
			return LeaseTakenError{Previous: registered.Installation == "", Text: fmt.Sprintf(
				"tunnel address %s belongs to host %q, which is alive: two hosts cannot share one; give this one its own with --vtep-ip", service.HostAddr, registered.Hostname)}
		}
		enrolled, err := hl.enrollAddresses(a, tx, &r, row)
		if err != nil {
			return err
		}
		result.Enrolled = enrolled.describe()
		was, lease = claimed.Value, r.lease()
		return result.write(tx, was, lease, row, registered, service, r)
	})
	if err == nil {
		err = hl.keepListening(ctx, a, was, lease, r.Version)
	}
	if err != nil {
		return result, err
	}
	hl.heartbeats.Add(reported)
	if result.Previous != "" {
		hl.commits.log.Warn("a host's name was taken over from another installation, which is gone", "host", string(r.Name), "previous", result.Previous, "now", r.Installation)
	}
	return result, nil
}

// write writes what is missing or wrong, and notes it.
func (k *LeaseResult) write(tx store.Tx, was, lease tables.HostLease, row tables.Row[model.Host], registered, service cluster.Service, r HostReport) error {
	var wrote []string
	if was != lease {
		wrote = append(wrote, "lease on the host's name")
		tables.AwayTimes.Delete(tx, tables.AwayTimeKey{Host: lease.Host})
		if err := tables.HostLeases.Put(tx, lease); err != nil {
			return err
		}
	}
	registered.TTL = 0
	if registered != service || was != lease { // an earlier agent's goes with its lease
		wrote = append(wrote, "registration of "+cluster.ServiceAgent)
		if err := service.Put(tx, nil); err != nil {
			return err
		}
	}
	if was.Listening != lease.Listening {
		wrote = append(wrote, listeningText(lease))
	}
	if was.VTEP != lease.VTEP || was.VXLANPort != lease.VXLANPort {
		if was.Kept {
			registration(was, "").Delete(tx)
		}
	}
	if !row.Exists() || row.Value != r.Host {
		wrote = append(wrote, "host record")
		if err := tables.Hosts.Put(tx, r.Host); err != nil {
			return err
		}
	}
	k.Wrote = strings.Join(wrote, ", ")
	return nil
}

// sameButForCase returns another host whose name differs from one by case alone.
func (hl *HostLeases) sameButForCase(name model.HostName) (model.HostName, bool) {
	for _, h := range hl.hostView.List() {
		if h.Name != name && strings.EqualFold(string(h.Name), string(name)) {
			return h.Name, true
		}
	}
	return "", false
}

// mayReplace decides over a claim that stands.
func mayReplace(old, now tables.HostLease) error {
	if old.Installation == now.Installation {
		if old.Boot == now.Boot && old.Control == now.Control && old.VTEP == now.VTEP {
			return nil // a former run there: the state directory's lock holds that it has ended
		}
		return LeaseTakenError{Previous: true, Text: fmt.Sprintf(
			"host %q is alive at %s, since %s, with the installation %s of this state directory: one of them is a copy of the other, such as a cloned machine; on the copy remove the state directory and give it its own name with --host",
			old.Host, old.Control, old.Since, old.Installation)}
	}
	return LeaseTakenError{Text: fmt.Sprintf(
		"the host name %q is in use: another installation (%s) is alive under it at %s, tunnel address %s, since %s; give this one its own name with --host",
		old.Host, old.Installation, old.Control, old.VTEP, old.Since)}
}

// maySucceed decides over the record of a host that is not alive: it belongs to this
// installation if it says so, or if the machine's address is the record's, which two
// machines cannot have. It returns the previous installation.
func maySucceed(old model.Host, now HostReport) (previous string, err error) {
	same := func(x, y netip.Addr) bool { return x == y && x.IsValid() && !x.IsLoopback() }
	switch {
	case old.Installation == now.Installation:
		return "", nil
	case same(old.Control, now.Control), same(old.VTEP, now.VTEP), now.TakeHost:
		if old.Installation == "" {
			return "an earlier version", nil
		}
		return old.Installation, nil
	}
	who := old.Installation
	if who == "" {
		who = "of an earlier version"
	}
	return "", LeaseTakenError{Text: fmt.Sprintf(
		"the host name %q belongs to another installation (%s, at %s, tunnel address %s), which is not alive now: give this one its own name with --host; or, if that machine will not come back, start once with --take-host, which releases its endpoints",
		old.Name, who, old.Control, old.VTEP)}
}

// earlier looks for a living agent of the same name from before there were
// claims: it is known by its registration only.
func earlier(tx store.Tx, now tables.HostLease) error {
	registered, err := tx.Range(cluster.AgentScope, 0)
	if err != nil {
		return err
	}
	for _, kv := range registered {
		s, ok := cluster.DecodeAgent(kv)
		if ok && s.Hostname == string(now.Host) && s.Installation == "" && s.HostAddr != now.VTEP.String() {
			return LeaseTakenError{Previous: true, Text: fmt.Sprintf(
				"the host name %q is in use: a netplugin of an earlier version is alive under it, tunnel address %s; give this one its own name with --host", s.Hostname, s.HostAddr)}
		}
	}
	return nil
}

// NewerFormat says why an agent must not begin where a later one has been.
func NewerFormat(old model.Host, known int) string {
	return fmt.Sprintf(
		"host %q was run by a newer netplugin: its record in the store has format %d, and this one knows up to %d: start the newer one again; or, to downgrade, end all containers, uninstall the newer one with its --uninstall, and remove the host with 'netctl host rm %s'",
		old.Name, old.Format, known, old.Name)
}

// ReleaseHost ends a host's claim, if it is the installation's: its agent ends, and
// the host counts as away at once.
func (hl *HostLeases) ReleaseHost(ctx context.Context, a Actor, name model.HostName, installation string) error {
	if err := a.mayReport(name); err != nil {
		return err
	}
	kv, err := hl.commits.store.Get(ctx, tables.HostLeases.Key(name))
	if err != nil || !kv.Exists() {
		return err
	}
	row, err := tables.HostLeases.Decode(kv)
	if err != nil || row.Value.Installation != installation {
		return err
	}
	hl.heartbeats.Forget(name)
	return hl.deleteLease(ctx, a, row.Value)
}

// deleteLease ends a claim, unless it is another one by now, and the
// registrations that are kept with it.
func (hl *HostLeases) deleteLease(ctx context.Context, a Actor, lease tables.HostLease) error {
	if lease.Kept {
		if err := hl.forgetListening(ctx, a, listening(lease, "")); err != nil {
			return err
		}
	}
	return hl.commits.report(ctx, a, func(tx store.Tx) error {
		row, err := tables.HostLeases.Find(tx, lease.Host)
		if err != nil || !row.Exists() || row.Value != lease {
			return err
		}
		tables.HostLeases.Delete(tx, lease.Host)
		if lease.Kept {
			registration(lease, "").Delete(tx)
		}
		return nil
	})
}

// PutHostStatus keeps what an agent observes, if the host's name is its
// installation's; otherwise model.ErrConflict. It returns in words what is different from
// before, but for what changes all the time; empty = nothing.
func (hl *HostLeases) PutHostStatus(ctx context.Context, a Actor, installation string, now HostStatus) (changed string, err error) {
	if err := a.mayReport(now.Host); err != nil {
		return "", err
	}
	err = hl.commits.report(ctx, a, func(tx store.Tx) error {
		if err := tx.Prefetch(tables.HostLeases.Key(now.Host), tables.HostStatuses.Key(now.Host)); err != nil {
			return err
		}
		row, err := tables.HostLeases.Find(tx, now.Host)
		if err != nil {
			return err
		}
		if row.Value.Installation != installation {
			return model.Errorf(model.ErrConflict, "report the status of host %q: its name is not leased to installation %q", now.Host, installation)
		}
		was, err := tables.HostStatuses.Find(tx, now.Host)
		if err != nil {
			return err
		}
		changed = statusChange(was.Value, now)
		return tables.HostStatuses.Put(tx, now)
	})
	if err != nil && !errors.Is(err, model.ErrConflict) {
		return "", fmt.Errorf("report the status of host %q: %w", now.Host, err)
	}
	return changed, err
}

// statusChange names the parts of a status that people act on and that are different.
func statusChange(was, now HostStatus) string {
	var parts []string
	for _, x := range []struct {
		name string
		same bool
	}{
		{"driver", was.Driver == now.Driver},
		{"version", was.Version == now.Version},
		{"ready", was.Ready == now.Ready},
		{"error", was.Error == now.Error},
		{"problems", maps.Equal(was.Problems, now.Problems)},
		{"conditions", slices.Equal(was.Conditions, now.Conditions)},
	} {
		if !x.same {
			parts = append(parts, x.name)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "changed: " + strings.Join(parts, ", ")
}

const (
	// expiryInterval is how often hosts are counted out.
	expiryInterval = time.Second
	// expiryPause is a gap between two looks after which nothing may have been heard
	// either: the process, or its machine, stood still.
	expiryPause = 3 * expiryInterval
)

// ExpireHosts ends, for the leader, the leases and registrations of hosts that sent no
// heartbeat to any netmaster for cluster.ServiceTTL, until ctx ends or another leads; then
// it returns store.ErrFenced. It counts from its own start, and again from zero after this
// process was suspended: time without a listener does not count.
func (hl *HostLeases) ExpireHosts(ctx context.Context, l Leader) error {
	var mu sync.Mutex
	leases, seen := map[string]tables.HostLease{}, map[string]time.Time{}
	var following sync.WaitGroup
	defer following.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	following.Go(func() {
		err := hl.commits.store.Mirror(ctx, []string{tables.HostLeasesScope}, func(b store.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			if b.Snapshot {
				clear(leases)
			}
			for _, e := range b.Events {
				delete(leases, e.KV.Key)
				delete(seen, e.KV.Key)
				if row, err := tables.HostLeases.Decode(e.KV); err == nil && !e.Deleted() && row.Value.Kept {
					leases[e.KV.Key], seen[e.KV.Key] = row.Value, time.Now()
				}
			}
			return nil
		})
		if ctx.Err() == nil {
			hl.commits.log.Error("missing heartbeats are not detected any more", "error", err)
		}
	})
	began := time.Now()
	tick := time.NewTicker(expiryInterval)
	defer tick.Stop()
	for last := began; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		if now.Sub(last) > expiryPause {
			began = now
		}
		last = now
		mu.Lock()
		var expired []tables.HostLease
		for key, lease := range leases {
			heard := hl.heartbeats.Last(lease.Host)
			for _, t := range []time.Time{began, seen[key]} {
				if t.After(heard) {
					heard = t
				}
			}
			if now.Sub(heard) >= cluster.ServiceTTL-expiryInterval {
				expired = append(expired, lease)
			}
		}
		mu.Unlock()
		for _, lease := range expired {
			err := hl.deleteLease(ctx, l.Actor(), lease)
			switch {
			case ctx.Err() != nil:
				return nil
			case errors.Is(err, store.ErrFenced):
				return err
			case err != nil:
				hl.commits.log.Debug("a host without heartbeats is not away yet", "host", string(lease.Host), "error", err)
			}
		}
	}
}
