package control

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

// What applying a set creates is the set's, until it is deleted: an object that was there
// before, or that somebody creates again, is not.
func TestSetHasWhatItCreated(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	c.put(model.Tenant{Name: "blue"})
	c.put(network("blue:before", "10.9.0.0/24"))
	c.fresh()
	names := func(set string) []string {
		t.Helper()
		members, err := c.Ownership.SetMembers(ctx, Admin(), set)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, o := range slices.Collect(maps.Keys(members)) {
			out = append(out, o.String())
		}
		slices.Sort(out)
		return out
	}
	apply := func(set string, dryRun bool, networks ...string) {
		t.Helper()
		var list []Change
		for i, n := range networks {
			subnet := fmt.Sprintf("10.1.%d.0/24", i)
			if n == "before" {
				subnet = "10.9.0.0/24"
			}
			list = append(list, c.Ownership.InSet(Admin(), c.Networks.ChangeNetwork(valid(network("blue:"+n, subnet))), set, model.Owned{Kind: "network", Key: "blue:" + n}))
		}
		if _, _, _, err := c.Apply(ctx, Admin(), list, dryRun, func() bool { return true }); err != nil {
			t.Fatal(err)
		}
		c.fresh()
	}
	check := func(when, set string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, names(set)); diff != "" {
			t.Errorf("%s: set %s (-want +got):\n%s", when, set, diff)
		}
	}
	apply("web", true, "a")
	check("after a dry run", "web")
	apply("web", false, "a", "b", "before")
	check("after it was applied", "web", `network "blue:a"`, `network "blue:b"`)
	apply("web", false, "a", "b", "before")
	apply("other", false, "a")
	check("after another set was applied", "web", `network "blue:a"`, `network "blue:b"`)
	check("of what another set created", "other")
	for _, n := range []string{"a", "b"} {
		if err := err2(c.Delete(ctx, Admin(), c.Networks.DeleteNetwork(model.NetworkKey{Tenant: "blue", Name: model.NetworkName(n)}))); err != nil {
			t.Fatal(err)
		}
		c.fresh()
	}
	c.put(network("blue:a", "10.1.0.0/24"))
	c.fresh()
	check("after both were deleted, and one was created by hand", "web")
	if kvs, _, err := c.st.Range(ctx, "/contiv.io/state/alloc/sets/"); err != nil || len(kvs) != 0 {
		t.Errorf("rows of members that are none: %v, %v", kvs, err)
	}
	apply("web", false, "before", "c")
	if found, err := c.Repair.Owners(ctx); err != nil || len(found) > 0 {
		t.Errorf("the doctor finds %v, %v", found, err)
	}
}

// A list that takes several transactions, and a policy that is too large for one, are
// noted as others are.
func TestLongListIsNoted(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	c.put(model.Tenant{Name: "blue"})
	c.fresh()
	of := func(ch Change, kind, key string) Change {
		return c.Ownership.InSet(Admin(), ch, "big", model.Owned{Kind: kind, Key: key})
	}
	list := []Change{of(c.Policies.ChangePolicy(valid(model.ContivPolicy{Key: policyKey("blue:p")})), "policy", "blue:p")}
	for i := range 200 {
		key := fmt.Sprintf("r%d", i)
		list = append(list, of(c.Policies.ChangeRule(valid(rule("blue:p", key))), "rule", "blue:p:"+key))
	}
	for done := 0; done < len(list); {
		_, n, _, err := c.Apply(ctx, Admin(), list, false, func() bool { return true })
		if err != nil || n == done {
			t.Fatalf("done %d, error %v", n, err)
		}
		done = n
	}
	if members, err := c.Ownership.SetMembers(ctx, Admin(), "big"); err != nil || len(members) != len(list) {
		t.Errorf("%d members, error %v", len(members), err)
	}
}
