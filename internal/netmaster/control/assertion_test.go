package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// assertWorld has groups web and db with an endpoint each, and db admits web to port 5432 alone.
func assertWorld(t *testing.T, opts ...func(*Options)) *harness {
	t.Helper()
	c := newCluster(t, opts...)
	c.put(model.Tenant{Name: "blue"}, model.Global{FwdMode: model.FwdRouting}, network("blue:n", "10.1.0.0/24"))
	c.put(policy("blue:p"), group("blue:web", "n"), group("blue:db", "n", "p"))
	c.put(rule("blue:p", "deny", func(r *model.Rule) { r.Direction, r.Priority, r.Action = model.In, 1, model.Deny }))
	c.put(allowWeb(5432))
	c.create(endpoint("blue:n", "w1", inGroup("web")))
	c.create(endpoint("blue:n", "d1", inGroup("db")))
	return c
}

func allowWeb(port uint16) model.Rule {
	return rule("blue:p", fmt.Sprint("web", port), func(r *model.Rule) {
		r.Direction, r.Priority, r.Action, r.Protocol, r.Port, r.Group = model.In, 2, model.Allow, model.ProtoTCP, port, "web"
	})
}

func assertion(name string, verdict model.Verdict, from, to string, ports ...string) model.Assertion {
	return model.Assertion{Key: model.AssertionKey{Tenant: "blue", Name: name}, Verdict: verdict, From: from, To: to, Ports: ports}
}

func (c *harness) assert(a Actor, x model.Assertion) error {
	return err2(c.Put(testContext(c.t), a, ChangeAssertion(valid(x))))
}

// refused checks that a change is a conflict that says some words.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, model.ErrConflict) {
		t.Fatalf("got %v, want a conflict", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestAssertionThatTheClusterBreaksIsRefused(t *testing.T) {
	c := assertWorld(t)
	refused(t, c.assert(Admin(), assertion("x", model.Never, "group:web", "group:db")), `"blue:x"`, "blue:n:w1 -> blue:n:d1 tcp/5432 (IPv4) is allowed", "rule blue:p:web5432")
	refused(t, c.assert(Admin(), assertion("x", model.Always, "group:web", "group:db", "tcp/22")), "tcp/22 (IPv4) is denied", "rule blue:p:deny")
	refused(t, c.assert(Admin(), assertion("x", model.Never, "group:web", "group:none")), "does not exist")
	if all := Assertions(c.fresh(), ""); len(all) > 0 {
		t.Errorf("refused assertions are there: %v", all)
	}
}

func TestAssertionThatContradictsAnotherIsRefused(t *testing.T) {
	c := assertWorld(t)
	c.put(group("blue:empty", "n"))
	if err := c.assert(Admin(), assertion("x", model.Never, "group:empty", "group:db", "tcp/1-10")); err != nil {
		t.Fatal(err)
	}
	refused(t, c.assert(Admin(), assertion("y", model.Always, "group:empty", "group:db", "tcp/10")), `contradicts assertion "blue:x"`)
	if err := c.assert(Admin(), assertion("y", model.Always, "group:empty", "group:db", "tcp/11")); err != nil {
		t.Error(err)
	}
}

func TestChangeThatBreaksAnAssertionIsRefused(t *testing.T) {
	c := assertWorld(t)
	ctx := testContext(t)
	for _, a := range []model.Assertion{
		assertion("database", model.Always, "group:web", "group:db", "tcp/5432"), assertion("ssh", model.Never, "any", "group:db", "tcp/22"),
	} {
		if err := c.assert(Admin(), a); err != nil {
			t.Fatal(err)
		}
	}
	before := c.dump()
	for name, try := range map[string]func() error{
		"a rule that opens": func() error { return err2(c.Put(ctx, Admin(), c.Policies.ChangeRule(valid(allowWeb(22))))) },
		"a rule that goes":  func() error { return err2(c.Delete(ctx, Admin(), c.Policies.DeleteRule(allowWeb(5432).Key))) },
		"a group's policies": func() error {
			return err2(c.Put(ctx, Admin(), c.Tenants.ChangeGroup(valid(group("blue:db", "n")), false)))
		},
		"a list, and its dry run": func() error {
			_, _, _, err := c.Apply(ctx, Admin(), []Change{c.Policies.ChangeRule(valid(allowWeb(22)))}, true, nil)
			return err
		},
		"a tenant's administrator": func() error { return err2(c.Put(ctx, TenantAdmin("blue"), c.Policies.ChangeRule(valid(allowWeb(22))))) },
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, try(), "it breaks assertion \"blue:")
		})
	}
	after := c.dump()
	for k, v := range before {
		if after[k] != v {
			t.Errorf("%s has changed", k)
		}
	}
	if err := err2(c.Put(ctx, Admin(), c.Policies.ChangeRule(valid(rule("blue:p", "other", func(r *model.Rule) {
		r.Direction, r.Priority, r.Action, r.Protocol, r.Port = model.In, 2, model.Allow, model.ProtoTCP, 443
	}))))); err != nil {
		t.Errorf("a change that breaks none: %v", err)
	}
}

