package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// StoreIdentity follows which store this netmaster has met, gives a store without an
// identity one, and begins a cluster in an empty one. Controller hands it each batch of
// the view.
type StoreIdentity struct {
	commits    *Committer
	identities identities
	initial    model.Global // see Options.Initial
	renew      waiting.Bell // the store has lost its identity
}

// Incarnation says which store the cluster has.
type Incarnation = store.Incarnation

// identities follows which store this netmaster has met.
type identities struct {
	mu  sync.Mutex
	now store.Incarnation
	rev store.Revision
	at  string // its Place
	met bool

	trouble storeMismatch
}

// since is what the next list is judged by: the store as it was seen last, or, while it is
// not the one that it was, as that one was.
func (i *identities) since() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.trouble.was.ID != "" {
		return i.trouble.place
	}
	return i.at
}

// trackStore follows which store a batch is of, and tells of one that is not the one
// it was: who operates the cluster has to hear of it before anybody else.
func (si *StoreIdentity) trackStore(b store.Batch) {
	i := &si.identities
	i.mu.Lock()
	defer i.mu.Unlock()
	if b.Listed && i.met {
		now := si.commits.now()
		i.trouble.noteRestored(i.now, b.Store)
		switch {
		case b.Store.ID == "":
			si.commits.log.Error("the store has no identity: it is empty or another store; a new cluster begins in it, and hosts keep their desired state until the right store is back",
				"was", i.now.String(), "revision", int64(b.Revision))
			si.renew.Ring()
			i.trouble.noteOther("the store was empty, or another one without identity, and a new cluster began in it", now, i)
		case i.now.ID != "" && b.Store.ID != i.now.ID:
			si.commits.log.Error("the store's identity has changed: it is another store; hosts with containers keep their desired state until the right store is back or this one has all their endpoints", "was", i.now.String(), "now", b.Store.String())
			i.trouble.noteOther("the store was another one than before", now, i)
		case b.Store.Generation > i.now.Generation && i.now.ID != "":
			si.commits.log.Warn("the store was restored from a backup", "was", i.now.String(), "now", b.Store.String())
		case b.Revision < i.rev, b.Older && i.trouble.was.ID == "":
			si.commits.log.Error("the store is at an older state than before; hosts with containers keep their desired state until the right store is back or this one has all their endpoints",
				"was", int64(i.rev), "now", int64(b.Revision))
			i.trouble.noteOlder("the store was in an older state than before", now)
		}
		i.trouble.noteListed(b)
	}
	if b.Listed { // b.Store is as the newest list had it
		i.now = b.Store
	}
	i.rev, i.at = b.Revision, b.Place
	for _, ev := range b.Events {
		if ev.KV.Key == store.StoreIdentityKey && !b.Listed {
			row, err := tables.Incarnations.Decode(ev.KV)
			switch {
			case err != nil:
			case !row.Exists():
				si.commits.log.Error("the store's identity was deleted; it is written again", "store", i.now.String())
				si.renew.Ring()
			default:
				i.trouble.noteRestored(i.now, row.Value)
				i.now = row.Value
			}
		}
	}
	i.met = i.met || i.now.ID != ""
}

