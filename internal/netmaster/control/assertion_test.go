package control

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
)

// assertWorld has groups web and db with an endpoint each, and db admits web to port 5432 alone.
func assertWorld(t *testing.T) *harness {
	t.Helper()
	c := newCluster(t)
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
		t.Errorf("got %+v", got)
	}
	broken, err := c.Analysis.Broken(ctx)
	if err != nil || len(broken) != 1 || broken[0].Assertion.Key != a.Key {
		t.Errorf("got %v, %v", broken, err)
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
	if broken, err := c.Analysis.Broken(ctx); err != nil || len(broken) != 0 {
		t.Errorf("got %v, %v", broken, err)
	}
	refused(t, err2(c.Put(ctx, Admin(), c.Policies.ChangeRule(valid(allowWeb(22))))), "blue:ssh")
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
		<-errs
		<-errs
		if broken, err := c.Analysis.Broken(ctx); err != nil || len(broken) != 0 {
			t.Fatalf("got %v, %v", broken, err)
		}
		c.put(rule("blue:p", "deny", func(r *model.Rule) { r.Direction, r.Priority, r.Action = model.In, 1, model.Deny }))
		c.put(rule("blue:q", "deny", func(r *model.Rule) { r.Direction, r.Priority, r.Action = model.In, 1, model.Deny }))
	}
}

func brokenOf(a model.Assertion) []analysis.Broken { return []analysis.Broken{{Assertion: a}} }
