package statemirror

import (
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// manualState is a State whose mirrors deliver what a test says, for network net1 of blue, of
// number 7, with an endpoint here.
type manualState struct {
	*State
	t            *testing.T
	rest, single *mirror
	other, added model.Endpoint // on another host
}

func newManualState(t *testing.T) *manualState {
	t.Helper()
	x := &manualState{State: newCluster(t, memory.New()), t: t, other: testEndpoint}
	x.other.Key.ID, x.other.Host, x.other.MAC = "e2", "h2", model.MAC{2, 2, 10, 1, 1, 2}
	x.added = x.other
	x.added.Key.ID, x.added.MAC = "e3", model.MAC{2, 2, 10, 1, 1, 3}
	x.Guard.state, x.Guard.source = following, fromStore
	x.Acquire(testEndpoint.Key.Network)
	x.begin(3)
	x.deliver(x.single, store.Batch{Revision: 5, Snapshot: true, Listed: true, Events: []store.Event{row(t, tables.Endpoints, testEndpoint, 5), row(t, tables.Endpoints, x.other, 5)}})
	return x
}

// begin finds the mirrors, and delivers the rest of the tenant.
func (x *manualState) begin(rev store.Revision) {
	x.t.Helper()
	x.rest, x.single = x.mirrors.byScope[TenantScope("blue")], x.mirrors.byScope[EndpointsScope(testEndpoint.Key.Network)]
	x.deliver(x.rest, store.Batch{Revision: rev, Snapshot: true, Listed: true, Events: []store.Event{
		row(x.t, tables.Networks, model.Network{Key: testEndpoint.Key.Network, ID: 7, Encap: model.EncapVXLAN, Tag: 7, Routed: true}, rev),
		row(x.t, tables.Identities, model.IdentityRecord{ID: testEndpoint.Identity, Network: testEndpoint.Key.Network}, rev),
	}})
}

// row is a row as it was written at a revision.
func row[K comparable, V any](t *testing.T, of *tables.Table[K, V], v V, at store.Revision) store.Event {
	t.Helper()
	st := memory.New()
	put(t, st, func(tx store.Tx) error { return of.Put(tx, v) })
	kv, err := st.Get(t.Context(), of.Key(of.KeyOf(v)))
	if err != nil {
		t.Fatal(err)
	}
	kv.Create, kv.Mod = at, at
	return store.Event{KV: kv}
}

func gone(e model.Endpoint, at store.Revision) store.Event {
	return store.Event{KV: store.KV{Key: tables.Endpoints.Key(e.Key), Mod: at}}
}

func (x *manualState) deliver(m *mirror, b store.Batch) {
	x.t.Helper()
	if err := x.State.deliver(x.t.Context(), m, b); err != nil {
		x.t.Fatal(err)
	}
}

// remotes checks which endpoints of other hosts are in the desired state beside this
// host's.
func (x *manualState) remotes(what string, want ...model.Endpoint) {
	x.t.Helper()
	h, _ := x.comp.Compile(1)
	if h.Ports.Len() != 1 || h.Remotes.Len() != len(want) {
		x.t.Errorf("%s: %d ports and %d remotes, want 1 and %d", what, h.Ports.Len(), h.Remotes.Len(), len(want))
	}
	for _, e := range want {
		if _, there := h.Remotes.Get(desired.RemoteKey{Network: 7, MAC: e.MAC}); !there {
			x.t.Errorf("%s: %s is missing", what, e.Key)
		}
	}
}

func (x *manualState) startAll() *mirror {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mirrors.start(allEndpointsScope("blue"))
}

// TestTenantMirrorReplacesNetworkMirrors: the mirror of all endpoints of a tenant takes the place of those of
// single networks when it is behind none of them.
func TestTenantMirrorReplacesNetworkMirrors(t *testing.T) {
	x := newManualState(t)
	network := testEndpoint.Key.Network
	x.remotes("at first", x.other)
	all := x.startAll()
	x.deliver(x.single, store.Batch{Revision: 8, Events: []store.Event{gone(x.other, 8), row(t, tables.Endpoints, x.added, 8)}})
	x.deliver(all, store.Batch{Revision: 6, Snapshot: true, Listed: true, Events: []store.Event{row(t, tables.Endpoints, testEndpoint, 5), row(t, tables.Endpoints, x.other, 5)}})
	x.remotes("with one of all that is behind", x.added)
	if x.mirrors.byScope[EndpointsScope(network)] != x.single || x.mirrors.endpoints(network) != x.single {
		t.Error("it has taken over though it is behind")
	}
	x.deliver(all, store.Batch{Revision: 8, Events: []store.Event{gone(x.other, 8), row(t, tables.Endpoints, x.added, 8)}})
	x.remotes("taken over", x.added)
	if x.mirrors.byScope[EndpointsScope(network)] != nil || x.mirrors.endpoints(network) != all || len(all.endpoints) != 1 {
		t.Errorf("it has not taken over: %v", all.endpoints)
	}
	x.deliver(all, store.Batch{Revision: 9, Events: []store.Event{gone(x.added, 9)}})
	x.remotes("later")
	x.Acquire(model.NetworkKey{Tenant: "blue", Name: "net2"})
	if x.mirrors.byScope[EndpointsScope(model.NetworkKey{Tenant: "blue", Name: "net2"})] != nil {
		t.Error("a network is followed by itself beside all")
	}
}

// TestMirrorThatIsAheadCountsFromThenOn: what the mirror of all knows first counts from then on.
func TestMirrorThatIsAheadCountsFromThenOn(t *testing.T) {
	x := newManualState(t)
	x.deliver(x.startAll(), store.Batch{Revision: 9, Snapshot: true, Listed: true, Events: []store.Event{row(t, tables.Endpoints, testEndpoint, 5), row(t, tables.Endpoints, x.added, 8)}})
	x.remotes("taken over", x.added)
}

// TestDroppedScopeLeavesNothing: of what is followed no longer nothing is left, and when it is followed
// again it is not in the desired state before its endpoints are known.
func TestDroppedScopeLeavesNothing(t *testing.T) {
	x := newManualState(t)
	x.deliver(x.single, store.Batch{Revision: 6, Events: []store.Event{gone(testEndpoint, 6)}})
	x.Release(testEndpoint.Key.Network)
	x.dropUnused(time.Now(), time.Minute)
	if len(x.mirrors.byScope) != 2 {
		t.Errorf("%d mirrors soon after", len(x.mirrors.byScope))
	}
	x.dropUnused(time.Now().Add(time.Hour), time.Minute)
	networks := func(what string, want int) {
		t.Helper()
		if h, _ := x.comp.Compile(1); h.Networks.Len() != want || h.Remotes.Len() != 0 {
			t.Errorf("%s: %d networks with %d remotes, want %d", what, h.Networks.Len(), h.Remotes.Len(), want)
		}
	}
	if networks("dropped", 0); len(x.mirrors.byScope) != 0 || len(x.mirrors.uses) != 0 {
		t.Errorf("mirrors %v, uses %v", x.mirrors.byScope, x.mirrors.uses)
	}
	x.Acquire(testEndpoint.Key.Network)
	x.begin(7)
	networks("before its endpoints are known", 0)
	x.deliver(x.single, store.Batch{Revision: 7, Snapshot: true, Listed: true})
	networks("again", 1)
}

// TestEndpointAndIdentityComeInEitherOrder: of a transaction that makes an endpoint and its identity one mirror
// tells before the other: either way the endpoint is not in the desired state before both are
// there, and its port is not open to whom a policy closes it.
func TestEndpointAndIdentityComeInEitherOrder(t *testing.T) {
	const id = model.IdentityFirst + 9
	record := model.IdentityRecord{ID: id, Network: testEndpoint.Key.Network, Labels: map[string]string{"app": "a"}}
	for _, restFirst := range []bool{false, true} {
		x := newManualState(t)
		p := model.PolicyKey{Tenant: "blue", Name: "p"}
		own := testEndpoint
		own.Key.ID, own.MAC, own.Identity = "e9", model.MAC{2, 2, 10, 1, 1, 9}, id
		x.deliver(x.rest, store.Batch{Revision: 10, Events: []store.Event{
			row(t, tables.Policies, model.Policy{Key: p, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierContiv, Order: 100, Default: model.Defaults{In: model.Deny}, Applies: model.Selector{Tenant: "blue", MatchLabels: map[string]string{"app": "a"}}}, 10),
		}})
		batches := []func(){
			func() {
				x.deliver(x.single, store.Batch{Revision: 11, Events: []store.Event{row(t, tables.Endpoints, own, 11)}})
			},
			func() {
				x.deliver(x.rest, store.Batch{Revision: 11, Events: []store.Event{row(t, tables.Identities, record, 11)}})
			},
		}
		if restFirst {
			batches[0], batches[1] = batches[1], batches[0]
		}
		for i, do := range batches {
			do()
			h, _ := x.comp.Compile(1)
			for _, port := range h.Ports.All() {
				if _, closed := h.PolicySets.Get(port.Policies); port.Endpoint == own.Key && !closed {
					t.Errorf("rest first: %v; after %d batches the port is open", restFirst, i+1)
				}
			}
			if _, there := h.Ports.Get(compile.IfName(own.Key)); there != (i == 1) {
				t.Errorf("rest first: %v; after %d batches the port is there: %v", restFirst, i+1, there)
			}
		}
	}
}
