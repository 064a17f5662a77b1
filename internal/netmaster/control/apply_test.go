package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/model"
)

// small is a list that fits one transaction, in an order that does not.
func small(c *harness) []Change {
	return []Change{
		ChangeTenant(valid(model.Tenant{Name: "blue", DefaultNetwork: "n"}), false),
		c.Policies.ChangeRule(valid(rule("blue:p", "1"))),
		c.Tenants.ChangeGroup(valid(group("blue:g", "n", "p")), false),
		c.Policies.ChangePolicy(valid(policy("blue:p"))),
		c.Networks.ChangeNetwork(valid(network("blue:n", "10.1.0.0/24"))),
	}
}

// commits returns how many transactions f committed.
func (c *harness) commits(f func()) int64 {
	c.t.Helper()
	before, err := c.st.CommitRevision(testContext(c.t))
	c.ok(err)
	f()
	after, err := c.st.CommitRevision(testContext(c.t))
	c.ok(err)
	return int64(after - before)
}

// A list is put in the order of its references, in one transaction; putting it
// again finds everything there; a dry run changes nothing and tells the same.
func TestListIsAppliedInOneTransaction(t *testing.T) {
	c := newCluster(t)
	actions := func(dryRun bool) []bool {
		out, done, _, err := c.Apply(testContext(t), Admin(), small(c), dryRun, func() bool { return true })
		if err != nil || done != 5 {
			t.Fatalf("done %d, error %v", done, err)
		}
		var unchanged []bool
		for _, o := range out {
			unchanged = append(unchanged, o.Unchanged())
		}
		return unchanged
	}
	before := c.dump()
	if diff := cmp.Diff([]bool{false, false, false, false, false}, actions(true)); diff != "" {
		t.Errorf("dry run: unchanged (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, c.dump()); diff != "" {
		t.Errorf("a dry run changed the store: %s", diff)
	}
	if n := c.commits(func() { actions(false) }); n != 1 {
		t.Errorf("%d transactions", n)
	}
	if n := c.commits(func() {
		if diff := cmp.Diff([]bool{true, true, true, true, true}, actions(false)); diff != "" {
			t.Errorf("again: unchanged (-want +got):\n%s", diff)
		}
	}); n != 0 {
		t.Errorf("again: %d transactions", n)
	}
	if x, ok := c.fresh().Tenants.Get("blue"); !ok || x.DefaultNetwork != "n" {
		t.Errorf("tenant %+v", x)
	}
}

// One bad change of a list, wherever it stands, changes nothing and is named,
// whether or not the list fits one transaction.
func TestApplyAllOrNothing(t *testing.T) {
	c := newCluster(t)
	c.put(network("taken", "10.9.0.0/24"))
	for name, tc := range map[string]struct {
		bad  Change
		kind error
	}{
		"invalid":   {c.Policies.ChangeRule(valid(rule("blue:p", "bad", func(r *model.Rule) { r.Priority = 101 }))), model.ErrInvalid},
		"unknown":   {c.Tenants.ChangeGroup(valid(group("blue:bad", "nosuch")), false), model.ErrNotFound},
		"conflict":  {c.Networks.ChangeNetwork(valid(network("bad", "10.9.0.0/25"))), model.ErrConflict},
		"immutable": {c.Networks.ChangeNetwork(valid(network("taken", "10.8.0.0/24"))), model.ErrConflict},
		"late":      {ChangeTenant(valid(model.Tenant{Name: "red", DefaultNetwork: "nosuch"}), false), model.ErrNotFound},
	} {
		for _, rules := range []int{0, 50} {
			list := append(small(c), tc.bad)
			for i := range rules {
				list = append(list, c.Policies.ChangeRule(valid(rule("blue:p", fmt.Sprintf("r%d", i)))))
			}
			c.refused(tc.kind, "", func() error {
				_, done, _, err := c.Apply(testContext(t), Admin(), list, false, func() bool { return true })
				if e, ok := errors.AsType[*ChangeError](err); !ok || e.Index != 5 || done != 0 {
					t.Errorf("%s: done %d, error %v", name, done, err)
				}
				return err
			})
		}
	}
}

// A list that does not fit one transaction takes several; stopped in between it
// goes on from there.
func TestLongListsContinueWhereTheyStopped(t *testing.T) {
	c := newCluster(t)
	list := small(c)
	for i := range 200 {
		list = append(list, c.Policies.ChangeRule(valid(rule("blue:p", fmt.Sprintf("r%d", i)))))
	}
	app := model.AppProfile{Key: model.AppProfileKey{Tenant: "blue", Name: "app"}}
	for i := range 30 { // more than one transaction ties
		name := model.GroupName(fmt.Sprintf("g%02d", i))
		app.Groups = append(app.Groups, name)
		list = append(list, c.Tenants.ChangeGroup(valid(group("blue:"+string(name), "n")), false))
	}
	list = append(list, c.Tenants.ChangeAppProfile(valid(app)))
	slices.Reverse(list)
	turns := 0
	for done := 0; done < len(list); turns++ {
		left := 3
		out, n, _, err := c.Apply(testContext(t), Admin(), list, false, func() bool { left--; return left >= 0 })
		if err != nil || n < done || len(out) != len(list) {
			t.Fatalf("done %d after %d, error %v", n, done, err)
		}
		done = n
	}
	if turns < 2 {
		t.Errorf("%d turns", turns)
	}
	v := c.fresh()
	if n := len(v.Policies.RulesOfPolicy(policyKey("blue:p"))); n != 201 {
		t.Errorf("%d rules", n)
	}
	got, _ := v.Tenants.AppProfile(app.Key)
	if diff := cmp.Diff(app.Groups, got.Groups); diff != "" {
		t.Errorf("groups of the app profile (-want +got):\n%s", diff)
	}
}

// Endpoints of a list get the addresses that they ask for, and two of one list
// never the same.
func TestEndpointsOfAListGetAddressesOfTheirOwn(t *testing.T) {
	c := newCluster(t)
	list := []Change{
		c.Endpoints.ChangeEndpoint(valid(endpoint("n", "a", withIP("10.1.0.9")))),
		c.Endpoints.ChangeEndpoint(valid(endpoint("n", "b"))),
		c.Endpoints.ChangeEndpoint(valid(endpoint("n", "c"))),
		c.Networks.ChangeNetwork(valid(network("n", "10.1.0.0/24"))),
		c.Networks.ChangeNetwork(valid(network("m", "10.2.0.0/24"))),
	}
	out, _, _, err := c.Apply(testContext(t), Admin(), list, false, func() bool { return true })
	c.ok(err)
	a, b, d := out[0].After.(model.Endpoint), out[1].After.(model.Endpoint), out[2].After.(model.Endpoint)
	if a.IPv4 != addr("10.1.0.9") || b.IPv4 == d.IPv4 || b.IPv4 == a.IPv4 || d.IPv4 == a.IPv4 {
		t.Errorf("addresses %v, %v, %v", a.IPv4, b.IPv4, d.IPv4)
	}
	n, m := out[3].After.(model.Network), out[4].After.(model.Network)
	if n.Tag == m.Tag || n.ID == m.ID || n.Identity == m.Identity {
		t.Errorf("networks share a number: %+v, %+v", n, m)
	}
}

// A failure between the transactions of a long list says which change it was
// and that others are done; the same list applies when its cause is gone.
func TestApplyFailsInBetween(t *testing.T) {
	c := newCluster(t)
	c.put(model.Tenant{Name: "blue"}, policy("blue:p"), policy("blue:q"))
	var list []Change
	for _, p := range []string{"blue:p", "blue:q"} {
		for i := range 90 {
			list = append(list, c.Policies.ChangeRule(valid(rule(p, fmt.Sprintf("r%d", i)))))
		}
	}
	_, _, _, err := c.Apply(testContext(t), Admin(), list, false, func() bool {
		c.ok(ignoreNotFound(err2(c.Delete(testContext(t), Admin(), DeletePolicy(policyKey("blue:q"))))))
		return true
	})
	e, ok := errors.AsType[*ChangeError](err)
	if !ok || e.Index < 90 || !errors.Is(err, model.ErrNotFound) || !strings.Contains(err.Error(), "applied already") {
		t.Fatalf("error %v", err)
	}
	if n := len(c.fresh().Policies.RulesOfPolicy(policyKey("blue:p"))); n == 0 {
		t.Error("nothing is applied")
	}
	c.put(policy("blue:q"))
	if _, done, _, err := c.Apply(testContext(t), Admin(), list, false, func() bool { return true }); err != nil || done != len(list) {
		t.Errorf("again: done %d, error %v", done, err)
	}
}

func ignoreNotFound(err error) error {
	if errors.Is(err, model.ErrNotFound) {
		return nil
	}
	return err
}

// A dry run leaves nothing behind that a later list could trip over: not the
// addresses and numbers that it tried, not the shape of a network.
func TestApplyAfterDryRun(t *testing.T) {
	c := newCluster(t)
	c.put(model.Global{VXLANs: model.TagRange{Lo: 7, Hi: 7}}) // one for both
	list := func(subnet string) []Change {
		return []Change{c.Endpoints.ChangeEndpoint(valid(endpoint("n", "a"))), c.Networks.ChangeNetwork(valid(network("n", subnet)))}
	}
	yes := func() bool { return true }
	dry, _, _, err := c.Apply(testContext(t), Admin(), list("10.1.0.0/24"), true, yes)
	c.ok(err)
	done, _, _, err := c.Apply(testContext(t), Admin(), list("10.5.0.0/24"), false, yes)
	c.ok(err)
	for i, o := range [][]Outcome{dry, done} {
		want := []string{"10.1.0.1", "10.5.0.1"}[i]
		if e, _ := o[0].After.(model.Endpoint); e.IPv4 != addr(want) {
			t.Errorf("address %v, want %s", e.IPv4, want)
		}
	}
}

// The same list from many sides at once, through two replicas, is there once.
func TestSameListFromManyIsAppliedOnce(t *testing.T) {
	a := newCluster(t)
	b := onStore(t, a.st.Client())
	var sides errgroup.Group
	for i := range 8 {
		c := []*harness{a, b}[i%2]
		sides.Go(func() error {
			list := small(c)
			for r := range 60 {
				list = append(list, c.Policies.ChangeRule(valid(rule("blue:p", fmt.Sprintf("r%d", r)))))
			}
			_, done, _, err := c.Apply(testContext(t), Admin(), list, false, func() bool { return true })
			if err == nil && done != len(list) {
				err = fmt.Errorf("done %d of %d", done, len(list))
			}
			return err
		})
	}
	a.ok(sides.Wait())
	v := a.fresh()
	if n := len(v.Policies.RulesOfPolicy(policyKey("blue:p"))); n != 61 || len(v.Networks.List("blue")) != 1 {
		t.Errorf("%d rules, networks %v", n, v.Networks.List("blue"))
	}
}

// Endpoints of a list that ask for no address get one each, however many they
// are, and when the transaction runs again.
func TestListedEndpointsGetOneAddressEach(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/16"), group("g", "n"))
	var list []Change
	for i := range 300 {
		list = append(list, c.Endpoints.ChangeEndpoint(valid(endpoint("n", fmt.Sprintf("e%d", i), inGroup("g")))))
	}
	for _, dryRun := range []bool{true, false} {
		c.st.Conflict(3)
		out, _, _, err := c.Apply(testContext(t), Admin(), list, dryRun, func() bool { return true })
		c.ok(err)
		taken := map[any]bool{}
		for _, o := range out {
			a := o.After.(model.Endpoint).IPv4
			if !a.IsValid() || taken[a] {
				t.Errorf("dry run %v: address %s", dryRun, a)
			}
			taken[a] = true
		}
	}
	c.st.Conflict(0)
	if eps := c.fresh().Endpoints.OfNetwork(netKey("n")); len(eps) != len(list) {
		t.Errorf("%d endpoints", len(eps))
	}
}
