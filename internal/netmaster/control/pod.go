package control

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// PodsChanged returns what is closed when the next endpoint of a pod is written.
func (es *Endpoints) PodsChanged() <-chan struct{} { return es.podView.podsChanged.Next() }

// FollowPod makes labels, named ports, rates and group of a pod's endpoint what those of
// want are. An endpoint that is gone, or another pod's,
// is left alone; one that is so already is not written. A group that is not there is
// model.ErrNotFound, one on another network, or whose pool does not have the
// endpoint's address, model.ErrConflict or model.ErrInvalid.
func (es *Endpoints) FollowPod(ctx context.Context, l Leader, want model.Endpoint) error {
	cl := es.commits.newAllocator(l.Actor())
	rev, err := es.commits.update(ctx, l.Actor(), fmt.Sprintf("update endpoint %q of pod %s/%s", want.Key, want.Namespace, want.Pod.Name), func(tx store.Tx) error {
		cl.rewind()
		row, err := tables.Endpoints.Find(tx, want.Key)
		if err != nil || !row.Exists() || row.Value.Pod.UID != want.Pod.UID {
			return err
		}
		old := row.Value
		if SamePod(old, want) {
			return nil
		}
		n, pools, err := networkForAddress(tx, old.Key.Network, want.Group)
		if err != nil {
			return err
		}
		e := old
		e.Labels, e.Ports, e.Group, e.Rates = want.Labels, want.Ports, want.Group, want.Rates
		if err := e.Validate(); err != nil {
			return err
		}
		if e.Identity, err = identify(ctx, tx, cl, n, e); err != nil {
			return err
		}
		if e.Group != old.Group {
			if err := moveGroup(tx, n, pools, old, e.Group); err != nil {
				return err
			}
		}
		return tables.Endpoints.Put(tx, e)
	})
	cl.releaseAll(rev)
	return err
}

// SamePod reports whether two endpoints of a pod have the labels, ports, rates and
// group of one another.
func SamePod(a, b model.Endpoint) bool {
	return a.Group == b.Group && a.Rates == b.Rates && maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Ports, b.Ports)
}

// moveGroup gives an endpoint's addresses, and its place among who uses a group, to
// another group.
func moveGroup(tx store.Tx, n model.Network, pools map[model.GroupName]model.AddrRange, e model.Endpoint, to model.GroupName) error {
	for _, a := range []struct {
		field string
		addr  netip.Addr
	}{{"IPAddress", e.IPv4}, {"IPv6Address", e.IPv6}} {
		if !a.addr.IsValid() {
			continue
		}
		row, err := wantAddr(tx, n, pools, to, a.field, a.addr)
		if err != nil {
			return err
		}
		row.Value.Group = to
		if err := tables.Addresses.Put(tx, row.Value); err != nil {
			return err
		}
	}
	target := func(g model.GroupName) tables.Target {
		return tables.TargetGroup(model.GroupKey{Tenant: n.Key.Tenant, Name: g})
	}
	if e.Group != "" {
		removeReference(tx, target(e.Group), "endpoint", e.Key.String())
	}
	if to == "" {
		return nil
	}
	return tables.References.Create(tx, tables.Reference{RefKey: tables.RefKey{Target: target(to), Kind: "endpoint", From: e.Key.String()}})
}
