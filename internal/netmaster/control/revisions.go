package control

import (
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// RevisionView is the View's part that says at which revisions rows were written.
type RevisionView struct {
	policies waiting.Changes
	fabric   waiting.Changes // of FabricObjects

	mu         *sync.RWMutex            // the View's
	written    map[writtenKey]lastWrite // see Written
	tenantRevs map[model.TenantName]tenantRevisions
	globalRev  store.Revision // of the last write of a namespace or the settings
	storeID    string         // whose revisions these are
	policyTurn uint64         // counts what may change the rows of policies and namespaces
}

func newRevisionView(mu *sync.RWMutex) *RevisionView {
	rv := &RevisionView{mu: mu}
	rv.reset()
	return rv
}

func (rv *RevisionView) reset() {
	rv.fabric.Tell()
	rv.written = map[writtenKey]lastWrite{}
	rv.turnPolicies()
	rv.globalRev = 0 // of another store, or an older one, maybe
	rv.tenantRevs = map[model.TenantName]tenantRevisions{}
}
