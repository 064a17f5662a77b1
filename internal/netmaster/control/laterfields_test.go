package control

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TestFieldsOfLaterVersionsSurvive: what a later netmaster beside this one has written into objects, in
// fields that this one does not know, is there after this one has changed them.
func TestFieldsOfLaterVersionsSurvive(t *testing.T) {
	c := newCluster(t)
	dscp := func(n int) model.NetProfile {
		return model.NetProfile{Key: model.NetProfileKey{Tenant: "default", Name: "p"}, DSCP: n}
	}
	before, after := []any{
		model.Tenant{Name: "blue"},
		network("n", "10.1.0.0/24"), policy("web"), dscp(1), group("g", "n"), rule("web", "1"),
		endpoint("n", "e", inGroup("g")),
		model.AppProfile{Key: model.AppProfileKey{Tenant: "default", Name: "a"}},
	}, []any{
		model.Tenant{Name: "blue", DefaultNetwork: "n2"},
		dscp(2), group("g", "n", "web"),
		model.AppProfile{Key: model.AppProfileKey{Tenant: "default", Name: "a"}, Groups: []model.GroupName{"g"}},
	}
	c.put(before...)
	c.put(network("blue:n2", "10.2.0.0/24"))
	const later = `"later":{"x":[1]}`
	had := map[string]string{}
	c.raw(func(tx store.Tx) {
		for key, value := range c.dump() {
			var r struct {
				V int             `json:"v"`
				D json.RawMessage `json:"d"`
			}
			if !strings.HasPrefix(key, store.Root+"state/global/") && !strings.HasPrefix(key, store.Root+"state/tenant/") || json.Unmarshal([]byte(value), &r) != nil || len(r.D) < 3 || r.D[0] != '{' {
				continue
			}
			had[key] = strings.Replace(value, `"d":{`, `"d":{`+later+`,`, 1)
			tx.Put(key, []byte(had[key]), nil)
		}
	})
	c.fresh()
	c.put(after...)
	changed := 0
	now := c.dump()
	for key, was := range had {
		if now[key] != was {
			changed++
		}
		if !strings.Contains(now[key], later) {
			t.Errorf("%s was %s, and is %s", key, was, now[key])
		}
	}
	if changed < len(after) {
		t.Errorf("%d rows were changed, want one of each of %d objects at least", changed, len(after))
	}
}
