package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Endpoints creates, changes and deletes endpoints, those of pods too. It has no state of
// its own.
type Endpoints struct {
	commits      *Committer
	settingsView *SettingsView
	networkView  *NetworkView
	endpointView *EndpointView
	addressView  *AddressView
	podView      *PodView
	addresses    *Addresses
}

var _ = share(kind{
	name: "endpoint", reference: "endpoint", usedBy: "it has active endpoints",
})

// CreateEndpoint creates an endpoint with addresses of its network's families; addresses
// set in it are preferred ones, and so is its MAC unless it is zero. Its identity is
// ignored. It is idempotent on network and endpoint id: if the endpoint exists with the
// same group, host and addresses, it returns that one. The revision is the endpoint's last
// write: a mirror that has reached it has the endpoint.
func (es *Endpoints) CreateEndpoint(ctx context.Context, a Actor, valid model.Valid[model.Endpoint]) (model.Endpoint, store.Revision, error) {
	if err := valid.Err(); err != nil {
		return model.Endpoint{}, 0, err
	}
	want := valid.Value()
	want.Identity = 0
	if err := es.commits.await(ctx); err != nil {
		return model.Endpoint{}, 0, err
	}
	var out tables.Row[model.Endpoint]
	cl := es.commits.newAllocator(a)
	rev, err := es.commits.update(ctx, a, fmt.Sprintf("create endpoint %q", want.Key), func(tx store.Tx) (err error) {
		cl.rewind()
		out, err = es.createEndpoint(ctx, tx, cl, want)
		return err
	})
	cl.releaseAll(rev)
	switch {
	case err != nil:
		return model.Endpoint{}, 0, err
	case out.Exists(): // it was there
		return out.Value, out.Mod, nil
	}
	return out.Value, rev, nil
}

// ChangeEndpoint is CreateEndpoint in a list: one that is there must be as
// wanted.
func (es *Endpoints) ChangeEndpoint(valid model.Valid[model.Endpoint]) Change {
	e := valid.Value()
	e.Identity = 0
	ch := changeOf(rankEndpoint, tables.Endpoints, e.Key, valid, func(ctx context.Context, tx store.Tx, cl *allocator) error {
		_, err := es.createEndpoint(ctx, tx, cl, e)
		return err
	})
	return ch
}

// createEndpoint returns a row without revisions for a new endpoint. What is allocated to its ID
// already is its own: an endpoint whose record alone was deleted comes back with it.
func (es *Endpoints) createEndpoint(ctx context.Context, tx store.Tx, cl *allocator, want model.Endpoint) (none tables.Row[model.Endpoint], err error) {
	if err := tx.Prefetch(es.endpointKeys(cl, want)...); err != nil {
		return none, err
	}
	row, err := tables.Endpoints.Find(tx, want.Key)
	if err != nil {
		return none, err
	}
	if row.Exists() {
		return row, sameEndpoint(row.Value, want)
	}
	if err := es.replacePrevious(cl.actor, tx, want); err != nil {
		return none, err
	}
	n, pools, err := networkForAddress(tx, want.Key.Network, want.Group)
	if errors.Is(err, model.ErrNotFound) { // the network may be a guess, for want of the tenant or the group
		if _, missing := tables.Tenants.Get(tx, want.Key.Network.Tenant); missing != nil {
			return none, missing
		}
		if want.Group != "" {
			if _, missing := tables.Groups.Get(tx, model.GroupKey{Tenant: want.Key.Network.Tenant, Name: want.Group}); missing != nil {
				return none, missing
			}
		}
	}
	if err == nil && n.Type == model.NetworkInfra && want.OfHost() {
		err = remainsInfra(tx, n.Key)
	}
	if err != nil {
		return none, err
	}
	e := want
	if e.Identity, err = identify(ctx, tx, cl, n, e); err != nil {
		return none, err
	}
	owner := tables.Address{Endpoint: e.Key.ID, Group: e.Group}
	if e.IPv4, err = cl.takeAddr(ctx, tx, n, pools, owner, e.Host, podName(e), "IPAddress", n.Subnet, want.IPv4, false); err != nil {
		return none, err
	}
	if e.IPv6, err = cl.takeAddr(ctx, tx, n, pools, owner, e.Host, podName(e), "IPv6Address", n.Subnet6, want.IPv6, true); err != nil {
		return none, err
	}
	if e.MAC, err = takeMAC(tx, e); err != nil {
		return none, err
	}
	if e.Group != "" {
		t := tables.TargetGroup(model.GroupKey{Tenant: n.Key.Tenant, Name: e.Group})
		ref := tables.Reference{RefKey: tables.RefKey{Target: t, Kind: "endpoint", From: e.Key.String()}}
		if err := tables.References.Put(tx, ref); err != nil {
			return none, err
		}
	}
	return tables.Row[model.Endpoint]{Value: e}, tables.Endpoints.Create(tx, e)
}

