package controller_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// TestNextLeaderDeletesWhatIsUnwanted: objects that became unwanted while there was no leader are deleted by the
// next one. Of very many problems the store has some, and the number of others.
func TestNextLeaderDeletesWhatIsUnwanted(t *testing.T) {
	c, sim := newCluster(t), newSim(t)
	c.aci()
	c.must(put(c, c.Networks.ChangeNetwork, network("tunnels", 9, model.EncapVXLAN)))
	var far []model.GroupName
	for i := range 105 {
		name := fmt.Sprint("far", i)
		c.must(c.group(model.Group{Key: groupKey(name), Network: "tunnels"}))
		far = append(far, model.GroupName(name))
	}
	c.must(c.profile("shop", far...))
	_, stop := c.lead(apic(sim))
	c.until("problems beyond those that are kept", func() bool {
		f := c.Current().Settings.AciFabric()
		return f.InStep && len(f.Problems) == 100 && f.More == 5
	})
	stop()
	c.remove(c.Tenants.DeleteAppProfile(model.AppProfileKey{Tenant: "blue", Name: "shop"}))
	for _, name := range far {
		c.remove(control.DeleteGroup(groupKey(string(name))))
	}
	for _, name := range []model.NetworkName{"net0", "net1", "net2", "tunnels"} {
		c.remove(c.Networks.DeleteNetwork(model.NetworkKey{Tenant: "blue", Name: name}))
	}
	c.must(put(c, c.Settings.ChangeGlobal, model.Global{Infra: model.InfraDefault}))
	ours := func() (n int) {
		for dn := range sim.Tree() {
			if strings.Contains(dn, "ap-shop") {
				n++
			}
		}
		return n
	}
	if ours() == 0 {
		t.Fatal("the fabric has nothing to be taken away")
	}
	_, _ = c.lead(apic(sim))
	c.until("nothing is left", func() bool { return ours() == 0 && !c.Current().Settings.AciFabric().Kept })
}
