package control

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Change is an object that a list to be applied holds. Those of one rank do not
// refer to each other; they refer to lower ranks only.
type Change struct {
	rank int
	what string // verb and object, for errors
	key  string // of the object's row
	// read returns the object as the transaction sees it; false = not there.
	read  func(tx store.Tx) (any, bool, error)
	bad   error // the object was not validated
	put   func(ctx context.Context, tx store.Tx, cl *allocator) error
	rules []model.PolicyRule // that the object has, or is
	// replaces is a policy that has no other rules then; nil = none.
	replaces *model.PolicyKey
	group    *model.Group // the object, of a group
	// deferred is what has to wait for higher ranks; nil = nothing.
	deferred *Change
	owned    *ownedPart // the part of the change that can belong to Kubernetes; nil = none
	// alone is the use-case for an object that is too large for one transaction; nil = none
	// is. It returns the object.
	alone func(ctx context.Context, u *usecase) (any, error)
	// serialized are rows that many changes write: this process makes one such change
	// after the other, instead of retrying.
	serialized []string
	only       *Condition // nil = none
}

// OnlyAt has Put make a change on a condition; nil = on none.
func (ch Change) OnlyAt(c *Condition) Change {
	ch.only = c
	return ch
}

// Commit is what a change has done.
type Commit struct {
	Object   any            // of package model, as it was committed
	Revision store.Revision // of the commit, or of the last one when nothing was to be changed
}

// maxRulesPerApply is more rules to change than a transaction of any store takes.
const maxRulesPerApply = 1000

// Put makes one change. Its errors are of package model's kinds; nothing has
// changed then, unless the object is too large for one transaction.
func (c *Committer) Put(ctx context.Context, a Actor, ch Change) (Commit, error) {
	u := c.as(a)
	u.only = ch.only
	object, err := u.put(ctx, ch)
	return Commit{object, u.rev}, err
}

func (u *usecase) put(ctx context.Context, ch Change) (object any, err error) {
	if ch.bad != nil {
		return nil, ch.bad
	}
	c := u.commits
	free, err := c.takeTurns(ctx, ch.what, ch.serialized)
	if err != nil {
		return nil, err
	}
	defer free()
	steps := ordered([]Change{ch})
	cl := c.newAllocator(u.actor)
	cl.commits = true
	rev, err := u.update(ctx, ch.what, func(tx store.Tx) error {
		cl.rewind()
		waiting, err := unconfirmedFor(tx, steps)
		if err != nil {
			return err
		}
		for _, s := range steps {
			if err := waiting.check(s.key); err != nil {
				return err
			}
			if err := s.do(ctx, tx, cl); err != nil {
				return err
			}
		}
		if _, err := c.checkLimits(steps); err != nil {
			return err
		}
		object, _, err = ch.read(tx)
		return err
	})
	cl.releaseAll(rev)
	if errors.Is(err, store.ErrTooLarge) && ch.alone != nil {
		if _, err := c.checkLimits(steps); err != nil {
			return nil, err
		}
		return ch.alone(ctx, u)
	}
	return object, err
}