// endpointKeys returns all keys that creating an endpoint usually reads, so
// that it costs one round trip beside the commit. What the view does not know
// yet is read one by one.
func (es *Endpoints) endpointKeys(cl *allocator, want model.Endpoint) []string {
	k := want.Key.Network
	keys := []string{
		tables.Endpoints.Key(want.Key), tables.Networks.Key(k), tables.GroupPools.Key(tables.PoolsKey{Network: k}),
	}
	if want.Group != "" {
		g := model.GroupKey{Tenant: k.Tenant, Name: want.Group}
		from := tables.RefKey{Target: tables.TargetGroup(g), Kind: "endpoint", From: want.Key.String()}
		keys = append(keys, tables.Groups.Key(g), tables.References.Key(from))
	}
	settings, _ := es.settingsView.Global()
	if of, own := identityOf(want, settings.Filter().Identifying(want.Labels)); own {
		keys = append(keys, tables.Globals.Key(tables.GlobalKey{}))
		if ik, err := internKey(of); err == nil {
			keys = append(keys, tables.InternedIdentities.Key(ik))
		}
	}
	n, known := es.networkView.Get(k)
	if _, there := es.endpointView.Get(want.Key); there {
		known = false // it has its addresses
	}
	for _, f := range []struct {
		subnet netip.Prefix
		want   netip.Addr
		v6     bool
	}{{n.Subnet, want.IPv4, false}, {n.Subnet6, want.IPv6, true}} {
		a := f.want
		if !a.IsValid() && known && f.subnet.IsValid() {
			ranges, cursor := allowed(n, f.v6, es.addressView.poolsOf(k), want.Group)
			if free, ok := cl.addr(n, f.v6, cursor, ranges); ok {
				a = free
				cl.retryAddress(tables.AddressKey{Network: k, Addr: a}) // it is still a candidate
			}
		}
		if a.IsValid() {
			keys = append(keys, tables.Addresses.Key(tables.AddressKey{Network: k, Addr: a}))
		}
	}
	return keys
}

// sameEndpoint checks that a request for an existing endpoint asks for what is there.
func sameEndpoint(old, want model.Endpoint) error {
	for _, f := range []struct {
		name     string
		old, new any
		given    bool
	}{
		{"ServiceName", old.Group, want.Group, true},
		{"Host", old.Host, want.Host, want.Host != ""},
		{"IPAddress", old.IPv4, want.IPv4, want.IPv4.IsValid()},
		{"IPv6Address", old.IPv6, want.IPv6, want.IPv6.IsValid()},
		{"MacAddress", old.MAC, want.MAC, want.MAC != model.MAC{}},
		{"Namespace", old.Namespace, want.Namespace, true},
		{"Pod", old.Pod.UID, want.Pod.UID, true},
	} {
		if f.given && f.old != f.new {
			return model.Errorf(model.ErrConflict, "it already exists with %s %q, not %q", f.name, fmt.Sprint(f.old), fmt.Sprint(f.new))
		}
	}
	if old.Pod.UID == "" && old.Rates != want.Rates { // a pod's follow its annotations
		return model.Errorf(model.ErrConflict, "it already exists with other rates")
	}
	if !slices.Equal(old.Ports, want.Ports) {
		return model.Errorf(model.ErrConflict, "it already exists with other named ports")
	}
	return nil
}

// identify returns the identity of an endpoint. Those without labels belong to
// the group or network, which is in the read set.
func identify(ctx context.Context, tx store.Tx, cl *allocator, n model.Network, e model.Endpoint) (model.Identity, error) {
	labels, err := identifying(tx, e.Labels)
	if err != nil {
		return 0, err
	}
	of, own := identityOf(e, labels)
	switch {
	case own:
		return intern(ctx, tx, cl, of)
	case e.Group != "":
		g, err := tables.Groups.Get(tx, model.GroupKey{Tenant: n.Key.Tenant, Name: e.Group})
		return g.ID, err
	}
	return n.Identity, nil
}

// identityOf is the identity of an endpoint whose labels, after the filter, are
// given; own tells that it is another than its group's or network's.
func identityOf(e model.Endpoint, labels map[string]string) (of model.IdentityRecord, own bool) {
	of = model.IdentityRecord{Network: e.Key.Network, Group: e.Group, LabelsLater: e.LabelsLater, Namespace: e.Namespace, Ports: e.Ports}
	if !e.LabelsLater {
		of.Labels = labels
	}
	return of, e.LabelsLater || labels != nil || e.Namespace != "" || len(e.Ports) > 0
}

