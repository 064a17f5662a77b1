package control

import (
	"cmp"
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
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