// What another tenant's assertion says is not told.
func TestAssertionOfAnotherTenantIsNotNamed(t *testing.T) {
	err := refuseBroken(TenantAdmin("red").Scope(), brokenOf(assertion("secret", model.Never, "a", "b")))
	refused(t, err, "another tenant")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestOverrideCommitsAndIsRecorded(t *testing.T) {
	c := assertWorld(t)
	ctx := testContext(t)
	a := assertion("ssh", model.Never, "any", "group:db", "tcp/22")
	if err := c.assert(Admin(), a); err != nil {
		t.Fatal(err)
	}
	if err := err2(c.Put(ctx, Admin().Override("incident 7"), c.Policies.ChangeRule(valid(allowWeb(22))))); err != nil {
		t.Fatal(err)
	}
	if got, _ := Assertion(c.fresh(), a.Key); got.Overridden != "incident 7" {
		t.Errorf("got %q", got.Overridden)
	}
	if got := c.broken(Admin()); !slices.Equal(got, []string{"blue:ssh"}) {
		t.Errorf("got %v", got)
	}
	// A broken assertion refuses nothing more, and the same one again is no change.
	if err := err2(c.Delete(ctx, Admin(), c.Policies.DeleteRule(rule("blue:p", "deny").Key))); err != nil {
		t.Error(err)
	}
	if err := c.assert(Admin(), a); err != nil {
		t.Error(err)
	}
	// Repaired, and written again, it is as before.
	c.put(rule("blue:p", "deny", func(r *model.Rule) { r.Direction, r.Priority, r.Action = model.In, 1, model.Deny }))
	c.ok(err2(c.Delete(ctx, Admin(), c.Policies.DeleteRule(allowWeb(22).Key))))
	if got := c.broken(Admin()); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	refused(t, err2(c.Put(ctx, Admin(), c.Policies.ChangeRule(valid(allowWeb(22))))), "blue:ssh")
}

// A netmaster that has not seen the first assertion of the cluster yet refuses what breaks it.
func TestFirstAssertionCountsAtOnce(t *testing.T) {
	c := assertWorld(t)
	other := onStore(t, c.st)
	for range 20 {
		c.ok(c.assert(Admin(), assertion("ssh", model.Never, "any", "group:db", "tcp/22")))
		refused(t, err2(other.Put(testContext(t), Admin(), other.Policies.ChangeRule(valid(allowWeb(22))))), `it breaks assertion "blue:ssh"`)
		c.ok(err2(c.Delete(testContext(t), Admin(), DeleteAssertion(assertion("ssh", model.Never, "", "").Key))))
		c.write(func(tx store.Tx) error {
			tx.Delete(tables.Checks.Key(tables.ChecksKey{}))
			return nil
		})
	}
}

// Two changes that keep an assertion, and break it together, are not both made.
func TestChangesAtOnceDoNotBreakAnAssertionTogether(t *testing.T) {
	c := assertWorld(t)
	ctx := testContext(t)
	c.put(policy("blue:q"))
	c.put(rule("blue:q", "deny", func(r *model.Rule) { r.Direction, r.Priority, r.Action = model.In, 1, model.Deny }))
	c.put(group("blue:db2", "n", "p", "q"))
	c.create(endpoint("blue:n", "d2", inGroup("db2")))
	other := onStore(t, c.st)
	if err := c.assert(Admin(), assertion("ssh", model.Never, "group:web", "group:db2", "tcp/22")); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		errs := make(chan error, 2)
		go func() { errs <- err2(c.Delete(ctx, Admin(), c.Policies.DeleteRule(rule("blue:p", "deny").Key))) }()
		go func() {
			errs <- err2(other.Delete(ctx, Admin(), other.Policies.DeleteRule(rule("blue:q", "deny").Key)))
		}()
		for range 2 { // either may be refused
			if err := <-errs; err != nil {
				t.Log(err)
			}
		}
		if got := c.broken(Admin()); len(got) != 0 {
			t.Fatalf("got %v", got)
		}
		c.put(rule("blue:p", "deny", func(r *model.Rule) { r.Direction, r.Priority, r.Action = model.In, 1, model.Deny }))
		c.put(rule("blue:q", "deny", func(r *model.Rule) { r.Direction, r.Priority, r.Action = model.In, 1, model.Deny }))
	}
}