// takeAddr gives an endpoint, or a service, its address of one family, if the
// network has the family: the preferred one, which may be its own or reserved for
// its host, or a free one.
func (cl *allocator) takeAddr(ctx context.Context, tx store.Tx, n model.Network, pools map[model.GroupName]model.AddrRange,
	owner tables.Address, host model.HostName, pod, field string, subnet netip.Prefix, want netip.Addr, v6 bool,
) (netip.Addr, error) {
	if want.IsValid() {
		row, err := wantAddr(tx, n, pools, owner.Group, field, want)
		if err != nil {
			return want, err
		}
		owner.AddressKey = tables.AddressKey{Network: n.Key, Addr: want}
		if !row.Exists() {
			return want, tables.Addresses.Create(tx, owner)
		}
		r := row.Value.Reservation
		if r == nil && owner.Endpoint != "" && row.Value.Endpoint == owner.Endpoint {
			return want, tables.Addresses.Put(tx, owner)
		}
		if r == nil || !cl.c.view.Addresses.expired(row.Value) && (r.Host != "" && r.Host != host && !r.AnyHost || r.Pod != "" && r.Pod != pod) {
			return want, model.Errorf(model.ErrConflict, "%s %q: %s", field, want, ownerText(row.Value))
		}
		return want, tables.Addresses.Put(tx, owner) // the reservation becomes the owner's
	}
	if !subnet.IsValid() {
		return netip.Addr{}, nil
	}
	a, err := cl.freeAddr(ctx, tx, n, v6, pools, owner.Group)
	if err != nil {
		return a, err
	}
	owner.AddressKey = tables.AddressKey{Network: n.Key, Addr: a}
	return a, tables.Addresses.Create(tx, owner)
}

// maxHashes is how many MACs an endpoint without IPv4 may try: that so many
// hashes of 32 bits are taken does not happen.
const maxHashes = 8

// takeHashed gives an endpoint without IPv4 a MAC made of a hash, which another's
// may equal, and so has a row like a chosen one.
func takeHashed(tx store.Tx, e model.Endpoint) (model.MAC, error) {
	for n := range maxHashes {
		mac := model.HashedMAC(e.Key.Network, e.IPv6, n)
		owner := tables.MACOwner{MACKey: tables.MACKey{Network: e.Key.Network, MAC: mac}, Endpoint: e.Key.ID}
		row, err := tables.ChosenMACs.Find(tx, owner.MACKey)
		if err != nil {
			return mac, err
		}
		if !row.Exists() || row.Value.Endpoint == e.Key.ID {
			return mac, tables.ChosenMACs.Put(tx, owner)
		}
	}
	return model.MAC{}, model.Errorf(model.ErrConflict, "endpoint %q: %d MACs derived from its address are in use; give it a MAC", e.Key.ID, maxHashes)
}

// takeMAC gives an endpoint that has its addresses its MAC: the one made of
// them, or the one that its runtime has chosen. A chosen one, and one made of a
// hash, has a row of its own; a chosen one must not look like one made of an
// address. So no two endpoints of a network can have the same.
func takeMAC(tx store.Tx, e model.Endpoint) (model.MAC, error) {
	made := model.EndpointMAC(e.Key.Network, e.IPv4, e.IPv6)
	switch {
	case (e.MAC == model.MAC{} || e.MAC == made) && e.IPv4.IsValid():
		return made, nil
	case e.MAC == model.MAC{} || e.MAC == made:
		return takeHashed(tx, e)
	case e.MAC.Derived():
		return made, model.InvalidField("MacAddress", e.MAC,
			fmt.Sprintf("must not begin with 02:02 or 02:03, as MACs made of addresses do, unless it is its own, %s", made))
	}
	owner := tables.MACOwner{MACKey: tables.MACKey{Network: e.Key.Network, MAC: e.MAC}, Endpoint: e.Key.ID}
	row, err := tables.ChosenMACs.Find(tx, owner.MACKey)
	if err != nil {
		return made, err
	}
	if row.Exists() && row.Value.Endpoint != e.Key.ID {
		return made, model.Errorf(model.ErrConflict, "MacAddress %q: in use by endpoint %q", e.MAC, row.Value.Endpoint)
	}
	return e.MAC, tables.ChosenMACs.Put(tx, owner)
}

