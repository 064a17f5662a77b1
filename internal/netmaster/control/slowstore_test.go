package control

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestDeletionsOnSlowStore: with a store that takes a fifth of a second for each answer, as
// on a disk that is slow, deletions are over, or refused, within the three seconds that a
// client waits, and well within: they do not ask for one thing after the other.
func TestDeletionsOnSlowStore(t *testing.T) {
	const slow = 200 * time.Millisecond
	for name, st := range map[string]func() *memory.Store{
		"etcd": memory.New, "Consul": func() *memory.Store { return memory.NewWith(memory.Consul) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := onStore(t, st())
				c.put(model.Tenant{Name: "blue"}, model.Tenant{Name: "red"}, network("red:n", "10.1.0.0/24"),
					network("idle", "10.2.0.0/24"), network("busy", "10.3.0.0/24"), network("named", "10.4.0.0/24"),
					policy("idle"), policy("busy"), group("web", "named", "busy"), model.NetProfile{Key: npKey("idle")})
				c.create(endpoint("busy", "e"))
				c.fresh()
				c.st.Slow(slow)
				for _, d := range []struct {
					name   string
					key    any
					trips  int // most, one after the other
					refuse error
				}{
					{"a tenant", model.TenantName("blue"), 3, nil},
					{"a tenant in use", model.TenantName("red"), 4, model.ErrInUse},
					{"a network", netKey("idle"), 3, nil},
					{"a network with endpoints", netKey("busy"), 4, model.ErrInUse},
					{"a network with groups", netKey("named"), 4, model.ErrInUse},
					{"a policy", policyKey("idle"), 3, nil},
					{"a policy in use", policyKey("busy"), 4, model.ErrInUse},
					{"a net profile", npKey("idle"), 3, nil},
				} {
					begin := time.Now()
					if err := c.remove(d.key); !errors.Is(err, d.refuse) {
						t.Errorf("%s: %v", d.name, err)
					}
					if trips := int(time.Since(begin) / slow); trips > d.trips {
						t.Errorf("%s: %d round trips one after the other, want %d", d.name, trips, d.trips)
					}
				}
				c.st.Slow(0)
			})
		})
	}
}

// TestManyRulesAreReplacedOnSlowStore: transactions of one replacement do not wait for each
// other's answers.
func TestManyRulesAreReplacedOnSlowStore(t *testing.T) {
	const slow, rules = 100 * time.Millisecond, 2000
	c := newCluster(t)
	c.ok(c.replace(manyRules(1, 1)))
	c.st.Slow(slow)
	begin := time.Now()
	c.ok(c.replace(manyRules(rules, 2)))
	took := time.Since(begin)
	c.st.Slow(0)
	if most := 2 * rules / partSize * slow; took > most { // an answer for each transaction, one after the other
		t.Errorf("it took %v, and one after the other %v at least", took, most)
	}
	if m, n := marks(c.fresh(), rules); m != "2" || n != rules {
		t.Errorf("%d rules, %s", n, m)
	}
}
