package control

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/relay"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// rowsGrace is for how long a host goes on reading a tenant of which it has no endpoint any
// more: the next container of the tenant then costs no list.
const rowsGrace = 5 * time.Minute

// HostRowsView is the View's part that says which rows concern each host: what its own
// committed endpoints need, whatever the host asks for. It implements relay.Access.
type HostRowsView struct {
	settings *SettingsView
	tenants  *TenantView

	mu         *sync.RWMutex                                     // the View's
	endpoints  map[model.HostName]map[model.TenantName]int       // how many a host has
	leaving    map[model.HostName]map[model.TenantName]time.Time // tenants that a host has none of any more, and until when it reads them
	services   map[model.TenantName]int                          // of Kubernetes on a tenant's networks
	changed    map[model.HostName]struct{}                       // hosts that may read something else since takeChanged
	changedAll bool
	now        func() time.Time
}

func newHostRowsView(mu *sync.RWMutex, settings *SettingsView, tenants *TenantView) *HostRowsView {
	hv := &HostRowsView{mu: mu, settings: settings, tenants: tenants, now: time.Now}
	hv.reset()
	return hv
}

func (hv *HostRowsView) reset() {
	hv.endpoints = map[model.HostName]map[model.TenantName]int{}
	hv.leaving = map[model.HostName]map[model.TenantName]time.Time{}
	hv.services = map[model.TenantName]int{}
	hv.changed, hv.changedAll = map[model.HostName]struct{}{}, true
}

func (hv *HostRowsView) enterEndpoint(old, now *model.Endpoint) {
	if now != nil && now.Host != "" {
		hv.count(now.Host, now.Key.Network.Tenant, 1)
	}
	if old != nil && old.Host != "" {
		hv.count(old.Host, old.Key.Network.Tenant, -1)
	}
}

// enterClusterService counts a service of Kubernetes: the first of a tenant concerns all hosts.
func (hv *HostRowsView) enterClusterService(old, now *model.Service) {
	for _, s := range []*model.Service{now, old} {
		if s == nil {
			continue
		}
		t, by := s.Network.Tenant, 1
		if s == old {
			by = -1
		}
		was := hv.services[t]
		if hv.services[t] += by; hv.services[t] == 0 {
			delete(hv.services, t)
		}
		hv.changedAll = hv.changedAll || (was == 0) != (was+by == 0)
	}
}

func (hv *HostRowsView) count(h model.HostName, t model.TenantName, by int) {
	of := hv.endpoints[h]
	if of == nil {
		of = map[model.TenantName]int{}
		hv.endpoints[h] = of
	}
	was := of[t]
	if of[t] = was + by; of[t] == 0 {
		if delete(of, t); len(of) == 0 {
			delete(hv.endpoints, h)
		}
		if hv.leaving[h] == nil {
			hv.leaving[h] = map[model.TenantName]time.Time{}
		}
		hv.leaving[h][t] = hv.now().Add(rowsGrace)
		return
	}
	if was == 0 {
		if delete(hv.leaving[h], t); len(hv.leaving[h]) == 0 {
			delete(hv.leaving, h)
		}
		hv.changed[h] = struct{}{}
	}
}

// expire ends what hosts read of tenants that have left them long enough ago.
func (hv *HostRowsView) expire() {
	hv.mu.Lock()
	defer hv.mu.Unlock()
	now := hv.now()
	for h, of := range hv.leaving {
		for t, until := range of {
			if now.After(until) {
				delete(of, t)
				hv.changed[h] = struct{}{}
			}
		}
		if len(of) == 0 {
			delete(hv.leaving, h)
		}
	}
}

// takeChanged returns the hosts that may read something else since the last call.
func (hv *HostRowsView) takeChanged() (out relay.Clients) {
	hv.mu.Lock()
	defer hv.mu.Unlock()
	out.All = hv.changedAll
	for h := range hv.changed {
		out.Names = append(out.Names, string(h))
	}
	clear(hv.changed)
	hv.changedAll = false
	return out
}

// Of returns how much of a tenant a host reads.
func (hv *HostRowsView) Of(h model.HostName, t model.TenantName) tables.HostRows {
	return read(hv.mu, func() tables.HostRows { return hv.of(h, t) })
}

func (hv *HostRowsView) of(h model.HostName, t model.TenantName) tables.HostRows {
	row, known := hv.tenants.tenantRows.all[t]
	_, speaks := hv.settings.bgpRows.all[tables.BgpKey{Host: h}]
	return tables.HostRowsOf(t, row, known, hv.services[t] > 0, speaks, func(t model.TenantName) bool { return hv.hasEndpoints(h, t) })
}

func (hv *HostRowsView) hasEndpoints(h model.HostName, t model.TenantName) bool {
	_, left := hv.leaving[h][t]
	return left || hv.endpoints[h][t] > 0
}

// The grades of mirrors. Those of rows outside of tenants name the host only where it has
// secrets there, so that other hosts share what is made for them.
var (
	gradeEverything = relay.Grade{Name: "everything"} // of clients that are no hosts
	gradeRegistered = relay.Grade{Name: "registered"} // of tables.Registered
	gradeGlobal     = relay.Grade{Name: "global"}
	tenantGrades    = map[tables.HostRows]relay.Grade{
		tables.NetworkRows: {Name: "networks", Partial: true}, tables.PeerRows: {Name: "peer", Partial: true}, tables.AllRows: {Name: "tenant"},
	}
)

const gradeGlobalOf = "global of "

// Grade implements relay.Access.
func (hv *HostRowsView) Grade(who string, prefixes []string) (relay.Grade, error) {
	if who == "" {
		return gradeEverything, nil
	}
	h := model.HostName(who)
	if len(prefixes) > 0 && !slices.ContainsFunc(prefixes, func(p string) bool { return !isRegistered(p) }) {
		return gradeRegistered, nil
	}
	var of []model.TenantName
	for _, p := range prefixes {
		t, one := tables.TenantOfPrefix(p)
		if !one && !strings.HasPrefix(p, tables.GlobalPrefix) {
			return relay.Grade{}, model.Errorf(model.ErrInvalid, "mirror: %q has rows of more than one tenant", p)
		}
		of = append(of, t)
	}
	if of = slices.Compact(of); len(of) > 1 {
		return relay.Grade{}, model.Errorf(model.ErrInvalid, "mirror: %q have rows of more than one tenant", prefixes)
	}
	hv.mu.RLock()
	defer hv.mu.RUnlock()
	if len(of) == 1 && of[0] != "" {
		return tenantGrades[hv.of(h, of[0])], nil
	}
	if _, speaks := hv.settings.bgpRows.all[tables.BgpKey{Host: h}]; speaks {
		return relay.Grade{Name: gradeGlobalOf + who}, nil
	}
	return gradeGlobal, nil
}

func isRegistered(key string) bool {
	return slices.ContainsFunc(tables.Registered, func(p string) bool { return strings.HasPrefix(key, p) })
}

// Show implements relay.Access.
func (hv *HostRowsView) Show(g relay.Grade, kv store.KV) (store.KV, bool) {
	if g == gradeEverything {
		return kv, true
	}
	if g == gradeRegistered {
		return kv, isRegistered(kv.Key)
	}
	for rows, grade := range tenantGrades {
		if grade == g {
			return kv, rows.Shows(kv.Key)
		}
	}
	host, _ := strings.CutPrefix(g.Name, gradeGlobalOf)
	return tables.ShowGlobal(model.HostName(host), kv)
}
