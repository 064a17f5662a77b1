package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Incarnation says which store the cluster has.
type Incarnation = store.Incarnation

// identities follows which store this netmaster has met.
type identities struct {
	mu  sync.Mutex
	now store.Incarnation
	rev store.Revision
	at  string // its Place
	met bool

	trouble storeTrouble
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

// apply enters a batch into the view, and tells of a store that is not the one
// it was: who operates the cluster has to hear of it before anybody else.
func (c *Controller) apply(b store.Batch) error {
	if err := c.view.apply(b); err != nil {
		return err
	}
	c.relay.Apply(b)
	i := &c.identities
	i.mu.Lock()
	defer i.mu.Unlock()
	if b.Listed && i.met {
		now := c.opts.Now()
		i.trouble.follows(i.now, b.Store)
		switch {
		case b.Store.ID == "":
			c.log.Error("the store has no identity: it is empty, or another one; a new cluster begins in it, and hosts keep what they have until the right store is back",
				"was", i.now.String(), "revision", int64(b.Revision))
			c.renew.Ring()
			i.trouble.meet("the store was empty, or another one without identity, and a new cluster began in it", now, i)
		case i.now.ID != "" && b.Store.ID != i.now.ID:
			c.log.Error("the store is another one; hosts with containers keep what they have until the right store is back or this one has all of theirs", "was", i.now.String(), "now", b.Store.String())
			i.trouble.meet("the store was another one than before", now, i)
		case b.Store.Epoch > i.now.Epoch && i.now.ID != "":
			c.log.Warn("the store was restored from a backup", "was", i.now.String(), "now", b.Store.String())
		case b.Revision < i.rev, b.Older && i.trouble.was.ID == "":
			c.log.Error("the store has gone back to an older state; hosts with containers keep what they have until the right one is back or this one has all of theirs",
				"was", int64(i.rev), "now", int64(b.Revision))
			i.trouble.older("the store was in an older state than before", now)
		}
		i.trouble.listed(b)
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
				c.log.Error("somebody has deleted the store's identity; it is written again", "store", i.now.String())
				c.renew.Ring()
			default:
				i.trouble.follows(i.now, row.Value)
				i.now = row.Value
			}
		}
	}
	i.met = i.met || i.now.ID != ""
	return nil
}

// renewEmpty creates the defaults in a store that was replaced by an empty one
// under a netmaster that goes on, until ctx ends.
func (c *Controller) renewEmpty(ctx context.Context) error {
	for {
		select {
		case <-c.renew:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := c.untilDone(ctx, c.createDefaults); err != nil {
			return err
		}
	}
}

// identifyStore gives a store that has no identity one, in the transaction that
// creates its defaults. A cluster that this netmaster has followed without a gap gets back
// the one that it had.
func (c *Controller) identifyStore(tx store.Tx) error {
	row, err := tables.Incarnations.Find(tx, tables.IncarnationKey{})
	if err != nil || row.Exists() {
		return err
	}
	settings, err := tables.Globals.Find(tx, tables.GlobalKey{})
	if err != nil {
		return err
	}
	c.identities.mu.Lock()
	had := c.identities.now
	c.identities.mu.Unlock()
	switch {
	case settings.Exists() && had.ID != "":
		return tables.Incarnations.Create(tx, had)
	case settings.Exists():
		c.log.Warn("the store has a cluster without an identity, which gets one now; if somebody has deleted it, hosts keep what they have until 'netctl store adopt'")
	}
	return tables.Incarnations.Create(tx, store.Incarnation{ID: uuid.NewString(), Epoch: 1, Since: c.opts.Now().UTC().Format(time.RFC3339)})
}

// StoreIdentity returns which store this is.
func (c *Controller) StoreIdentity(ctx context.Context) (store.Incarnation, store.Revision, error) {
	if err := c.await(ctx); err != nil {
		return store.Incarnation{}, 0, err
	}
	kv, err := c.store.Get(ctx, store.StoreIdentityKey)
	if err != nil {
		return store.Incarnation{}, 0, err
	}
	row, err := tables.Incarnations.Decode(kv)
	if err == nil && !row.Exists() {
		err = model.Errorf(model.ErrUnavailable, "the store has no identity: it is empty, and about to become a new cluster's")
	}
	if err != nil {
		return store.Incarnation{}, 0, err
	}
	rev, err := c.store.CommitRevision(ctx)
	return row.Value, rev, err
}

// AdoptStore tells hosts that keep the picture of another store, or of a later
// state of this one, to follow this one: it becomes the successor of all stores
// that hosts say they follow, in a new epoch. It returns the identity that the
// store has then, and the commit's revision. When no host says that it keeps
// another picture, it is ErrConflict: hosts have first to meet the store.
// Where hosts know a later state, so that this one was restored, the tokens that it has
// end unless keepTokens: some may have been revoked after it. ended tells of that.
func (c *Controller) AdoptStore(ctx context.Context, keepTokens bool) (inc store.Incarnation, ended bool, _ store.Revision, err error) {
	rev, err := c.update(ctx, "adopt the store", func(tx store.Tx) (err error) {
		if inc, err = tables.Incarnations.Get(tx, tables.IncarnationKey{}); err != nil {
			return err
		}
		hosts, err := tables.Hosts.List(tx, tables.HostsScope)
		if err != nil {
			return err
		}
		was := inc.Mark()
		inc.Epoch = inc.Next(c.opts.Now())
		inc.Since = c.opts.Now().UTC().Format(time.RFC3339)
		if !slices.ContainsFunc(hosts, func(h model.Host) bool { return h.Store != "" && h.Store != was }) {
			return model.Errorf(model.ErrConflict, "no host says that it keeps the picture of another store, or of a later state of this one; a host says so when it has met this one: try again in some seconds; 'netctl status' shows the hosts")
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
	c.log.Warn("hosts are told to follow this store", "store", inc.String(), "insteadOf", inc.Replaces, "tokensEnded", ended)
	return inc, ended, rev, nil
}

// Backup begins a snapshot of the store, if that kind has them.
func (c *Controller) Backup(ctx context.Context) (store.Snapshot, error) {
	s, ok := c.store.(store.Snapshotter)
	if !ok {
		return nil, model.Errorf(model.ErrInvalid, "back up: the cluster's state is in a store that netmaster cannot copy; of a Consul 'consul snapshot save' makes a backup")
	}
	snap, err := s.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("back up: %w", err)
	}
	return snap, nil
}
