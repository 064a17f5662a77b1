package control

import (
	"cmp"
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// SettingsView is the View's part with what the cluster has one of, and hosts' BGP settings.
type SettingsView struct {
	settings waiting.Changes // of the cluster's settings
	intent   waiting.Changes // of the settings, and of tenants

	mu                *sync.RWMutex // the View's
	globalRows        *rows[tables.GlobalKey, model.Global]
	aciGwRows         *rows[tables.AciGwKey, model.AciGw]
	aciFabric         tables.AciFabric
	kubernetesCluster model.KubernetesCluster
	bgpRows           *rows[tables.BgpKey, model.Bgp]
}

func newSettingsView(mu *sync.RWMutex) *SettingsView {
	s := &SettingsView{mu: mu}
	s.globalRows = newRows[tables.GlobalKey, model.Global](mu, nil, func(_, _ tables.GlobalKey) int { return 0 })
	s.aciGwRows = newRows[tables.AciGwKey, model.AciGw](mu, nil, func(_, _ tables.AciGwKey) int { return 0 })
	s.bgpRows = newRows[tables.BgpKey, model.Bgp](mu, nil, func(a, b tables.BgpKey) int { return cmp.Compare(a.Host, b.Host) })
	s.reset()
	return s
}

func (s *SettingsView) reset() {
	s.aciFabric = tables.AciFabric{}
	s.aciGwRows.reset()
	s.bgpRows.reset()
	s.globalRows.reset()
	s.kubernetesCluster = model.KubernetesCluster{}
}
