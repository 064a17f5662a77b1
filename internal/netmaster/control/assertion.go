package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var _ = register[model.AssertionKey](kind{
	name:  "assertion",
	empty: none(tables.Assertions, tables.AssertionsOf, assertionKind, func(x model.Assertion) string { return x.Key.Name }),
})

var assertionRows = rowsOf[model.AssertionKey, model.Assertion](func(k model.AssertionKey) (model.TenantName, string) { return k.Tenant, k.Name })

// Assertions returns the assertions of a tenant, "" = of all.
func Assertions(v *View, t model.TenantName) []model.Assertion { return assertionRows(v).list(t) }

// Assertion finds an assertion.
func Assertion(v *View, k model.AssertionKey) (model.Assertion, bool) {
	return assertionRows(v).find(k)
}

// ChangeAssertion creates an assertion or replaces it. One that says the opposite of another one
// is model.ErrConflict, and so is one that the cluster breaks now: see checkAssertions.
func ChangeAssertion(valid model.Valid[model.Assertion]) Change {
	a := valid.Value()
	return changeOf(rankEndpoint, tables.Assertions, a.Key, valid, func(_ context.Context, tx store.Tx, cl *allocator) error {
		old, err := tables.Assertions.Find(tx, a.Key)
		if err != nil {
			return err
		}
		if err := cl.actor.mayAssert(a, old.Value); err != nil {
			return err
		}
		same := a
		same.Overridden = old.Value.Overridden
		if old.Exists() && reflect.DeepEqual(old.Value, same) {
			return nil
		}
		all, err := tables.Assertions.List(tx, tables.AssertionsOf(a.Key.Tenant))
		if err != nil {
			return err
		}
		for _, other := range all {
			if other.Key != a.Key && analysis.Contradict(a, other) {
				return model.Errorf(model.ErrConflict, "it contradicts assertion %q, which says %s: delete that first", other.Key, other)
			}
		}
		next := a
		next.Overridden = ""
		return setRow(tx, a.Key.Tenant, tables.Assertions, a.Key, next)
	})
}

// mayAssert refuses assertions about the endpoints of all tenants.
func (a Actor) mayAssert(all ...model.Assertion) error {
	for _, x := range all {
		if x.ClusterWide && !a.admin {
			return model.Errorf(model.ErrForbidden, "assertion %q: clusterWide needs a cluster-admin, since it refuses changes of all tenants", x.Key)
		}
	}
	return nil
}

// DeleteAssertion deletes an assertion.
func DeleteAssertion(k model.AssertionKey) Deletion {
	return deleteRow(tables.Assertions, k, nil, func(tx store.Tx, a Actor) error {
		x, err := tables.Assertions.Get(tx, k)
		return errors.Join(err, a.mayAssert(x))
	})
}

// assertionKind is the kind of assertions' own rows.
const assertionKind = "assertions"

// assertedRows are the kinds of rows that users change, and which decide who reaches whom: a
// transaction that writes one is checked. Others, such as endpoints, cannot be refused.
var assertedRows = []string{assertionKind, "groups", "networks", "policies", "replacements", "rules", "services", "trials"}

func isAsserted(key string, value []byte) bool {
	if rest, is := strings.CutPrefix(key, tables.GlobalPrefix); is {
		return strings.HasPrefix(rest, "config/") || strings.HasPrefix(rest, "tenants/")
	}
	kind := tables.KindOfRow(key)
	return slices.Contains(assertedRows, kind) && (kind != "trials" || value != nil) // rollbacks are not refused
}

// assertionRecorder is a planRecorder that notes whether a transaction has to be checked.
type assertionRecorder struct{ planRecorder }

// rows are what the transaction makes of rows that hosts compile, and of assertions; none =
// there is nothing to check.
func (w *assertionRecorder) rows() (out []analysis.PlannedRow, err error) {
	asserted := false
	for key, write := range w.of {
		if string(write.old.Value) != string(write.value) {
			asserted = asserted || isAsserted(key, write.value)
			out = append(out, analysis.PlannedRow{Now: write.old, Then: write.value})
		}
	}
	if !asserted {
		return nil, w.failed
	}
	return out, w.failed
}

