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

// AciFabric returns how the ACI fabric is kept; zero where none was kept yet.
func (s *SettingsView) AciFabric() AciFabric {
	return read(s.mu, func() tables.AciFabric { return s.aciFabric })
}

// AciGw returns the settings of the ACI fabric.
func (s *SettingsView) AciGw() (model.AciGw, bool) { return s.aciGwRows.find(tables.AciGwKey{}) }

// Bgps returns the BGP settings of all hosts.
func (s *SettingsView) Bgps() []model.Bgp { return s.bgpRows.list("") }

// Bgp finds a host's BGP settings.
func (s *SettingsView) Bgp(h model.HostName) (model.Bgp, bool) {
	return s.bgpRows.find(tables.BgpKey{Host: h})
}

// Global returns the settings.
func (s *SettingsView) Global() (model.Global, bool) { return s.globalRows.find(tables.GlobalKey{}) }

func (s *SettingsView) enterGlobal(ch tables.Change) {
	s.globalRows.enter(ch)
	s.settings.Notify()
	s.intent.Notify()
}

// KubernetesCluster returns which Kubernetes the store follows; it has no UID where that
// is none yet.
func (s *SettingsView) KubernetesCluster() model.KubernetesCluster {
	return read(s.mu, func() model.KubernetesCluster { return s.kubernetesCluster })
}