// renewEmpty creates the defaults in a store that was replaced by an empty one
// under a netmaster that goes on, until ctx ends.
func (si *StoreIdentity) renewEmpty(ctx context.Context) error {
	for {
		select {
		case <-si.renew:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := si.untilDone(ctx, si.createDefaults); err != nil {
			return err
		}
	}
}

// identifyStore gives a store that has no identity one, in the transaction that
// creates its defaults. A cluster that this netmaster has followed without a gap gets back
// the one that it had.
func (si *StoreIdentity) identifyStore(tx store.Tx) error {
	row, err := tables.Incarnations.Find(tx, tables.IncarnationKey{})
	if err != nil || row.Exists() {
		return err
	}
	settings, err := tables.Globals.Find(tx, tables.GlobalKey{})
	if err != nil {
		return err
	}
	si.identities.mu.Lock()
	had := si.identities.now
	si.identities.mu.Unlock()
	switch {
	case settings.Exists() && had.ID != "":
		return tables.Incarnations.Create(tx, had)
	case settings.Exists():
		si.commits.log.Warn("the store has a cluster without an identity, which gets one now; if the identity was deleted, hosts keep their desired state until 'netctl store adopt'")
	}
	return tables.Incarnations.Create(tx, store.Incarnation{ID: uuid.NewString(), Generation: 1, Since: si.commits.now().UTC().Format(time.RFC3339)})
}

// Identity returns which store this is.
func (si *StoreIdentity) Identity(ctx context.Context) (store.Incarnation, store.Revision, error) {
	if err := si.commits.await(ctx); err != nil {
		return store.Incarnation{}, 0, err
	}
	kv, err := si.commits.store.Get(ctx, store.StoreIdentityKey)
	if err != nil {
		return store.Incarnation{}, 0, err
	}
	row, err := tables.Incarnations.Decode(kv)
	if err == nil && !row.Exists() {
		err = model.Errorf(model.ErrUnavailable, "the store has no identity: it is empty, and a new cluster is about to begin in it")
	}
	if err != nil {
		return store.Incarnation{}, 0, err
	}
	rev, err := si.commits.store.CommitRevision(ctx)
	return row.Value, rev, err
}

// Adopt tells hosts that keep the desired state of another store, or of a later
// state of this one, to follow this one: it becomes the successor of all stores
// that hosts say they follow, in a new epoch. It returns the identity that the
// store has then, and the commit's revision. When no host says that it keeps
// another desired state, it is ErrConflict: hosts have first to meet the store.
// Where hosts know a later state, so that this one was restored, the tokens that it has
// end unless keepTokens: some may have been revoked after it. ended tells of that.
func (si *StoreIdentity) Adopt(ctx context.Context, a Actor, keepTokens bool) (inc store.Incarnation, ended bool, _ store.Revision, err error) {
	rev, err := si.commits.update(ctx, a, "adopt the store", func(tx store.Tx) (err error) {
		if inc, err = tables.Incarnations.Get(tx, tables.IncarnationKey{}); err != nil {
			return err
		}
		hosts, err := tables.Hosts.List(tx, tables.HostsScope)
		if err != nil {
			return err
		}
		was := inc.Mark()
		inc.Generation = inc.Next(si.commits.now())
		inc.Since = si.commits.now().UTC().Format(time.RFC3339)
		if !slices.ContainsFunc(hosts, func(h model.Host) bool { return h.Store != "" && h.Store != was }) {
			return model.Errorf(model.ErrConflict, "no host reports that it keeps the desired state of another store, or of a later state of this one; hosts report it once they have read this store: try again in some seconds; 'netctl status' shows the hosts")
		}
		inc.Replaces = slices.Clone(inc.Replaces)
		ended = false
		for _, h := range hosts {
			mark, held := strings.CutPrefix(h.Store, "held:")
			id, _, ok := strings.Cut(mark, "/")
			ended = ended || ok && held && id == inc.ID && !keepTokens
			if ok && id != inc.ID && !slices.Contains(inc.Replaces, id) {
				inc.Replaces = append(inc.Replaces, id)
			}
		}
		if ended {
			tx.DeletePrefix(store.AccessTokens)
		}
		return tables.Incarnations.Put(tx, inc)
	})
	if err != nil {
		return inc, false, 0, err
	}
	si.commits.log.Warn("hosts are asked to adopt this store", "store", inc.String(), "insteadOf", inc.Replaces, "tokensEnded", ended)
	return inc, ended, rev, nil
}

// Backup begins a snapshot of the store, if that kind has them.
func (si *StoreIdentity) Backup(ctx context.Context) (store.Snapshot, error) {
	s, ok := si.commits.store.(store.Snapshotter)
	if !ok {
		return nil, model.Errorf(model.ErrInvalid, "back up: the cluster's state is in an external store; back up a Consul with 'consul snapshot save'")
	}
	snap, err := s.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("back up: %w", err)
	}
	return snap, nil
}

// prepare creates the store's identity, the settings and the default tenant
// unless they are there, trying again while the store is away, and then lets use-cases begin.
func (si *StoreIdentity) prepare(ctx context.Context) error {
	if err := si.untilDone(ctx, si.createDefaults); err != nil {
		return err
	}
	close(si.commits.ready)
	return nil
}

// untilDone runs a transaction, again while the store is away, and waits until
// the view has it.
func (si *StoreIdentity) untilDone(ctx context.Context, fn func(store.Tx) error) error {
	retry := waiting.NewRetry(waiting.BackoffConfig{Base: 50 * time.Millisecond, Max: 2 * time.Second})
	for told := false; ; {
		rev, err := si.commits.store.Update(ctx, fn)
		if err == nil {
			err = si.commits.follow.WaitFor(ctx, rev)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, model.ErrUnavailable) && !errors.Is(err, model.ErrConflict):
			return fmt.Errorf("create the defaults: %w", err)
		case !told:
			si.commits.log.Warn("waiting for the store", "error", err)
			told = true
		}
		if err := retry.Pause(ctx); err != nil {
			return err
		}
	}
}

// createDefaults never changes what is there: a restart must not reset the
// settings (known fault 6).
func (si *StoreIdentity) createDefaults(tx store.Tx) error {
	if err := tx.Prefetch(tables.Globals.Key(tables.GlobalKey{}), tables.Tenants.Key(model.DefaultTenant), store.StoreIdentityKey); err != nil {
		return err
	}
	if err := si.identifyStore(tx); err != nil {
		return err
	}
	g, err := tables.Globals.Find(tx, tables.GlobalKey{})
	if err != nil {
		return err
	}
	if !g.Exists() {
		if err := tables.Globals.Create(tx, model.DefaultGlobal().Merge(si.initial)); err != nil {
			return err
		}
	}
	t, err := tables.Tenants.Find(tx, model.DefaultTenant)
	if err != nil || t.Exists() {
		return err
	}
	return tables.Tenants.Create(tx, model.Tenant{Name: model.DefaultTenant})
}
