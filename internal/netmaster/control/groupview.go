package control

import (
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
)

// GroupView is the View's part with groups, and with the profiles and contracts that only
// groups name.
type GroupView struct {
	mu                   *sync.RWMutex // the View's
	groupRows            *rows[model.GroupKey, model.Group]
	groupsOfNetwork      index[model.NetworkKey, model.GroupKey]
	groupsOfPolicy       index[model.PolicyKey, model.GroupKey]
	groupsOfNetProfile   index[model.NetProfileKey, model.GroupKey]
	groupsOfExtContracts index[model.ExtContractsKey, model.GroupKey]
	netProfileRows       *rows[model.NetProfileKey, model.NetProfile]
	extContractsRows     *rows[model.ExtContractsKey, model.ExtContracts]
}

func newGroupView(mu *sync.RWMutex) *GroupView {
	gv := &GroupView{mu: mu}
	gv.groupRows = newRows[model.GroupKey, model.Group](mu, func(k model.GroupKey) model.TenantName { return k.Tenant }, lessGroup)
	gv.netProfileRows = newRows[model.NetProfileKey, model.NetProfile](mu, func(k model.NetProfileKey) model.TenantName { return k.Tenant }, func(a, b model.NetProfileKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) })
	gv.extContractsRows = newRows[model.ExtContractsKey, model.ExtContracts](mu, func(k model.ExtContractsKey) model.TenantName { return k.Tenant }, func(a, b model.ExtContractsKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) })
	gv.reset()
	return gv
}

func (gv *GroupView) reset() {
	gv.extContractsRows.reset()
	gv.groupRows.reset()
	gv.groupsOfNetwork = index[model.NetworkKey, model.GroupKey]{}
	gv.groupsOfPolicy = index[model.PolicyKey, model.GroupKey]{}
	gv.groupsOfNetProfile = index[model.NetProfileKey, model.GroupKey]{}
	gv.groupsOfExtContracts = index[model.ExtContractsKey, model.GroupKey]{}
	gv.netProfileRows.reset()
}