// DeleteEndpoint deletes an endpoint, frees its addresses, and returns what it
// was. One that is not there is model.ErrNotFound, which agents take for
// success.
func (es *Endpoints) DeleteEndpoint(ctx context.Context, a Actor, k model.EndpointKey) (model.Endpoint, store.Revision, error) {
	var e model.Endpoint
	rev, err := es.commits.update(ctx, a, fmt.Sprintf("delete endpoint %q", k), func(tx store.Tx) (err error) {
		if e, err = tables.Endpoints.Get(tx, k); err != nil {
			return err
		}
		if err := a.checkOwnHost("it", e.Host); err != nil {
			return err
		}
		return es.removeEndpoint(tx, e)
	})
	return e, rev, err
}

// removeEndpoint takes at most six operations. Addresses that a pod asked for stay
// reserved for the pod that comes back under its name.
func (es *Endpoints) removeEndpoint(tx store.Tx, e model.Endpoint) error {
	tables.Endpoints.Delete(tx, e.Key)
	for _, a := range []struct {
		netip.Addr
		reserved bool
	}{{e.IPv4, e.Pod.KeepIPv4}, {e.IPv6, e.Pod.KeepIPv6}} {
		k := tables.AddressKey{Network: e.Key.Network, Addr: a.Addr}
		switch {
		case a.reserved && a.IsValid():
			if err := tables.Addresses.Put(tx, es.addresses.reservedForPod(k, podName(e))); err != nil {
				return err
			}
		case a.IsValid():
			tables.Addresses.Delete(tx, k)
		}
	}
	if !e.MAC.Derived() || !e.IPv4.IsValid() {
		tables.ChosenMACs.Delete(tx, tables.MACKey{Network: e.Key.Network, MAC: e.MAC})
	}
	if e.Group != "" {
		removeReference(tx, tables.TargetGroup(model.GroupKey{Tenant: e.Key.Network.Tenant, Name: e.Group}), "endpoint", e.Key.String())
	}
	return nil
}

// EndpointUpdate is what a runtime has learnt about an endpoint's container.
type EndpointUpdate struct {
	Key       model.EndpointKey
	Container string            // empty = as it is
	Name      string            // empty = as it is
	Labels    map[string]string // added to the present ones
	Removed   []string          // keys to remove; Labels may bring one back
	Unhealthy *bool             // what its health check says; nil = as it was
	Stopped   bool              // the container has ended: its labels no longer count, nor its health, nor that it drains
}

// UpdateEndpoint records what a runtime has learnt; the endpoint's identity
// follows its labels.
func (es *Endpoints) UpdateEndpoint(ctx context.Context, a Actor, u EndpointUpdate) (store.Revision, error) {
	cl := es.commits.newAllocator(a)
	rev, err := es.commits.update(ctx, a, fmt.Sprintf("update endpoint %q", u.Key), func(tx store.Tx) error {
		cl.rewind()
		old, err := tables.Endpoints.Get(tx, u.Key)
		if err != nil {
			return err
		}
		if err := a.checkOwnHost("it", old.Host); err != nil {
			return err
		}
		e := old
		if u.Container != "" {
			e.Container = u.Container
		}
		if u.Name != "" {
			e.Name = u.Name
		}
		e.Labels = maps.Clone(old.Labels)
		if e.Labels == nil {
			e.Labels = map[string]string{}
		}
		maps.DeleteFunc(e.Labels, func(k, v string) bool { // of an earlier version, which took more
			return model.ValidateLabels(map[string]string{k: v}) != nil
		})
		for _, k := range u.Removed {
			delete(e.Labels, k)
		}
		maps.Copy(e.Labels, u.Labels)
		e.LabelsLater = false
		if u.Stopped || len(e.Labels) == 0 {
			e.Labels = nil
		}
		if u.Unhealthy != nil {
			e.Unhealthy = *u.Unhealthy
		}
		if u.Stopped {
			e.Unhealthy, e.Draining = false, false
		}
		if err := e.Validate(); err != nil {
			return err
		}
		was, err := identifying(tx, old.Labels)
		if err != nil {
			return err
		}
		if is, err := identifying(tx, e.Labels); err != nil {
			return err
		} else if old.LabelsLater || !maps.Equal(was, is) {
			n, err := tables.Networks.Get(tx, u.Key.Network)
			if err != nil {
				return err
			}
			if e.Identity, err = identify(ctx, tx, cl, n, e); err != nil {
				return err
			}
		}
		if e.Container == old.Container && e.Name == old.Name && !old.LabelsLater && e.Unhealthy == old.Unhealthy && e.Draining == old.Draining && maps.Equal(e.Labels, old.Labels) {
			return nil
		}
		return tables.Endpoints.Put(tx, e)
	})
	cl.releaseAll(rev)
	return rev, err
}
