package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// An infra network is in its tenant's record besides, which all hosts follow: by that
// they attach themselves, and by its absence they let go.

// enterInfra notes a new infra network in its tenant's record, unless it cannot be on a
// host beside what is there: its name is an interface's, and its subnets are routes.
func (ns *Networks) enterInfra(ctx context.Context, cl *allocator, tx store.Tx, n model.Network) error {
	if n.Type != model.NetworkInfra {
		return nil
	}
	if err := ns.checkGateways(ctx, cl, tx, n); err != nil {
		return err
	}
	all, err := tables.Tenants.List(tx, tables.TenantsScope)
	if err != nil {
		return err
	}
	for _, t := range all {
		for _, name := range t.Infra {
			k := model.NetworkKey{Tenant: t.Name, Name: name}
			if name == n.Key.Name && k != n.Key {
				return model.Errorf(model.ErrConflict, "networkName %q: infra network %q has it, and a host cannot have two interfaces of one name", name, k)
			}
			o, err := tables.Networks.Find(tx, k)
			if err != nil {
				return err
			}
			for _, p := range subnetsOf(n) {
				for _, q := range subnetsOf(o.Value) {
					if p.Overlaps(q) && k != n.Key {
						return model.Errorf(model.ErrConflict, "subnet %q: overlaps %s of infra network %q, and each host has a route to both; choose another subnet", p, q, k)
					}
				}
			}
		}
	}
	return indexInfra(tx, n.Key, true)
}

// indexInfra has a network in its tenant's record, or not.
func indexInfra(tx store.Tx, k model.NetworkKey, is bool) error {
	t, err := tables.Tenants.Get(tx, k.Tenant)
	if err != nil || slices.Contains(t.Infra, k.Name) == is {
		return err
	}
	t.Infra = withoutInfra(t.Infra, k.Name)
	if is {
		t.Infra = append(t.Infra, k.Name)
		slices.Sort(t.Infra)
	}
	return tables.Tenants.Put(tx, t)
}

// remainsInfra refuses hosts' endpoints on an infra network that is being deleted: hosts can
// hear that their endpoint is gone before they hear that the network goes, and put it back.
func remainsInfra(tx store.Tx, k model.NetworkKey) error {
	t, err := tables.Tenants.Find(tx, k.Tenant)
	if err == nil && !slices.Contains(t.Value.Infra, k.Name) {
		err = model.Errorf(model.ErrNotFound, "infra network %q is being deleted", k)
	}
	return err
}

func withoutInfra(list []model.NetworkName, name model.NetworkName) []model.NetworkName {
	list = slices.DeleteFunc(slices.Clone(list), func(o model.NetworkName) bool { return o == name })
	if len(list) == 0 {
		return nil
	}
	return list
}

// deleteTries is how often the hosts' endpoints are deleted for the sake of a network: a
// host that has not heard yet may put its own back.
const deleteTries = 3

// deleteInfra deletes an infra network that only hosts themselves are on: they release it
// first.
func (ns *Networks) deleteInfra(ctx context.Context, u *usecase, k model.NetworkKey) error {
	own := func() (eps []model.Endpoint, only bool) {
		all := ns.endpointView.OfNetwork(k)
		eps = slices.DeleteFunc(slices.Clone(all), func(e model.Endpoint) bool { return !e.OfHost() })
		return eps, len(eps) == len(all)
	}
	if _, only := own(); !only {
		return ns.removeNetwork(ctx, u, k) // which says who is on it
	}
	if err := u.actor.mayChangeHosts("networkName", string(k.Name), "deleting an infra network"); err != nil {
		return err
	}
	if u.planned != nil {
		return errNotPlanned(fmt.Sprintf("deleting infra network %q", k))
	}
	rev, err := u.update(ctx, fmt.Sprintf("delete network %q", k), func(tx store.Tx) error {
		if _, err := tables.Networks.Get(tx, k); err != nil {
			return err
		}
		if err := u.actor.mayDelete(tx, ownNetwork(k)); err != nil {
			return err
		}
		if err := checkUnreferenced(u.actor.Scope(), tx, tables.TargetNetwork(k)); err != nil {
			return err
		}
		return indexInfra(tx, k, false)
	})
	if err != nil {
		return err
	}
	for range deleteTries {
		if err = ns.commits.follow.WaitFor(ctx, rev); err != nil {
			break
		}
		eps, _ := own()
		if _, err = ns.endpoints.deleteEndpoints(ctx, u, eps, nil); err != nil {
			break
		}
		if err = ns.removeNetwork(ctx, u, k); !errors.Is(err, model.ErrInUse) {
			break
		}
	}
	if err == nil || errors.Is(err, model.ErrNotFound) {
		return err
	}
	_, back := u.update(context.WithoutCancel(ctx), fmt.Sprintf("keep network %q", k), func(tx store.Tx) error {
		if n, err := tables.Networks.Find(tx, k); err != nil || !n.Exists() {
			return err
		}
		return indexInfra(tx, k, true)
	})
	return errors.Join(err, back)
}

// IndexInfra is the leader's task of noting infra networks of before there was an index,
// and those whose deletion was cut short. A failure is logged: the next leader does it.
func (ns *Networks) IndexInfra(ctx context.Context, l Leader) {
	v, err := ns.commits.View(ctx)
	if err != nil {
		return // ctx has ended
	}
	for _, n := range v.Networks.List("") {
		if t, _ := v.Tenants.Get(n.Key.Tenant); n.Type != model.NetworkInfra || slices.Contains(t.Infra, n.Key.Name) {
			continue
		}
		_, err := ns.commits.update(ctx, l.Actor(), fmt.Sprintf("have hosts on network %q", n.Key), func(tx store.Tx) error {
			if n, err := tables.Networks.Find(tx, n.Key); err != nil || !n.Exists() {
				return err
			}
			return indexInfra(tx, n.Key, true)
		})
		if err != nil && ctx.Err() == nil {
			ns.commits.log.Warn("hosts have no endpoints on an infra network yet; the next leader tries again", "network", n.Key.String(), "error", err)
		}
	}
}
