package control

import (
	"log/slog"
	"net/netip"
	"reflect"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// View is the mirrored state of the cluster with its indexes: what reads are
// answered from and where free addresses and numbers are looked for. Each
// method answers from whole transactions; two calls may see different ones.
// Slices that it returns are in key order and must not be changed.
type View struct {
	log *slog.Logger

	mu    sync.RWMutex
	rev   store.Revision
	parts []any // of the kinds' files; see part
	rules *tables.InForce

	endpoints map[model.EndpointKey]model.Endpoint
	listed    lists[model.Endpoint] // of networks, groups and hosts

	endpointsOfNetwork index[model.NetworkKey, model.EndpointKey]
	endpointsOfGroup   index[model.GroupKey, model.EndpointKey]
	endpointsOfHost    index[model.HostName, model.EndpointKey]
	endpointsByText    index[string, model.EndpointKey] // id, container and name
	identityUsers      map[model.Identity]int

	interned map[tables.InternKey]tables.Interned
	pools    map[model.NetworkKey]tables.Pools
	spaces   map[model.NetworkKey]*space
	numbers  map[tables.NumberKind]*numbers
	settling []settling

	settings     waiting.Changes // of the cluster's settings
	intent       waiting.Changes // of the settings, and of tenants
	networksCame waiting.Changes // or went
	unrouted     waiting.Changes // a tenant without a router has come
	fabric       waiting.Changes // of FabricObjects

	podEndpoints map[string]model.EndpointKey // by the pod's UID
	podsIn       map[podPlace]int             // how many pods have endpoints there
	freshPods    map[model.EndpointKey]bool   // that came since FreshPods
	podsCame     waiting.Changes
	policyTurn   uint64 // counts what may change the rows of policies and namespaces
	policies     waiting.Changes
	globalRev    store.Revision // of the last write of a namespace or the settings
	tenantRevs   map[model.TenantName]tenantRevisions
	storeID      string // whose revisions these are

	written map[writtenKey]lastWrite // see Written

	reserved map[netip.Addr]string // by Reserve; of no store

	now     func() time.Time
	listing bool                            // what is entered comes with a list
	ends    map[tables.PendingKey]time.Time // by when changes must be confirmed; lists do not reset it
	kept    keepings                        // likewise
}

func newView(log *slog.Logger) *View {
	began := time.Now()
	v := &View{log: log, now: time.Now, ends: map[tables.PendingKey]time.Time{}, kept: newKeepings(0, func() time.Duration { return time.Since(began) })}
	v.reset()
	return v
}

func (v *View) reset() {
	v.fabric.Tell()
	v.parts = make([]any, len(newParts))
	for i, empty := range newParts {
		v.parts[i] = empty()
	}
	v.rules = tables.NewInForce()
	v.written = map[writtenKey]lastWrite{}
	v.endpoints = map[model.EndpointKey]model.Endpoint{}
	v.listed.of = nil
	v.endpointsOfNetwork = index[model.NetworkKey, model.EndpointKey]{}
	v.endpointsOfGroup = index[model.GroupKey, model.EndpointKey]{}
	v.endpointsOfHost = index[model.HostName, model.EndpointKey]{}
	v.endpointsByText = index[string, model.EndpointKey]{}
	v.identityUsers = map[model.Identity]int{}
	v.podEndpoints = map[string]model.EndpointKey{}
	v.podsIn = map[podPlace]int{}
	v.freshPods = map[model.EndpointKey]bool{}
	v.turnPolicies()
	v.globalRev = 0 // of another store, or an older one, maybe
	v.tenantRevs = map[model.TenantName]tenantRevisions{}
	v.interned = map[tables.InternKey]tables.Interned{}
	v.pools = map[model.NetworkKey]tables.Pools{}
	v.spaces = map[model.NetworkKey]*space{}
	v.numbers = map[tables.NumberKind]*numbers{}
	for _, kind := range []tables.NumberKind{tables.NumberVLAN, tables.NumberVNI, tables.NumberNetwork, tables.NumberIdentity, tables.NumberRouter} {
		v.numbers[kind] = newNumbers()
	}
}

// apply enters a batch of the mirror.
func (v *View) apply(b store.Batch) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if b.Snapshot {
		v.reset()
		v.kept.listed()
	}
	if b.Listed && (b.Revision < v.rev || b.Older || b.Store.ID != v.storeID) {
		// Another store counts by itself: hosts would wait for revisions of the former one,
		// which it may never reach.
		v.globalRev, v.tenantRevs = 0, map[model.TenantName]tenantRevisions{}
	}
	v.storeID = b.Store.ID
	v.listing = b.Snapshot || b.Listed
	for _, ev := range b.Events {
		ch, err := v.rules.Decode(ev)
		if err != nil {
			// As hosts do, which cannot read it either: what it described is missing.
			v.log.Error("a record of the store cannot be read: the object counts as missing until it is deleted or written anew", "key", ev.KV.Key, "error", err)
		}
		v.noteTenant(ch, b)
		v.enter(ch)
	}
	for _, ch := range v.rules.Rest() {
		v.enter(ch)
	}
	v.kept.entered()
	v.rev = b.Revision
	v.settle()
	return nil
}

// value returns a pointer to a change's value, nil when it was deleted.
func value[V any](ch tables.Change) *V {
	if ch.Deleted() {
		return nil
	}
	x := ch.Value.(V)
	return &x
}

func (v *View) enter(ch tables.Change) {
	v.notePolicies(ch)
	if f := entries[reflect.TypeOf(ch.Key)]; f != nil {
		f(v, ch)
		return
	}
	switch k := ch.Key.(type) {
	case tables.AddressKey:
		a := value[tables.Address](ch)
		v.space(k.Network).enter(k.Addr, a, ch.Create)
		v.kept.note(k, a, v.now())
		if ch.Deleted() {
			v.dropSpace(k.Network)
		}
	case tables.PoolsKey:
		if p := value[tables.Pools](ch); p != nil {
			v.pools[k.Network] = *p
		} else {
			delete(v.pools, k.Network)
		}
	case tables.NumberKey:
		if n := v.numbers[k.Kind]; n != nil {
			n.enter(k.Number, !ch.Deleted())
		}
	case tables.CursorKey:
		if c := value[tables.Cursor](ch); c != nil && v.numbers[k.Kind] != nil {
			v.numbers[k.Kind].Seen(c.Last)
		}
	case tables.InternKey:
		if i := value[tables.Interned](ch); i != nil {
			v.interned[k] = *i
		} else {
			delete(v.interned, k)
		}
	}
}

// read runs f under the read lock.
func read[T any](v *View, f func() T) T {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return f()
}

// Revision returns the store revision that the view has reached.
func (v *View) Revision() store.Revision { return read(v, func() store.Revision { return v.rev }) }
