package control

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Planned is a change of a list that is planned: one of the two.
type Planned struct {
	Put    *Change
	Delete *Deletion
}

// PlannedObject is an object of an orchestrator, with the changes that stand for it.
type PlannedObject struct {
	Kind, Key string
	Changes   []Planned // none = it changes nothing
	Warnings  []string  // what the object says and cannot be had
}

// Plan tries changes one after the other, neighbours that put objects in an order in which each
// finds what it refers to, and commits nothing. It returns what becomes of the objects that are
// put, and of all rows that hosts compile. Its errors are those of
// the changes: ChangeErrors that say which they are.
func (c *Committer) Plan(ctx context.Context, a Actor, changes []Planned) (out []Outcome, rows []analysis.PlannedRow, err error) {
	cl := c.newAllocator(a)
	_, err = c.as(a).updateOnce(ctx, "plan", c.follow.UpdateFresh, func(tx store.Tx) error {
		cl.rewind()
		out = make([]Outcome, len(changes))
		w := &planRecorder{writeRecorder{Tx: tx, of: map[string]*rowWrite{}}}
		if err := c.tryPlanned(ctx, w, a, cl, changes, out); err != nil {
			return err
		}
		rows = rows[:0]
		for _, write := range w.of {
			if w.failed == nil && (write.old.Exists() || write.value != nil) && string(write.old.Value) != string(write.value) {
				rows = append(rows, analysis.PlannedRow{Now: write.old, Then: write.value})
			}
		}
		return errors.Join(w.failed, errDryRun)
	})
	cl.releaseAll(0)
	if !errors.Is(err, errDryRun) {
		return nil, nil, unwrapChange(err)
	}
	return out, rows, nil
}

// tryPlanned runs changes in a transaction.
func (c *Committer) tryPlanned(ctx context.Context, tx store.Tx, a Actor, cl *allocator, changes []Planned, out []Outcome) error {
	for i := 0; i < len(changes); {
		if d := changes[i].Delete; d != nil {
			if err := d.do(ctx, &usecase{commits: c, actor: a, planned: tx}); err != nil {
				return ChangeErrors{{i, err}}
			}
			i++
			continue
		}
		puts, first := putsFrom(changes[i:]), i
		i += len(puts)
		steps := ordered(puts)
		err := tryAll(ctx, tx, cl, steps, out[first:i], true)
		if err == nil {
			if s, limit := c.checkLimits(steps); limit != nil {
				err = ChangeErrors{{s.index, fmt.Errorf("%s: %w", s.what, limit)}}
			}
		}
		if all, ok := errors.AsType[ChangeErrors](err); ok {
			for _, e := range all {
				e.Index += first
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ApplyPlanned makes changes in the order in which Plan tries them, and returns how many are made.
// Neighbours that put objects are applied together, as far as more lets them.
func (c *Committer) ApplyPlanned(ctx context.Context, a Actor, changes []Planned, more func() bool) (done int, rev store.Revision, err error) {
	for done < len(changes) {
		if d := changes[done].Delete; d != nil {
			at, err := c.Delete(ctx, a, *d)
			if rev = max(rev, at); err != nil {
				return done, rev, ChangeErrors{{done, err}}
			}
			done++
			continue
		}
		puts := putsFrom(changes[done:])
		_, n, at, err := c.Apply(ctx, a, puts, false, more)
		rev = max(rev, at)
		if e, ok := errors.AsType[*ChangeError](err); ok {
			err = ChangeErrors{{e.Index + done, e.Err}}
		}
		if done += n; err != nil || n < len(puts) {
			return done, rev, err
		}
	}
	return done, rev, nil
}

// putsFrom are the changes that come first and put objects.
func putsFrom(changes []Planned) (puts []Change) {
	for i := 0; i < len(changes) && changes[i].Put != nil; i++ {
		puts = append(puts, *changes[i].Put)
	}
	return puts
}

// tryPlannedTx runs a transaction of a use-case as a part of a planned one.
func (u *usecase) tryPlannedTx(what string, fn func(store.Tx) error) error {
	if err := respectLocks("", fn)(u.planned); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// planRecorder is a transaction that notes what is written of the rows that hosts compile.
type planRecorder struct{ writeRecorder }

func (w *planRecorder) isCompiled(key string) bool {
	return strings.HasPrefix(key, tables.StatePrefix) && !strings.HasPrefix(key, tables.AllocPrefix)
}

func (w *planRecorder) Put(key string, value []byte, lease store.Session) {
	if w.isCompiled(key) {
		w.note(key, value)
	}
	w.Tx.Put(key, value, lease)
}

func (w *planRecorder) Create(key string, value []byte, lease store.Session) error {
	if w.isCompiled(key) {
		w.note(key, value)
	}
	return w.Tx.Create(key, value, lease)
}

func (w *planRecorder) Delete(key string) {
	if w.isCompiled(key) {
		w.note(key, nil)
	}
	w.Tx.Delete(key)
}

func (w *planRecorder) DeletePrefix(prefix string) {
	if w.isCompiled(prefix) {
		kvs, err := w.Range(prefix, 0)
		w.failed = errors.Join(w.failed, err)
		for _, kv := range kvs {
			w.note(kv.Key, nil)
		}
	}
	w.Tx.DeletePrefix(prefix)
}

// errNotPlanned refuses a change that takes more than one look at the store.
func errNotPlanned(what string) error {
	return model.Errorf(model.ErrInvalid, "%s cannot be planned: it waits for hosts between its steps", what)
}
