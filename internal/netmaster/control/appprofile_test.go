package control

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

func appKey(s string) model.AppProfileKey { return model.AppProfileKey(npKey(s)) }

func app(s string, groups ...model.GroupName) model.AppProfile {
	return model.AppProfile{Key: appKey(s), Groups: groups}
}

// An app profile of any size ties its groups: none can go before it.
func TestAppProfilesKeepTheirGroups(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.0.0.0/8"))
	var names []model.GroupName
	for i := range 3*appBatch + 1 {
		names = append(names, model.GroupName(fmt.Sprintf("g%d", i)))
		c.put(group(string(names[i]), "n"))
	}
	c.put(app("big", names...))
	check := func(want ...model.GroupName) {
		t.Helper()
		p, _ := c.fresh().Tenants.AppProfile(appKey("big"))
		if d := cmp.Diff(want, p.Groups); d != "" {
			t.Fatal(d)
		}
		for _, g := range names {
			k, ok := c.fresh().Tenants.AppProfileOf(groupKey(string(g)))
			if ok != slices.Contains(want, g) || ok && k != appKey("big") {
				t.Errorf("group %s is in %v", g, k)
			}
		}
	}
	check(names...)
	c.refused(model.ErrInUse, "default:big", func() error { return c.remove(groupKey("g20")) })
	slices.Reverse(names)
	c.put(app("big", names[:20]...))
	check(names[:20]...)
	c.ok(c.remove(groupKey("g0")))
	c.put(app("small", names[0]))
	if k, _ := c.fresh().Tenants.AppProfileOf(groupKey(string(names[0]))); k != appKey("small") {
		t.Errorf("the group is in %v, not in the profile that took it last", k)
	}
	c.ok(c.remove(appKey("big")))
	c.refused(model.ErrInUse, "default:small", func() error { return c.remove(groupKey(string(names[0]))) })
	c.ok(c.remove(groupKey(string(names[1]))))
	checkKinds(t, c)
}
