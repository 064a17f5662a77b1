package control

import (
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/ipam"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// NetworkView is the View's part with networks.
type NetworkView struct {
	networksChanged waiting.Changes // or went

	mu          *sync.RWMutex // the View's
	networkRows *rows[model.NetworkKey, model.Network]
}

func newNetworkView(mu *sync.RWMutex) *NetworkView {
	nv := &NetworkView{mu: mu}
	nv.networkRows = newRows[model.NetworkKey, model.Network](mu, func(k model.NetworkKey) model.TenantName { return k.Tenant }, lessNetwork)
	nv.reset()
	return nv
}

func (nv *NetworkView) reset() {
	nv.networkRows.reset()
}

// List returns the networks of a tenant, "" = of all.
func (nv *NetworkView) List(t model.TenantName) []model.Network { return nv.networkRows.list(t) }

// Get finds a network.
func (nv *NetworkView) Get(k model.NetworkKey) (model.Network, bool) { return nv.networkRows.find(k) }

// TagsInUse lists the tags of an encapsulation that networks have, such as
// "1-4, 6-7, 5000".
func (nv *NetworkView) TagsInUse(e model.Encap) string {
	nv.mu.RLock()
	defer nv.mu.RUnlock()
	var n ipam.Numbers
	for _, net := range nv.networkRows.all {
		if net.Encap == e {
			n.Add(net.Tag)
		}
	}
	return n.String()
}

func (nv *NetworkView) enterNetwork(ch tables.Change) {
	nv.networkRows.enter(ch)
	nv.networksChanged.Notify()
}
