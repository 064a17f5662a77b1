package control

import (
	"log/slog"
	"reflect"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// View is the mirrored state of the cluster with its indexes, by subject: what reads are
// answered from and where free addresses and numbers are looked for. Each method of a part
// answers from whole transactions; two calls may see different ones. Slices that it returns
// are in key order and must not be changed. One lock guards the contents of all parts, so that
// a transaction is entered at once.
type View struct {
	log *slog.Logger

	Settings      *SettingsView
	Tenants       *TenantView
	Groups        *GroupView
	Networks      *NetworkView
	Identities    *IdentityView
	Addresses     *AddressView
	Endpoints     *EndpointView
	Pods          *PodView
	Hosts         *HostView
	Policies      *PolicyView
	Kubernetes    *KubernetesView
	AddressOwners *AddressOwnerView
	Services      *ServiceView
	Pending       *PendingView
	Revisions     *RevisionView
	own           map[reflect.Type]ownRows // of the kinds that need no part, by the type of the key
	HostRows      *HostRowsView

	mu  sync.RWMutex
	rev store.Revision
}

func newView(log *slog.Logger) *View {
	v := &View{log: log}
	v.Settings = newSettingsView(&v.mu)
	v.Tenants = newTenantView(&v.mu)
	v.Groups = newGroupView(&v.mu)
	v.Networks = newNetworkView(&v.mu)
	v.Identities = newIdentityView(&v.mu)
	v.Addresses = newAddressView(&v.mu, v.Networks, v.Groups, v.Settings)
	v.Endpoints = newEndpointView(&v.mu, v.Networks, v.Groups, v.Identities, v.Settings)
	v.Pods = newPodView(&v.mu, v.Endpoints)
	v.Hosts = newHostView(&v.mu, v.Endpoints)
	v.Policies = newPolicyView(&v.mu, v.Groups, v.Identities, v.Hosts)
	v.Kubernetes = newKubernetesView(&v.mu)
	v.AddressOwners = newAddressOwnerView(&v.mu, v.Kubernetes, v.Hosts, v.Networks)
	v.Services = newServiceView(&v.mu, v.Endpoints, v.Networks, v.Addresses, v.Kubernetes)
	v.Pending = newPendingView(&v.mu)
	v.Revisions = newRevisionView(&v.mu)
	v.own = map[reflect.Type]ownRows{}
	for key, rows := range ownRowsOf {
		v.own[key] = rows(&v.mu)
	}
	v.HostRows = newHostRowsView(&v.mu, v.Settings, v.Tenants)
	return v
}

// reset empties all parts, before a list of the whole state is entered.
func (v *View) reset() {
	v.Settings.reset()
	v.Tenants.reset()
	v.Groups.reset()
	v.Networks.reset()
	v.Identities.reset()
	v.Addresses.reset()
	v.Endpoints.reset()
	v.Pods.reset()
	v.Hosts.reset()
	v.Policies.reset()
	v.Kubernetes.reset()
	v.AddressOwners.reset()
	v.Services.reset()
	v.Pending.reset()
	v.Revisions.reset()
	for _, rows := range v.own {
		rows.reset()
	}
	v.HostRows.reset()
}

// apply enters a batch of the mirror.
func (v *View) apply(b store.Batch) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if b.Snapshot {
		v.reset()
		v.Addresses.expiredReservations.beginList()
	}
	if b.Listed && (b.Revision < v.rev || b.Older || b.Store.ID != v.Revisions.storeID) {
		// Another store counts by itself: hosts would wait for revisions of the former one,
		// which it may never reach.
		v.Revisions.globalRev, v.Revisions.tenantRevs = 0, map[model.TenantName]tenantRevisions{}
	}
	v.Revisions.storeID = b.Store.ID
	v.Pending.listing = b.Snapshot || b.Listed
	for _, ev := range b.Events {
		ch, err := v.Policies.rules.Decode(ev)
		if err != nil {
			// As hosts do, which cannot read it either: what it described is missing.
			v.log.Error("a record of the store cannot be read: the object counts as missing until it is deleted or written again", "key", ev.KV.Key, "error", err)
		}
		v.Revisions.noteTenant(ch, b)
		if ch.Key == nil {
			v.Tenants.enterDropped(ev)
		}
		v.enter(ch)
	}
	for _, ch := range v.Policies.rules.Rest() {
		v.enter(ch)
	}
	v.Addresses.expiredReservations.endList()
	v.rev = b.Revision
	v.Addresses.settle(b.Revision)
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

// valueOf returns a change's value, the zero value when it was deleted.
func valueOf[V any](ch tables.Change) (x V) {
	if p := value[V](ch); p != nil {
		x = *p
	}
	return x
}

// enter hands a change to the part that it is for, and to the parts that have an index
// of it.
func (v *View) enter(ch tables.Change) {
	v.Revisions.notePolicies(ch)
	v.Revisions.note(names[reflect.TypeOf(ch.Key)], ch)
	switch k := ch.Key.(type) {
	case tables.GlobalKey:
		v.Settings.enterGlobal(ch)
	case tables.AciGwKey:
		v.Settings.aciGwRows.enter(ch)
	case tables.AciFabricKey:
		v.Settings.aciFabric = valueOf[tables.AciFabric](ch)
	case tables.KubernetesClusterKey:
		v.Settings.kubernetesCluster = valueOf[model.KubernetesCluster](ch)
	case tables.BgpKey:
		v.Settings.bgpRows.enter(ch)
		v.HostRows.changed[k.Host] = struct{}{}
	case model.TenantName:
		v.Tenants.enterTenant(ch)
		v.HostRows.changedAll = true
		v.Settings.intent.Notify()
	case model.AppProfileKey:
		v.Tenants.enterAppProfile(ch)
	case model.NetworkKey:
		v.Networks.enterNetwork(ch)
		v.Addresses.dropSpace(k)
	case model.GroupKey:
		old, now := v.Groups.enterGroup(ch)
		v.Policies.policySizes.enterGroup(old, now)
	case model.EndpointKey:
		v.enterEndpointOf(k, ch)
	case model.PolicyKey, model.RuleKey, tables.ReplacementKey:
		v.Policies.enterPolicies(ch)
	case tables.IdentityKey, model.NamespaceName, tables.InternKey:
		v.Identities.enterIdentities(ch)
	case tables.AddressKey, tables.PoolsKey, tables.NumberKey, tables.CursorKey:
		v.Addresses.enterAddresses(ch)
	case model.ServiceKey:
		v.Services.enterService(ch)
	case model.ClusterServiceKey:
		v.HostRows.enterClusterService(v.Kubernetes.enterClusterService(ch))
	case model.ServiceSliceKey, model.NodeName:
		v.Kubernetes.enterKubernetes(ch)
	case tables.ServiceRangesKey:
		v.AddressOwners.serviceRanges = valueOf[model.ServiceRanges](ch)
	case tables.BalancedKey:
		v.AddressOwners.enterBalanced(k, value[tables.Balanced](ch))
	case model.HostName, tables.HostAddressesKey, tables.HostDrainKey, tables.AwayTimeKey, tables.L2AnnouncerKey, tables.AnnouncedAddrKey:
		v.Hosts.enterHosts(ch)
	case tables.PendingKey:
		v.Pending.enterPending(k, value[tables.Pending](ch))
	default:
		if rows := v.own[reflect.TypeOf(ch.Key)]; rows != nil {
			rows.put(ch)
		}
	}
}

// enterEndpointOf enters a change of an endpoint everywhere.
func (v *View) enterEndpointOf(k model.EndpointKey, ch tables.Change) {
	old, now := v.Endpoints.enterEndpoint(ch)
	v.Pods.enterPod(k, old, now)
	v.HostRows.enterEndpoint(old, now)
	if old != nil {
		v.Services.indexLabels(*old, false)
		v.Identities.countUser(old.Identity, false)
	}
	if now != nil {
		v.Services.indexLabels(*now, true)
		v.Identities.countUser(now.Identity, true)
	}
}

// read runs f under the read lock.
func read[T any](mu *sync.RWMutex, f func() T) T {
	mu.RLock()
	defer mu.RUnlock()
	return f()
}

// Revision returns the store revision that the view has reached.
func (v *View) Revision() store.Revision { return read(&v.mu, func() store.Revision { return v.rev }) }