// takeTurns waits until no other change of this process writes the rows. free ends that.
func (c *Committer) takeTurns(ctx context.Context, what string, rows []string) (free func(), err error) {
	var unlocks []func()
	free = func() {
		for _, unlock := range unlocks {
			unlock()
		}
	}
	slices.Sort(rows) // one order for all, or two could wait for each other
	for _, row := range slices.Compact(rows) {
		unlock, err := c.turns.Lock(ctx, row)
		if err != nil {
			free()
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		unlocks = append(unlocks, unlock)
	}
	return free, nil
}

// Outcome is what applying a change does to its object.
type Outcome struct {
	Before, After any // objects of package model; Before is nil for one that was not there
}

// Unchanged reports whether the object was there as wanted.
func (o Outcome) Unchanged() bool { return reflect.DeepEqual(o.Before, o.After) }

// ChangeError says which of the changes failed. Err is of a kind of package model.
type ChangeError struct {
	Index int
	Err   error
}

func (e *ChangeError) Error() string { return fmt.Sprintf("change %d: %v", e.Index, e.Err) }

func (e *ChangeError) Unwrap() error { return e.Err }

// ChangeErrors are all changes of a dry run that would fail, in the order of the
// list; never empty. One may fail because another that it needs does.
type ChangeErrors []*ChangeError

func (e ChangeErrors) Error() string {
	if len(e) == 1 {
		return e[0].Error()
	}
	return fmt.Sprintf("%v, and %d more", e[0], len(e)-1)
}

func (e ChangeErrors) Unwrap() []error {
	out := make([]error, len(e))
	for i, x := range e {
		out[i] = x
	}
	return out
}

// errDryRun ends a transaction that shall change nothing.
var errDryRun = errors.New("dry run")

// applyBatch is with how many changes of a long list one transaction begins;
// fewer when they do not fit.
const applyBatch = 16

// step is one change of a list, or the late part of one.
type step struct {
	*Change
	index int
}

// Apply makes all changes, in an order in which each finds what it refers to.
// They are first tried together: when one of them fails, a *ChangeError says
// which (of a dry run ChangeErrors, all of them), and nothing has changed. If they fit one transaction they are
// committed as one. Otherwise they are committed in order, in as few
// transactions as they fit; more is asked after each, and false ends the
// work: done is then less than the number of changes, and applying the same
// list again goes on from there. So it does after a failure in between, which
// others' changes or the store can cause. The outcomes are those of the whole list.
// rev is of the last commit, also with an error; 0 = there was none.
func (c *Committer) Apply(ctx context.Context, a Actor, changes []Change, dryRun bool, more func() bool) (out []Outcome, done int, rev store.Revision, err error) {
	u := c.as(a)
	out, done, err = u.apply(ctx, changes, dryRun, more)
	return out, done, u.rev, err
}

func (u *usecase) apply(ctx context.Context, changes []Change, dryRun bool, more func() bool) (out []Outcome, done int, err error) {
	c, steps := u.commits, ordered(changes)
	out = make([]Outcome, len(changes))
	cl := c.newAllocator(u.actor)
	// The trial of a long list, and a dry run, commit nothing that could prove
	// memory's reads old: they must not be older than the request.
	try := u.updateBy
	if dryRun {
		try = u.updateOnce
	}
	rev, err := try(ctx, "apply", c.follow.UpdateFresh, func(tx store.Tx) error {
		cl.rewind()
		clear(out)
		if err := tryAll(ctx, tx, cl, steps, out, dryRun); err != nil {
			return err
		}
		if s, err := c.checkLimits(steps); err != nil {
			return &ChangeError{s.index, fmt.Errorf("%s: %w", s.what, err)}
		}
		if dryRun {
			return errDryRun
		}
		return nil
	})
	cl.releaseAll(rev)
	switch {
	case err == nil, errors.Is(err, errDryRun):
		return out, len(changes), nil
	case !errors.Is(err, store.ErrTooLarge):
		return nil, 0, unwrapChange(err)
	}
	steps = slices.DeleteFunc(steps, func(s step) bool { return out[s.index].Unchanged() })
	left := steps
	for size, going := applyBatch, true; len(left) > 0 && going; {
		n := min(size, len(left))
		err := u.applySome(ctx, left[:n])
		switch {
		case err == nil:
			left, size, going = left[n:], 2*size, more()
		case errors.Is(err, store.ErrTooLarge) && n > 1:
			size = n / 2
		default:
			err = unwrapChange(err)
			if len(left) < len(steps) {
				return nil, 0, partlyDone(err)
			}
			return nil, 0, err
		}
	}
	unfinished := map[int]bool{}
	for _, s := range left {
		unfinished[s.index] = true
	}
	return out, len(changes) - len(unfinished), nil
}

// checkLimits checks that the policies fit hosts when all steps are done, and returns
// the step with which they do not.
func (c *Committer) checkLimits(steps []step) (bad step, err error) {
	var rules []model.PolicyRule
	var replaced []model.PolicyKey
	var groups []model.Group
	var at, atGroups []step
	for _, s := range steps {
		if s.replaces != nil {
			replaced = append(replaced, *s.replaces)
		}
		switch {
		case s.rules != nil:
			for _, r := range s.rules {
				rules, at = append(rules, r), append(at, s)
			}
		case s.group != nil:
			groups, atGroups = append(groups, *s.group), append(atGroups, s)
		}
	}
	if i, err := c.view.Policies.checkLimits(rules, replaced, groups); err != nil {
		return append(at, atGroups...)[i], err
	}
	return step{}, nil
}

// applySome commits steps in one transaction, or the only one by its use-case.
func (u *usecase) applySome(ctx context.Context, steps []step) error {
	cl := u.commits.newAllocator(u.actor)
	rev, err := u.update(ctx, "apply", func(tx store.Tx) error {
		cl.rewind()
		return tryAll(ctx, tx, cl, steps, nil, false)
	})
	cl.releaseAll(rev)
	if errors.Is(err, store.ErrTooLarge) && len(steps) == 1 && steps[0].alone != nil {
		if _, err := steps[0].alone(ctx, u); err != nil {
			return &ChangeError{steps[0].index, err}
		}
		return nil
	}
	return err
}

// unwrapChange drops what update says around the change that failed.
func unwrapChange(err error) error {
	if e, ok := errors.AsType[ChangeErrors](err); ok {
		return e
	}
	if e, ok := errors.AsType[*ChangeError](err); ok {
		return e
	}
	return err
}

// partlyDone says of a failure that others of the list are done.
func partlyDone(err error) error {
	const text = "%w; other objects of the list are applied already, and applying it again goes on from there"
	if e, ok := errors.AsType[*ChangeError](err); ok {
		return &ChangeError{e.Index, fmt.Errorf(text, e.Err)}
	}
	return fmt.Errorf(text, err)
}

// ordered returns the changes and their late parts in order of their ranks.
func ordered(changes []Change) []step {
	var steps []step
	for i := range changes {
		steps = append(steps, step{&changes[i], i})
		if changes[i].deferred != nil {
			steps = append(steps, step{changes[i].deferred, i})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return a.rank - b.rank })
	return steps
}

// refusals are the kinds of error that are about a change itself.
var refusals = []error{
	model.ErrInvalid, model.ErrNotFound, model.ErrExists, model.ErrConflict, model.ErrInUse, model.ErrExhausted,
}

// tryAll runs the steps in a transaction and notes in out, unless that is nil,
// what they do to the objects. With all, which is for dry runs, it goes on
// after a refusal and returns them all.
func tryAll(ctx context.Context, tx store.Tx, cl *allocator, steps []step, out []Outcome, all bool) error {
	keys := make([]string, len(steps))
	for i, s := range steps {
		keys[i] = s.key
	}
	slices.Sort(keys)
	if err := tx.Prefetch(slices.Compact(keys)...); err != nil { // one round trip, not one a step
		return err
	}
	waiting, err := unconfirmedFor(tx, steps)
	if err != nil {
		return err
	}
	seen := make([]bool, len(out))
	var failed ChangeErrors
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := waiting.check(s.key)
		if err == nil {
			err = s.try(ctx, tx, cl, out, seen)
		}
		if err == nil {
			continue
		}
		e := &ChangeError{s.index, fmt.Errorf("%s: %w", s.what, err)}
		if !all || !slices.ContainsFunc(refusals, func(kind error) bool { return errors.Is(err, kind) }) {
			return e
		}
		failed = append(failed, e)
	}
	if failed == nil {
		return nil
	}
	slices.SortStableFunc(failed, func(a, b *ChangeError) int { return a.Index - b.Index })
	return failed
}

func (s step) try(ctx context.Context, tx store.Tx, cl *allocator, out []Outcome, seen []bool) error {
	if out != nil && !seen[s.index] {
		seen[s.index] = true
		before, ok, err := s.read(tx)
		if err != nil {
			return err
		}
		if ok {
			out[s.index].Before = before
		}
	}
	was, err := tx.Peek(s.key)
	if err != nil {
		return err
	}
	if s.bad != nil {
		return s.bad
	}
	if err := s.do(ctx, tx, cl); err != nil || out == nil {
		return err
	}
	if is, err := tx.Peek(s.key); err != nil || is.Mod == was.Mod && is.Mod != store.Pending && out[s.index].Before != nil && s.replaces == nil {
		out[s.index].After = out[s.index].Before // nothing was written, and there is no other row of it: no need to read it again
		return err
	}
	after, _, err := s.read(tx)
	out[s.index].After = after
	return err
}