// checkAssertions makes a use-case's transaction refuse to break assertions, with
// model.ErrConflict. Without assertions it costs nothing. Controllers, which write what others
// have decided, are not checked. A cluster administrator may override: then the assertions say why.
func (u *usecase) checkAssertions(ctx context.Context, fn func(store.Tx) error) func(store.Tx) error {
	c := u.commits
	if u.actor.term != nil || c.analysis == nil {
		return fn
	}
	return func(tx store.Tx) error {
		w := &assertionRecorder{planRecorder{writeRecorder{Tx: tx, of: map[string]*rowWrite{}}}}
		failed := fn(w)
		if failed != nil && !errors.Is(failed, errDryRun) {
			return failed
		}
		rows, err := w.rows()
		if err != nil || len(rows) == 0 {
			return errors.Join(err, failed)
		}
		checks, err := tables.Checks.Find(tx, tables.ChecksKey{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(rows, isAssertion) {
			if there, err := c.hasAssertions(ctx, checks.Exists()); err != nil || !there {
				return errors.Join(err, failed)
			}
		}
		if err := tables.Checks.Put(tx, tables.Checked{Asserted: true}); err != nil {
			return err
		}
		broken, err := c.analysis.Check(ctx, rows)
		switch {
		case err != nil:
			return err
		case len(broken) == 0:
			return failed
		case u.actor.override == "":
			return refuseBroken(u.actor.Scope(), broken)
		}
		for _, b := range broken {
			b.Assertion.Overridden = u.actor.override
			if err := tables.Assertions.Put(tx, b.Assertion); err != nil {
				return err
			}
		}
		return failed
	}
}

func isAssertion(row analysis.PlannedRow) bool {
	return tables.KindOfRow(row.Now.Key) == assertionKind
}

// BrokenAssertions returns the verdicts that the actor may know of assertions that do not hold now,
// or cannot be checked, by key.
func (c *Committer) BrokenAssertions(ctx context.Context, a Actor) ([]analysis.Verdict, error) {
	all, err := c.AssertionVerdicts(ctx, a)
	return slices.DeleteFunc(all, func(v analysis.Verdict) bool { return v.State == analysis.Holds }), err
}

// AssertionVerdicts returns the verdicts that the actor may know, by key.
func (c *Committer) AssertionVerdicts(ctx context.Context, a Actor) ([]analysis.Verdict, error) {
	if there, err := c.hasAssertions(ctx, true); err != nil || !there {
		return nil, err
	}
	all, err := c.analysis.Verdicts(ctx, false)
	return slices.DeleteFunc(all, func(v analysis.Verdict) bool { return !mayKnow(a.Scope(), v) }), err
}

// mayKnow reports whether a scope shows an assertion's verdict, which names endpoints and rules.
func mayKnow(scope Scope, v analysis.Verdict) bool {
	return scope.Has(v.Assertion.Key.Tenant) && (!scope.Limited() || !v.Assertion.ClusterWide)
}

// ReportAssertions logs each assertion that breaks, and that holds again, until ctx ends. Changes
// are reported within reportEvery.
func (c *Committer) ReportAssertions(ctx context.Context) {
	reported := map[model.AssertionKey]string{}
	for waiting.Pause(ctx, reportEvery) == nil {
		var all []analysis.Verdict
		if c.view.countAssertions() > 0 {
			var err error
			if all, err = c.analysis.Verdicts(ctx, true); err != nil {
				return // ctx has ended
			}
		}
		c.reportVerdicts(all, reported)
	}
}

// reportEvery is between two looks at assertions.
const reportEvery = 500 * time.Millisecond

// reportVerdicts logs what differs from what is reported, and notes it there.
func (c *Committer) reportVerdicts(all []analysis.Verdict, reported map[model.AssertionKey]string) {
	there := map[model.AssertionKey]bool{}
	for _, v := range all {
		x := v.Assertion
		there[x.Key] = true
		before, was := reported[x.Key]
		switch {
		case v.State == analysis.Holds:
			if delete(reported, x.Key); was {
				c.log.Info("an assertion holds again", "assertion", x.Key.String(), "says", x.String())
			}
		case before != v.Why:
			reported[x.Key] = v.Why
			c.log.Warn("an assertion does not hold", "assertion", x.Key.String(), "says", x.String(), "owner", x.Owner, "overridden", x.Overridden, "why", v.Why)
		}
	}
	maps.DeleteFunc(reported, func(k model.AssertionKey, _ string) bool { return !there[k] })
}

// hasAssertions reports whether there are assertions. checked: there may be some that the view does
// not have yet, so that it is asked again when it has caught up.
func (c *Committer) hasAssertions(ctx context.Context, checked bool) (bool, error) {
	if c.view.countAssertions() > 0 || !checked {
		return c.view.countAssertions() > 0, nil
	}
	v, err := c.View(ctx)
	return err == nil && v.countAssertions() > 0, err
}

func (v *View) countAssertions() int {
	rows := assertionRows(v)
	rows.lock.RLock()
	defer rows.lock.RUnlock()
	return len(rows.all)
}

// maxWitnesses is how many broken assertions a refusal names.
const maxWitnesses = 3

func refuseBroken(scope Scope, broken []analysis.Verdict) error {
	var texts []string
	for i, v := range broken {
		if i == maxWitnesses {
			texts = append(texts, fmt.Sprintf("and %d more", len(broken)-i))
			break
		}
		text := "it breaks " + v.String()
		if !mayKnow(scope, v) {
			text = "it breaks an assertion of a cluster administrator or another tenant: ask a cluster administrator"
		}
		texts = append(texts, text)
	}
	return model.Errorf(model.ErrConflict, "%s; a cluster administrator can override this (netctl: --override REASON)", strings.Join(texts, "; "))
}
