package control

import (
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
)

// NetworkView is the View's part with networks.
type NetworkView struct {
	networksCame waiting.Changes // or went

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
