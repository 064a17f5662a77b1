package control

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// A tenant is deleted, or something appears in it, never both.
func TestDeleteTenantWhileFilling(t *testing.T) {
	cs := replicas(t, 2)
	kinds := []func(i int) any{
		func(int) any { return model.NetProfile{Key: npKey("t:np")} },
		func(int) any { return contracts("t:ec") },
		func(int) any { return app("t:app", "g") },
		func(int) any { return service("t:s", "n", "", "a=b") },
		func(int) any { return network("t:n", "10.1.0.0/24") },
		func(int) any {
			return with(group("t:g", "n"), func(g *model.Group) { g.NetProfile, g.ExtContracts = "np", []string{"ec"} })
		},
	}
	for round := range 10 {
		cs[0].put(model.Tenant{Name: "t"})
		outcomesOf(t, parallel(20, func(i int) error {
			c := cs[i%2]
			switch i {
			case 0, 1:
				return c.remove(model.TenantName("t"))
			case 2:
				return c.remove(groupKey("t:g"))
			case 3:
				return c.remove(npKey("t:np"))
			case 4:
				return c.remove(ecKey("t:ec"))
			case 5:
				return c.remove(appKey("t:app"))
			case 6:
				return c.remove(svcKey("t:s"))
			case 7:
				return c.remove(netKey("t:n"))
			}
			return c.try(kinds[(i+round)%len(kinds)](i))
		}))
		checkInvariants(t, cs[round%2])
		checkKinds(t, cs[round%2])
	}
}
