package control

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Ranks of changes: an object refers to objects of lower ranks only.
const (
	rankGlobal = iota
	rankTenant
	rankBeside // net profiles, external contracts, policies, volumes
	rankNetwork
	rankGroup
	rankMember // rules, app profiles, services
	rankDefaultNetwork
	rankEndpoint
)

// changeOf builds a change from its parts.
func changeOf[K comparable, V any](rank int, table *store.Table[K, V], k K, put func(context.Context, store.Tx, *claim) error) Change {
	return Change{
		rank: rank,
		what: fmt.Sprintf("put %s %q", table.Noun(), table.Show(k)),
		key:  table.Key(k),
		read: func(tx store.Tx) (any, bool, error) {
			row, err := table.Peek(tx, k)
			return row.Value, row.Exists(), err
		},
		put: put,
	}
}

// rowChange is the change of an object that setRow writes.
func rowChange[K comparable, V any](t model.TenantName, table *store.Table[K, V], k K, v V, validate func() error) Change {
	return changeOf(rankBeside, table, k, func(_ context.Context, tx store.Tx, _ *claim) error {
		if err := validate(); err != nil {
			return err
		}
		return setRow(tx, t, table, k, v)
	})
}

// ChangeGlobal is PutGlobal in a list.
func (c *Controller) ChangeGlobal(g model.Global) Change {
	return changeOf(rankGlobal, store.Globals, store.GlobalKey{}, func(_ context.Context, tx store.Tx, _ *claim) error {
		return changeGlobal(tx, g)
	})
}

// ChangeTenant is PutTenant in a list. The default network, which cannot be
// there before the tenant, is set after the networks.
func (c *Controller) ChangeTenant(t model.Tenant) Change {
	set := func(rank int, t model.Tenant) Change {
		return changeOf(rank, store.Tenants, t.Name, func(_ context.Context, tx store.Tx, _ *claim) error {
			if err := t.Validate(); err != nil {
				return err
			}
			return putTenant(tx, t)
		})
	}
	first := set(rankTenant, model.Tenant{Name: t.Name})
	if t.DefaultNetwork != "" {
		late := set(rankDefaultNetwork, t)
		first.late = &late
	}
	return first
}

// ChangeNetwork is PutNetwork in a list.
func (c *Controller) ChangeNetwork(n model.Network) Change {
	n.Tag, n.ID, n.Identity = 0, 0, 0
	return changeOf(rankNetwork, store.Networks, n.Key, func(ctx context.Context, tx store.Tx, cl *claim) error {
		if err := n.Validate(); err != nil {
			return err
		}
		return c.putNetwork(ctx, tx, cl, n)
	})
}

// ChangeGroup is PutGroup in a list.
func (c *Controller) ChangeGroup(g model.Group) Change {
	ch := changeOf(rankGroup, store.Groups, g.Key, func(ctx context.Context, tx store.Tx, cl *claim) error {
		g, err := checkedGroup(g)
		if err != nil {
			return err
		}
		return c.putGroup(ctx, tx, cl, g)
	})
	ch.group = &g
	return ch
}

// ChangePolicy is PutPolicy in a list.
func (c *Controller) ChangePolicy(p model.ContivPolicy) Change {
	return changeOf(rankBeside, store.Policies, p.Key, func(_ context.Context, tx store.Tx, _ *claim) error {
		if err := p.Validate(); err != nil {
			return err
		}
		return putPolicy(tx, p)
	})
}

// ChangeRule is PutRule in a list.
func (c *Controller) ChangeRule(r model.Rule) Change {
	ch := changeOf(rankMember, store.Rules, r.Key, func(_ context.Context, tx store.Tx, _ *claim) error {
		if err := r.Validate(); err != nil {
			return err
		}
		return putRule(tx, r)
	})
	ch.rule = &r
	return ch
}

// ChangeNetProfile is PutNetProfile in a list.
func (c *Controller) ChangeNetProfile(p model.NetProfile) Change {
	return rowChange(p.Key.Tenant, store.NetProfiles, p.Key, p, p.Validate)
}

// ChangeExtContracts is PutExtContracts in a list.
func (c *Controller) ChangeExtContracts(e model.ExtContracts) Change {
	return rowChange(e.Key.Tenant, store.ExtContracts, e.Key, e, e.Validate)
}

// ChangeVolume is PutVolume in a list.
func (c *Controller) ChangeVolume(v model.Volume) Change {
	return rowChange(v.Key.Tenant, store.Volumes, v.Key, v, v.Validate)
}

// ChangeVolumeProfile is PutVolumeProfile in a list.
func (c *Controller) ChangeVolumeProfile(p model.VolumeProfile) Change {
	return rowChange(p.Key.Tenant, store.VolumeProfiles, p.Key, p, p.Validate)
}

// ChangeAppProfile is PutAppProfile in a list.
func (c *Controller) ChangeAppProfile(p model.AppProfile) Change {
	ch := changeOf(rankMember, store.AppProfiles, p.Key, func(_ context.Context, tx store.Tx, _ *claim) error {
		if err := p.Validate(); err != nil {
			return err
		}
		for {
			if done, err := tieGroups(tx, p); done || err != nil {
				return err
			}
		}
	})
	ch.alone = func(ctx context.Context) error { return c.PutAppProfile(ctx, p) }
	return ch
}

// ChangeService is PutService in a list.
func (c *Controller) ChangeService(s model.Service) Change {
	return changeOf(rankMember, store.LoadBalancers, s.Key, func(ctx context.Context, tx store.Tx, cl *claim) error {
		if err := s.Validate(); err != nil {
			return err
		}
		return c.putService(ctx, tx, cl, s)
	})
}

// ChangeBgp is PutBgp in a list.
func (c *Controller) ChangeBgp(b model.Bgp) Change {
	return changeOf(rankBeside, store.Bgps, store.BgpKey{Host: b.Host}, func(_ context.Context, tx store.Tx, _ *claim) error {
		if err := b.Validate(); err != nil {
			return err
		}
		return putBgp(tx, b)
	})
}

// ChangeAciGw is PutAciGw in a list.
func (c *Controller) ChangeAciGw(g model.AciGw) Change {
	return changeOf(rankBeside, store.AciGws, store.AciGwKey{}, func(_ context.Context, tx store.Tx, _ *claim) error {
		if err := g.Validate(); err != nil {
			return err
		}
		return putAciGw(tx, g)
	})
}

// ChangeEndpoint is CreateEndpoint in a list: one that is there must be as
// wanted.
func (c *Controller) ChangeEndpoint(e model.Endpoint) Change {
	e.Identity, e.MAC = 0, model.MAC{}
	return changeOf(rankEndpoint, store.Endpoints, e.Key, func(ctx context.Context, tx store.Tx, cl *claim) error {
		if err := e.Validate(); err != nil {
			return err
		}
		_, err := c.createEndpoint(ctx, tx, cl, e)
		return err
	})
}