func TestClusterWideAssertionIsForClusterAdministrators(t *testing.T) {
	c := assertWorld(t)
	ctx := testContext(t)
	c.put(model.Tenant{Name: "red"}, network("red:r", "10.3.0.0/24"), policy("red:p"), group("red:web", "r", "p"))
	c.put(rule("red:p", "deny", func(r *model.Rule) { r.Direction, r.Priority, r.Action = model.In, 1, model.Deny }))
	c.create(endpoint("red:r", "r1", inGroup("web")))
	a := assertion("no-ssh", model.Never, "internet", "group:red/web", "tcp/22")
	a.ClusterWide = true
	if err := c.assert(TenantAdmin("blue"), a); !errors.Is(err, model.ErrForbidden) {
		t.Errorf("got %v", err)
	}
	c.ok(c.assert(Admin(), a))
	ssh := rule("red:p", "ssh", func(r *model.Rule) {
		r.Direction, r.Priority, r.Action, r.Protocol, r.Port = model.In, 2, model.Allow, model.ProtoTCP, 22
	})
	refused(t, err2(c.Put(ctx, Admin(), c.Policies.ChangeRule(valid(ssh)))), `"blue:no-ssh"`, "red:r:r1", "red:p:ssh")
	err := err2(c.Put(ctx, TenantAdmin("red"), c.Policies.ChangeRule(valid(ssh))))
	refused(t, err, "an assertion of a cluster administrator")
	if strings.Contains(err.Error(), "no-ssh") {
		t.Errorf("got %v", err)
	}
	c.ok(err2(c.Put(ctx, Admin().Override("incident 7"), c.Policies.ChangeRule(valid(ssh)))))
	if admin, tenant := c.broken(Admin()), c.broken(TenantAdmin("blue")); len(admin) != 1 || len(tenant) != 0 {
		t.Errorf("broken are %v, and for the tenant %v", admin, tenant)
	}
	a.ClusterWide, a.To = false, "group:db"
	for name, err := range map[string]error{
		"replace": c.assert(TenantAdmin("blue"), a), "delete": err2(c.Delete(ctx, TenantAdmin("blue"), DeleteAssertion(a.Key))),
	} {
		if !errors.Is(err, model.ErrForbidden) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	c.ok(err2(c.Delete(ctx, Admin(), DeleteAssertion(a.Key))))
}

func TestUnconfirmedChangeThatBreaksAnAssertionIsRefused(t *testing.T) {
	c := assertWorld(t)
	ctx := testContext(t)
	c.ok(c.assert(Admin(), assertion("ssh", model.Never, "any", "group:db", "tcp/22")))
	try := func(a Actor) (string, error) {
		w, _, err := c.Pending.Apply(ctx, a, []Change{c.Policies.ChangeRule(valid(allowWeb(22)))}, []json.RawMessage{[]byte(`{}`)}, time.Minute)
		return w.ID, err
	}
	_, err := try(Admin())
	refused(t, err, `it breaks assertion "blue:ssh"`)
	id, err := try(Admin().Override("incident 7"))
	c.ok(err)
	if got := c.broken(Admin()); len(got) != 1 {
		t.Errorf("with the change in force, broken are %v", got)
	}
	c.ok(err2(c.Pending.Revert(ctx, Admin(), id)))
	if got := c.broken(Admin()); len(got) != 0 {
		t.Errorf("after its rollback, broken are %v", got)
	}
}

// Endpoints and labels are not refused: what they break is logged, once, and that it holds again.
func TestAssertionThatEndpointsBreakIsReported(t *testing.T) {
	log := new(testenv.Log)
	c := assertWorld(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	a := assertion("tested", model.Never, "app=test", "group:db")
	a.Owner = "dba@example.com"
	c.ok(c.assert(Admin(), a))
	ctx, end := context.WithCancel(testContext(t))
	var reports sync.WaitGroup
	reports.Go(func() { c.ReportAssertions(ctx) })
	t.Cleanup(func() {
		end()
		reports.Wait()
	})
	logged := func(text string, n int) {
		t.Helper()
		c.eventually(text, func() error {
			if got := log.Count(text); got != n {
				return fmt.Errorf("%q is logged %d times, want %d", text, got, n)
			}
			return nil
		})
	}
	for n := range 2 {
		e := c.create(endpoint("blue:n", "t1", inGroup("web"), func(e *model.Endpoint) { e.Labels = map[string]string{"app": "test"} }))
		logged("an assertion does not hold", n+1)
		if line := log.Line("an assertion does not hold"); !strings.Contains(line, "blue:tested") || !strings.Contains(line, a.Owner) || !strings.Contains(line, "blue:n:t1 -> blue:n:d1") {
			t.Errorf("logged %s", line)
		}
		c.ok(c.remove(e.Key))
		logged("an assertion holds again", n+1)
	}
}

func brokenOf(a model.Assertion) []analysis.Verdict {
	return []analysis.Verdict{{Assertion: a, State: analysis.Broken}}
}

// broken are the assertions that do not hold.
func (c *harness) broken(a Actor) (keys []string) {
	c.t.Helper()
	all, err := c.BrokenAssertions(testContext(c.t), a)
	c.ok(err)
	for _, v := range all {
		keys = append(keys, v.Assertion.Key.String())
	}
	return keys
}
