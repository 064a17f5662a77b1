package control

import (
	"fmt"
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// RevisionView is the View's part that says at which revisions rows were written.
type RevisionView struct {
	policies waiting.Changes
	fabric   waiting.Changes // of FabricObjects

	mu               *sync.RWMutex            // the View's
	written          map[writtenKey]lastWrite // see Written
	tenantRevs       map[model.TenantName]tenantRevisions
	globalRev        store.Revision // of the last write of a namespace or the settings
	storeID          string         // whose revisions these are
	policyGeneration uint64         // counts what may change the rows of policies and namespaces
}

func newRevisionView(mu *sync.RWMutex) *RevisionView {
	rv := &RevisionView{mu: mu}
	rv.reset()
	return rv
}

func (rv *RevisionView) reset() {
	rv.fabric.Notify()
	rv.written = map[writtenKey]lastWrite{}
	rv.bumpPolicies()
	rv.globalRev = 0 // of another store, or an older one, maybe
	rv.tenantRevs = map[model.TenantName]tenantRevisions{}
}

// FabricChanged returns what is closed when something of FabricObjects changes.
func (rv *RevisionView) FabricChanged() <-chan struct{} { return rv.fabric.Next() }

// notePolicies counts a change of what policies in force are made of. The caller
// holds mu, as of the next two.
func (rv *RevisionView) notePolicies(ch tables.Change) {
	switch ch.Key.(type) {
	case model.NamespaceName, tables.GlobalKey:
		if !ch.Deleted() {
			rv.globalRev = max(rv.globalRev, ch.Mod)
		}
	}
	switch ch.Key.(type) {
	case model.PolicyKey, model.RuleKey, model.NamespaceName, model.TenantName, model.NetworkKey, model.GroupKey, tables.GlobalKey:
		rv.bumpPolicies()
	}
}

func (rv *RevisionView) bumpPolicies() {
	rv.policyGeneration++
	rv.policies.Notify()
}

// PolicyGeneration returns a number that is another one whenever policies, namespaces,
// tenants, networks, groups or the settings have changed, and what is closed when they
// do next.
func (rv *RevisionView) PolicyGeneration() (turn uint64, next <-chan struct{}) {
	next = rv.policies.Next() // before the look, which then misses none
	return read(rv.mu, func() uint64 { return rv.policyGeneration }), next
}

// GlobalRevision returns the revision at which a namespace or the settings were written
// last: what policies mean depends on them, and hosts follow them apart from tenants'
// rows. Each reaches it, since what was written then, or what deleted that since, is
// among what it follows. Deletions do not count: a namespace that is gone has no pods.
func (rv *RevisionView) GlobalRevision() store.Revision {
	return read(rv.mu, func() store.Revision { return rv.globalRev })
}

// noteTenant notes in which commit a tenant's rows have changed. Of what a list lacks that
// is not known: hosts could wait in vain for the list's own revision. The caller holds mu.
func (rv *RevisionView) noteTenant(ch tables.Change, b store.Batch) {
	t, is := tenantOfRow(ch.Key)
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

// TenantRevisions returns the commits in which something of a tenant that is no endpoint
// was written, and deleted, last, as far as that is known. Hosts follow these rows as one,
// so each host reaches both.
func (rv *RevisionView) TenantRevisions(t model.TenantName) (written, deleted store.Revision) {
	r := read(rv.mu, func() tenantRevisions { return rv.tenantRevs[t] })
	return r.written, r.deleted
}

// Written returns the revision of the last write of an object that users write, as far
// as the view has it: 0 = there is none. A network policy is written with each of its rules.
// Of endpoints and hosts it keeps none. kind is as in lists to be applied.
func (rv *RevisionView) Written(kind, key string) store.Revision {
	return read(rv.mu, func() store.Revision { return rv.written[writtenKeyOf(kind, key)].rev })
}

// note keeps the revision of a change.
func (rv *RevisionView) note(kind string, ch tables.Change) {
	if kind == "" {
		return
	}
	if fabricKinds[kind] {
		rv.fabric.Notify()
	}
	k := writtenKey{kind, fmt.Sprint(ch.Key)}
	switch key := ch.Key.(type) { // those whose text is not what users write
	case tables.GlobalKey, tables.AciGwKey:
		k.key = kind
	case tables.BgpKey:
		k.key = string(key.Host)
	}
	if ch.Deleted() {
		delete(rv.written, k)
	} else {
		rv.written[k] = lastWrite{ch.Row, ch.Mod}
	}
}

type writtenKey struct{ kind, key string }

func writtenKeyOf(kind, key string) writtenKey {
	if kind == "networkPolicy" { // they are rows of the same table
		kind = "policy"
	}
	return writtenKey{kind, key}
}

// lastWrite is where an object's row lies, and the revision of its last write.
type lastWrite struct {
	row string
	rev store.Revision
}

// tenantRevisions are of the rows of a tenant that hosts follow as one
// (tables.TenantRest).
type tenantRevisions struct{ written, deleted store.Revision }

// tenantOfRow returns whose such a row is.
func tenantOfRow(key any) (t model.TenantName, is bool) {
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
	case tables.TrialKey:
		return k.Tenant, k.Tenant != ""
	}
	return "", false
}
