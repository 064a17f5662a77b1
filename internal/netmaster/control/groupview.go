package control

import (
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// GroupView is the View's part with groups.
type GroupView struct {
	mu                   *sync.RWMutex // the View's
	groupRows            *rows[model.GroupKey, model.Group]
	groupsOfNetwork      index[model.NetworkKey, model.GroupKey]
	groupsOfPolicy       index[model.PolicyKey, model.GroupKey]
	groupsOfNetProfile   index[model.NetProfileKey, model.GroupKey]
	groupsOfExtContracts index[model.ExtContractsKey, model.GroupKey]
}

func newGroupView(mu *sync.RWMutex) *GroupView {
	gv := &GroupView{mu: mu}
	gv.groupRows = newRows[model.GroupKey, model.Group](mu, func(k model.GroupKey) model.TenantName { return k.Tenant }, lessGroup)
	gv.reset()
	return gv
}

func (gv *GroupView) reset() {
	gv.groupRows.reset()
	gv.groupsOfNetwork = index[model.NetworkKey, model.GroupKey]{}
	gv.groupsOfPolicy = index[model.PolicyKey, model.GroupKey]{}
	gv.groupsOfNetProfile = index[model.NetProfileKey, model.GroupKey]{}
	gv.groupsOfExtContracts = index[model.ExtContractsKey, model.GroupKey]{}
}

// OfPolicy returns the groups that a policy is attached to.
func (gv *GroupView) OfPolicy(k model.PolicyKey) []model.Group {
	return gv.groupRows.byIndex(func() map[model.GroupKey]struct{} { return gv.groupsOfPolicy[k] })
}

// OfExtContracts returns the endpoint groups that name a group of
// external contracts.
func (gv *GroupView) OfExtContracts(k model.ExtContractsKey) []model.Group {
	return gv.groupRows.byIndex(func() map[model.GroupKey]struct{} { return gv.groupsOfExtContracts[k] })
}

// enterGroup enters a change of a group, and returns what the group was and is; nil = it
// is not there.
func (gv *GroupView) enterGroup(ch tables.Change) (old, now *model.Group) {
	_, old, now = gv.groupRows.enter(ch)
	if old != nil {
		gv.indexGroup(*old, false)
	}
	if now != nil {
		gv.indexGroup(*now, true)
	}
	return old, now
}

// indexGroup enters (or takes out) what a group names.
func (gv *GroupView) indexGroup(g model.Group, in bool) {
	t, k := g.Key.Tenant, g.Key
	gv.groupsOfNetwork.put(g.NetworkKey(), k, in)
	if g.NetProfile != "" {
		gv.groupsOfNetProfile.put(model.NetProfileKey{Tenant: t, Name: g.NetProfile}, k, in)
	}
	for _, name := range g.ExtContracts {
		gv.groupsOfExtContracts.put(model.ExtContractsKey{Tenant: t, Name: name}, k, in)
	}
	for _, p := range g.Policies {
		gv.groupsOfPolicy.put(model.PolicyKey{Tenant: t, Name: p}, k, in)
	}
}

// List returns the groups of a tenant, "" = of all.
func (gv *GroupView) List(t model.TenantName) []model.Group { return gv.groupRows.list(t) }

// Get finds a group.
func (gv *GroupView) Get(k model.GroupKey) (model.Group, bool) { return gv.groupRows.find(k) }

// Place returns the network on which endpoints of a group, or of none, are: the one asked for,
// or the group's. Both must exist and belong together.
func (gv *GroupView) Place(g model.GroupKey, asked model.NetworkName, networks *NetworkView) (model.NetworkName, error) {
	if g.Name != "" {
		group, ok := gv.Get(g)
		switch {
		case !ok:
			return "", model.Errorf(model.ErrNotFound, "endpoint group %q does not exist", g)
		case asked == "":
			asked = group.Network
		case asked != group.Network:
			return "", model.Errorf(model.ErrConflict, "endpoint group %q is on network %q, not on %q", g, group.Network, asked)
		}
	}
	k := model.NetworkKey{Tenant: g.Tenant, Name: asked}
	if _, ok := networks.Get(k); !ok {
		return "", model.Errorf(model.ErrNotFound, "network %q does not exist", k)
	}
	return asked, nil
}

// OfNetwork returns the groups on a network.
func (gv *GroupView) OfNetwork(k model.NetworkKey) []model.Group {
	return gv.groupRows.byIndex(func() map[model.GroupKey]struct{} { return gv.groupsOfNetwork[k] })
}

// OfNetProfile returns the groups that name a net profile.
func (gv *GroupView) OfNetProfile(k model.NetProfileKey) []model.Group {
	return gv.groupRows.byIndex(func() map[model.GroupKey]struct{} { return gv.groupsOfNetProfile[k] })
}
