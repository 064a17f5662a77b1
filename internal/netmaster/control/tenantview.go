package control

import (
	"cmp"
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TenantView is the View's part with tenants, app profiles and volumes.
type TenantView struct {
	unrouted waiting.Changes // a tenant without a router has come

	mu                 *sync.RWMutex // the View's
	tenantRows         *rows[model.TenantName, model.Tenant]
	appProfileRows     *rows[model.AppProfileKey, model.AppProfile]
	appProfilesOfGroup index[model.GroupKey, model.AppProfileKey]
	appProfileMod      map[model.AppProfileKey]store.Revision // of the last write
	volumeRows         *rows[model.VolumeKey, model.Volume]
	volumeProfileRows  *rows[model.VolumeProfileKey, model.VolumeProfile]
}

func newTenantView(mu *sync.RWMutex) *TenantView {
	tv := &TenantView{mu: mu}
	tv.tenantRows = newRows[model.TenantName, model.Tenant](mu, nil, cmp.Compare[model.TenantName])
	tv.appProfileRows = newRows[model.AppProfileKey, model.AppProfile](mu, func(k model.AppProfileKey) model.TenantName { return k.Tenant }, func(a, b model.AppProfileKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) })
	tv.volumeRows = newRows[model.VolumeKey, model.Volume](mu, func(k model.VolumeKey) model.TenantName { return k.Tenant }, func(a, b model.VolumeKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) })
	tv.volumeProfileRows = newRows[model.VolumeProfileKey, model.VolumeProfile](mu, func(k model.VolumeProfileKey) model.TenantName { return k.Tenant }, func(a, b model.VolumeProfileKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) })
	tv.reset()
	return tv
}

func (tv *TenantView) reset() {
	tv.appProfileRows.reset()
	tv.appProfilesOfGroup = index[model.GroupKey, model.AppProfileKey]{}
	tv.appProfileMod = map[model.AppProfileKey]store.Revision{}
	tv.tenantRows.reset()
	tv.volumeRows.reset()
	tv.volumeProfileRows.reset()
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
		tv.unrouted.Tell()
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

// Volumes returns volumes.
func (tv *TenantView) Volumes(t model.TenantName) []model.Volume { return tv.volumeRows.list(t) }

// Volume finds a volume.
func (tv *TenantView) Volume(k model.VolumeKey) (model.Volume, bool) { return tv.volumeRows.find(k) }

// VolumeProfiles returns volume profiles.
func (tv *TenantView) VolumeProfiles(t model.TenantName) []model.VolumeProfile {
	return tv.volumeProfileRows.list(t)
}

// VolumeProfile finds a volume profile.
func (tv *TenantView) VolumeProfile(k model.VolumeProfileKey) (model.VolumeProfile, bool) {
	return tv.volumeProfileRows.find(k)
}
