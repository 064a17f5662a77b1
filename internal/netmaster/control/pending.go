package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Pending tries changes until they are confirmed or reverted. It has no state: what waits
// is in the store.
type Pending struct {
	commits     *Committer
	pendingView *PendingView
}

// A change that waits to be confirmed (docs/adr/0027-commit-confirmed.md) is tried in a
// transaction that commits nothing. What that would have written becomes Trials, which
// hosts take for a time in place of what is in the tables, and is locked meanwhile. The
// tables have the old until Confirm makes the change like any other.

// Times that a change may wait to be confirmed.
const (
	MinConfirm = 10 * time.Second
	MaxConfirm = time.Hour
)

// Waiting is a change that waits to be confirmed.
type Waiting struct {
	tables.Pending
	Left time.Duration // 0 = its time has gone
}

// Apply has hosts take changes, which must fit one transaction, for a time; objects are
// the same changes as Confirm will be given them. Settings, policies with their rules
// (new ones, too), and existing groups and networks can be tried. Its errors are those of
// Apply; model.ErrConflict too when something of it waits already, and when a host
// does not know how to go back.
func (pe *Pending) Apply(ctx context.Context, a Actor, changes []Change, objects []json.RawMessage, within time.Duration) (Waiting, store.Revision, error) {
	if within < MinConfirm || within > MaxConfirm {
		return Waiting{}, 0, model.InvalidField("within", within, fmt.Sprintf("must be between %v and %v", MinConfirm, MaxConfirm))
	}
	v, err := pe.commits.View(ctx)
	if err != nil {
		return Waiting{}, 0, err
	}
	if old := v.Hosts.hostsWithoutConfirm(); len(old) > 0 {
		return Waiting{}, 0, model.Errorf(model.ErrConflict, "hosts %s run a version of netplugin that does not roll back by itself: upgrade them, or remove the ones that are gone (netctl host rm)", strings.Join(old, ", "))
	}
	for tries := 0; ; tries++ {
		p, rev, err := pe.applyOnce(ctx, a, changes, objects, within)
		if errors.Is(err, errMoved) && tries < maxSettled {
			continue
		}
		if err != nil {
			return Waiting{}, 0, err
		}
		if _, err := pe.commits.View(ctx); err != nil { // from here on this process counts its time
			pe.commits.log.Debug("an unconfirmed change is not in the mirror yet", "change", p.ID, "error", err)
		}
		pe.commits.log.Warn("a change is applied and waits to be confirmed", "change", p.ID, "within", within, "objects", len(objects))
		return Waiting{p, within}, rev, nil
	}
}

// errMoved: something was written between the trial and what became of it.
var errMoved = model.Errorf(model.ErrConflict, "another client changes the same objects; try again")

func (pe *Pending) applyOnce(ctx context.Context, a Actor, changes []Change, objects []json.RawMessage, within time.Duration) (tables.Pending, store.Revision, error) {
	steps := ordered(changes)
	cl := pe.commits.newAllocator(a)
	var wrote map[string]*rowWrite
	_, err := pe.commits.as(a).updateBy(ctx, "try", pe.commits.follow.UpdateFresh, func(tx store.Tx) error {
		cl.rewind()
		w := &writeRecorder{Tx: tx, of: map[string]*rowWrite{}}
		if err := tryAll(ctx, w, cl, steps, nil, false); err != nil {
			return err
		}
		if s, err := pe.commits.checkLimits(steps); err != nil {
			return &ChangeError{s.index, fmt.Errorf("%s: %w", s.what, err)}
		}
		wrote = w.of
		if err := w.failed; err != nil {
			return err
		}
		return errDryRun
	})
	cl.releaseAll(0)
	if !errors.Is(err, errDryRun) {
		return tables.Pending{}, 0, unwrapChange(err)
	}
	p := tables.Pending{ID: strings.ToLower(rand.Text()[:8]), Began: pe.commits.now().UTC().Round(0), Within: within, Objects: objects}
	trials, err := hostChangesOf(&p, wrote)
	if err != nil {
		return p, 0, err
	}
	u := pe.commits.as(a)
	u.confirms = p.ID
	rev, err := u.updateOnce(ctx, "try", pe.commits.follow.Update, func(tx store.Tx) error {
		if err := checkUnlocked(tx, p.Locks, ""); err != nil {
			return err
		}
		for key, w := range wrote {
			if now, err := tx.Get(key); err != nil || now.Mod != w.old.Mod {
				return errors.Join(err, errMoved)
			}
		}
		if err := tx.Observe(tables.PendingScope); err != nil {
			return err
		}
		for _, t := range p.Tenants {
			if t == "" {
				continue
			}
			if _, err := tables.Tenants.Get(tx, t); err != nil {
				return err
			}
		}
		for _, lock := range p.Locks {
			if strings.HasSuffix(lock, "/") {
				continue
			}
			now, err := tx.Get(lock)
			if err != nil {
				return err
			}
			if strings.Contains(lock, "/replacements/") && now.Exists() {
				return errMoved
			}
			if now.Exists() {
				tx.Put(lock, now.Value, nil)
			}
		}
		for key, w := range wrote {
			if w.old.Exists() && !slices.Contains(p.Locks, key) { // a rule
				tx.Put(key, w.old.Value, nil)
			}
		}
		if err := tables.Pendings.Create(tx, p); err != nil {
			return err
		}
		for _, t := range trials {
			if err := tables.TrialsOf(t.Tenant).Create(tx, t); err != nil {
				return err
			}
		}
		return nil
	})
	return p, rev, err
}

