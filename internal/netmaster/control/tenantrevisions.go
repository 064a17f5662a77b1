package control

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// tenantRevisions are of the rows of a tenant that hosts follow as one
// (tables.TenantRest).
type tenantRevisions struct{ written, deleted store.Revision }

// restTenant returns whose such a row is.
func restTenant(key any) (t model.TenantName, is bool) {
	switch k := key.(type) {
	case model.GroupKey:
		return k.Tenant, true
	case tables.IdentityKey:
		return k.Tenant, true
	case model.NetworkKey:
		return k.Tenant, true
	case model.NetProfileKey:
		return k.Tenant, true
	case model.PolicyKey:
		return k.Tenant, true
	case tables.ReplacementKey:
		return k.Tenant, true
	case model.RuleKey:
		return k.Tenant, true
	case model.ServiceKey:
		return k.Tenant, true
	case tables.StagedKey:
		return k.Tenant, true
	}
	return "", false
}

// noteTenant notes when a tenant's rows have changed. When something was deleted that a
// list lacks is not known. The caller holds mu.
func (rv *RevisionView) noteTenant(ch tables.Change, b store.Batch) {
	t, is := restTenant(ch.Key)
	if !is {
		return
	}
	revs := rv.tenantRevs[t]
	switch {
	case ch.Create != 0: // whether it can be read or not
		revs.written = max(revs.written, ch.Mod)
	case !b.Listed:
		revs.deleted = max(revs.deleted, ch.Mod)
	}
	rv.tenantRevs[t] = revs
}

// TenantRevisions returns when something of a tenant that is no endpoint was written, and
// deleted, last, as far as that is known. A host that follows these rows reaches the
// former for sure; of what was deleted it may not be told, if it lists later.
func (rv *RevisionView) TenantRevisions(t model.TenantName) (written, deleted store.Revision) {
	r := read(rv.mu, func() tenantRevisions { return rv.tenantRevs[t] })
	return r.written, r.deleted
}
