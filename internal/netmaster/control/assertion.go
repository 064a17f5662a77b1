package control

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var _ = register[model.AssertionKey](kind{
	name:  "assertion",
	empty: none(tables.Assertions, tables.AssertionsOf, "assertions", func(x model.Assertion) string { return x.Key.Name }),
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
	return changeOf(rankEndpoint, tables.Assertions, a.Key, valid, func(_ context.Context, tx store.Tx, _ *allocator) error {
		old, err := tables.Assertions.Find(tx, a.Key)
		if err != nil {
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

// DeleteAssertion deletes an assertion.
func DeleteAssertion(k model.AssertionKey) Deletion { return deleteRow(tables.Assertions, k, nil) }

// assertedRows are the kinds of rows that users change, and which decide who reaches whom: a
// transaction that writes one is checked. Others, such as endpoints, cannot be refused.
var assertedRows = []string{"assertions", "groups", "networks", "policies", "replacements", "rules", "services"}

func isAsserted(key string) bool {
	if rest, is := strings.CutPrefix(key, tables.GlobalPrefix); is {
		return strings.HasPrefix(rest, "config/") || strings.HasPrefix(rest, "tenants/")
	}
	return slices.Contains(assertedRows, tables.KindOfRow(key))
}

// assertionRecorder is a planRecorder that notes whether a transaction has to be checked.
type assertionRecorder struct{ planRecorder }

// rows are what the transaction makes of rows that hosts compile, and of assertions; none =
// there is nothing to check.
func (w *assertionRecorder) rows() (out []analysis.PlannedRow, err error) {
	asserted := false
	for key, write := range w.of {
		if string(write.old.Value) != string(write.value) {
			asserted = asserted || isAsserted(key)
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
		if err != nil || len(rows) == 0 || !c.hasAssertions() && !slices.ContainsFunc(rows, isAssertion) {
			return errors.Join(err, failed)
		}
		if err := tx.Observe(tables.CheckedScope); err != nil {
			return err
		}
		tx.Touch(tables.CheckedScope)
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
	return tables.KindOfRow(row.Now.Key) == assertedRows[0]
}

// BrokenAssertions returns the assertions that do not hold now, by key.
func (c *Committer) BrokenAssertions(ctx context.Context) ([]analysis.Broken, error) {
	if !c.hasAssertions() {
		return nil, nil
	}
	return c.analysis.Broken(ctx)
}

func (c *Committer) hasAssertions() bool {
	rows := assertionRows(c.view)
	rows.lock.RLock()
	defer rows.lock.RUnlock()
	return len(rows.all) > 0
}

// maxWitnesses is how many broken assertions a refusal names.
const maxWitnesses = 3

func refuseBroken(scope Scope, broken []analysis.Broken) error {
	var texts []string
	for i, b := range broken {
		switch {
		case i == maxWitnesses:
			texts = append(texts, fmt.Sprintf("and %d more", len(broken)-i))
			return model.Errorf(model.ErrConflict, "%s", strings.Join(texts, "; "))
		case scope.Has(b.Assertion.Key.Tenant):
			texts = append(texts, "it breaks "+b.String())
		default:
			texts = append(texts, "it breaks an assertion of another tenant: ask a cluster administrator")
		}
	}
	return model.Errorf(model.ErrConflict, "%s", strings.Join(texts, "; "))
}