// hostChangesOf makes what hosts take of what was written, and enters in p what it locks.
func hostChangesOf(p *tables.Pending, wrote map[string]*rowWrite) ([]tables.Trial, error) {
	trials := map[model.TenantName]*tables.Trial{}
	for _, key := range slices.Sorted(maps.Keys(wrote)) {
		w := wrote[key]
		if strings.HasPrefix(key, tables.AllocPrefix) { // for netmasters only, and done when it is confirmed
			delete(wrote, key)
			continue
		}
		row := tables.TrialRow{Key: key, Value: w.value}
		ch, err := row.Change()
		if err != nil {
			return nil, err
		}
		var tenant model.TenantName
		fresh := !w.old.Exists()
		switch k := ch.Key.(type) {
		case tables.GlobalKey:
			now, _ := ch.Value.(model.Global)
			if was, err := tables.Globals.Decode(w.old); err != nil || !slices.Equal(was.Value.Filter(), now.Filter()) {
				return nil, errors.Join(err, model.Errorf(model.ErrInvalid, "generatedLabels cannot be changed with --confirm-within, since endpoints would get other identities; change them without"))
			}
		case model.PolicyKey:
			tenant, fresh = k.Tenant, false
		case model.RuleKey:
			tenant, fresh = k.Tenant, false
		case model.GroupKey:
			tenant = k.Tenant
		case model.NetworkKey:
			tenant = k.Tenant
		}
		locks := tables.LockKeys(ch.Key)
		if fresh || locks == nil {
			return nil, model.Errorf(model.ErrInvalid, "only settings, policies with their rules, and existing groups and networks can be changed with --confirm-within, and this would write %s: make it first, without", strings.TrimPrefix(key, tables.StatePrefix))
		}
		p.Locks = append(p.Locks, locks...)
		if trials[tenant] == nil {
			trials[tenant] = &tables.Trial{ID: p.ID, Tenant: tenant, Within: p.Within}
		}
		trials[tenant].Rows = append(trials[tenant].Rows, row)
	}
	slices.Sort(p.Locks)
	p.Locks = slices.Compact(p.Locks)
	var out []tables.Trial
	for _, t := range slices.Sorted(maps.Keys(trials)) {
		p.Tenants, out = append(p.Tenants, t), append(out, *trials[t])
	}
	if out == nil {
		return nil, model.Errorf(model.ErrInvalid, "nothing would change: there is nothing to confirm")
	}
	return out, nil
}

// rowWrite is what a transaction makes of a row.
type rowWrite struct {
	old   store.KV
	value []byte // nil = none
}

// writeRecorder is a transaction that notes what is written.
type writeRecorder struct {
	store.Tx
	of     map[string]*rowWrite
	failed error
}

func (w *writeRecorder) note(key string, value []byte) {
	if x := w.of[key]; x != nil {
		x.value = value
		return
	}
	old, err := w.Peek(key)
	if err != nil {
		w.failed = err
	}
	w.of[key] = &rowWrite{old, value}
}

