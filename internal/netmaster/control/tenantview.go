package control

import (
	"cmp"
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TenantView is the View's part with tenants, app profiles, and what former versions had of
// tenants.
type TenantView struct {
	unrouted waiting.Changes // a tenant without a router has come

	mu                 *sync.RWMutex // the View's
	tenantRows         *rows[model.TenantName, model.Tenant]
	appProfileRows     *rows[model.AppProfileKey, model.AppProfile]
	appProfilesOfGroup index[model.GroupKey, model.AppProfileKey]
	appProfileMod      map[model.AppProfileKey]store.Revision // of the last write
	dropped            map[string]tables.Dropped              // rows of kinds that this version does not keep, by key
}

func newTenantView(mu *sync.RWMutex) *TenantView {
	tv := &TenantView{mu: mu}
	tv.tenantRows = newRows[model.TenantName, model.Tenant](mu, nil, cmp.Compare[model.TenantName])
	tv.appProfileRows = newRows[model.AppProfileKey, model.AppProfile](mu, func(k model.AppProfileKey) model.TenantName { return k.Tenant }, func(a, b model.AppProfileKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) })
	tv.reset()
	return tv
}

func (tv *TenantView) reset() {
	tv.appProfileRows.reset()
	tv.appProfilesOfGroup = index[model.GroupKey, model.AppProfileKey]{}
	tv.appProfileMod = map[model.AppProfileKey]store.Revision{}
	tv.tenantRows.reset()
	tv.dropped = map[string]tables.Dropped{}
}

func (tv *TenantView) enterAppProfile(ch tables.Change) {
	k, old, now := tv.appProfileRows.enter(ch)
	ofGroup, mods := tv.appProfilesOfGroup, tv.appProfileMod
	if old != nil {
		for _, g := range old.Groups {
			ofGroup.put(model.GroupKey{Tenant: k.Tenant, Name: g}, k, false)
		}
		delete(mods, k)
	}
	if now != nil {
		mods[k] = ch.Mod
		for _, g := range now.Groups {
			ofGroup.put(model.GroupKey{Tenant: k.Tenant, Name: g}, k, true)
		}
	}
}

// AppProfiles returns app profiles.
func (tv *TenantView) AppProfiles(t model.TenantName) []model.AppProfile {
	return tv.appProfileRows.list(t)
}

// AppProfile finds an app profile.
func (tv *TenantView) AppProfile(k model.AppProfileKey) (model.AppProfile, bool) {
	return tv.appProfileRows.find(k)
}

// AppProfileOf returns the app profile of a group: the one written last, if it
// is in several.
func (tv *TenantView) AppProfileOf(g model.GroupKey) (k model.AppProfileKey, ok bool) {
	tv.mu.RLock()
	defer tv.mu.RUnlock()
	for p := range tv.appProfilesOfGroup[g] {
		a, b := tv.appProfileMod[p], tv.appProfileMod[k]
		if !ok || a > b || a == b && p.Name < k.Name {
			k, ok = p, true
		}
	}
	return k, ok
}

// enterTenant enters a change of a tenant, and tells of one without a router.
func (tv *TenantView) enterTenant(ch tables.Change) {
	if _, _, now := tv.tenantRows.enter(ch); now != nil && now.Router == 0 {
		tv.unrouted.Notify()
	}
}

// withoutRouter returns the tenants that have no router.
func (tv *TenantView) withoutRouter() (out []model.TenantName) {
	for _, t := range tv.List() {
		if t.Router == 0 {
			out = append(out, t.Name)
		}
	}
	return out
}

// List returns all tenants.
func (tv *TenantView) List() []model.Tenant { return tv.tenantRows.list("") }

// Get finds a tenant.
func (tv *TenantView) Get(k model.TenantName) (model.Tenant, bool) { return tv.tenantRows.find(k) }

// enterDropped enters a change of a row that is of no table.
func (tv *TenantView) enterDropped(ev store.Event) {
	d, is := tables.DroppedAt(ev.KV.Key)
	switch {
	case !is:
	case ev.Deleted():
		delete(tv.dropped, ev.KV.Key)
	default:
		tv.dropped[ev.KV.Key] = d
	}
}