func (w *writeRecorder) Put(key string, value []byte, lease store.Session) {
	w.note(key, value)
	w.Tx.Put(key, value, lease)
}

func (w *writeRecorder) Create(key string, value []byte, lease store.Session) error {
	w.note(key, value)
	return w.Tx.Create(key, value, lease)
}

func (w *writeRecorder) Delete(key string) {
	w.note(key, nil)
	w.Tx.Delete(key)
}

func (w *writeRecorder) DeletePrefix(prefix string) {
	w.failed = model.Errorf(model.ErrInvalid, "whole policies cannot be deleted with --confirm-within")
	w.Tx.DeletePrefix(prefix)
}

// Confirm makes a change that waits, as read makes it of its objects, like Apply, in one
// transaction. It is model.ErrNotFound when it does not wait any more, and
// model.ErrConflict when its time has gone by this process' clock; errors of the change
// itself leave it waiting.
func (pe *Pending) Confirm(ctx context.Context, a Actor, id string, read func([]json.RawMessage) ([]Change, error)) (store.Revision, error) {
	v, err := pe.commits.View(ctx)
	if err != nil {
		return 0, err
	}
	what := fmt.Sprintf("confirm change %q", id)
	u, cl := pe.commits.as(a), pe.commits.newAllocator(a)
	u.confirms = id
	rev, err := u.updateBy(ctx, what, pe.commits.follow.UpdateFresh, func(tx store.Tx) error {
		cl.rewind()
		p, err := takePending(tx, id)
		if err != nil {
			return err
		}
		if v.Pending.leftOf(p) <= 0 {
			return model.Errorf(model.ErrConflict, "its time is up, and hosts have rolled it back: make the change again")
		}
		changes, err := read(p.Objects)
		if err != nil {
			return err
		}
		steps := ordered(changes)
		if err := tryAll(ctx, tx, cl, steps, nil, false); err != nil {
			return unwrapChange(err)
		}
		if s, err := pe.commits.checkLimits(steps); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		return nil
	})
	cl.releaseAll(rev)
	if err == nil {
		pe.commits.log.Info("a change is confirmed", "change", id)
	}
	return rev, err
}

// Revert takes a change that waits back. It is model.ErrNotFound when it does not wait
// any more.
func (pe *Pending) Revert(ctx context.Context, a Actor, id string) (store.Revision, error) {
	return pe.revert(ctx, a, id, "asked for")
}

func (pe *Pending) revert(ctx context.Context, a Actor, id, why string) (store.Revision, error) {
	rev, err := pe.commits.update(ctx, a, fmt.Sprintf("take change %q back", id), func(tx store.Tx) error {
		_, err := takePending(tx, id)
		return err
	})
	if err == nil {
		pe.commits.log.Warn("a change is reverted: the previous state is in force", "change", id, "why", why)
	}
	return rev, err
}

// takePending takes a change that waits away, with its Trials.
func takePending(tx store.Tx, id string) (tables.Pending, error) {
	row, err := tables.Pendings.Find(tx, tables.PendingKey(id))
	if err == nil && !row.Exists() {
		err = model.Errorf(model.ErrNotFound, "there is no unconfirmed change %q: its time is up, or it was confirmed or reverted", id)
	}
	if err != nil {
		return row.Value, err
	}
	tables.Pendings.Delete(tx, tables.PendingKey(id))
	for _, t := range row.Value.Tenants {
		tables.TrialsOf(t).Delete(tx, tables.TrialKey{Tenant: t, ID: id})
	}
	return row.Value, nil
}

// EndPending is the leader's task of rolling back changes that were not confirmed in time,
// until ctx ends or the leadership is lost.
func (pe *Pending) EndPending(ctx context.Context, l Leader, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		for _, w := range pe.pendingView.Waiting() {
			if w.Left > 0 {
				continue
			}
			_, err := pe.revert(ctx, l.Actor(), w.ID, "not confirmed in time")
			switch {
			case errors.Is(err, store.ErrFenced):
				return err
			case err != nil && !errors.Is(err, model.ErrNotFound) && ctx.Err() == nil:
				pe.commits.log.Warn("a change that was not confirmed in time is not reverted yet", "change", w.ID, "error", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
