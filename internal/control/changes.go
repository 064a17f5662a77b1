package control

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
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
func changeOf[K comparable, V any](rank int, table *tables.Table[K, V], k K, put func(context.Context, store.Tx, *claim) error) Change {
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

// inContivWords makes a change tell the object in the words in which it was asked.
func inContivWords[G interface{ Contiv() (V, bool) }, V any](ch *Change) {
	read := ch.read
	ch.read = func(tx store.Tx) (any, bool, error) {
		row, ok, err := read(tx)
		if err != nil || !ok {
			return nil, false, err
		}
		v, ok := row.(G).Contiv()
		return v, ok, nil
	}
}

// rowChange is the change of an object that setRow writes.
func rowChange[K comparable, V any](t model.TenantName, table *tables.Table[K, V], k K, v V, validate func() error) Change {
	ch := changeOf(rankBeside, table, k, func(_ context.Context, tx store.Tx, _ *claim) error {
		return setRow(tx, t, table, k, v)
	})
	ch.check = validate
	return ch
}

// ChangeGlobal changes the settings that are set in g (zero fields stay as
// they are). The ranges may change while every id in use stays inside; the
// others only while there is no network: model.ErrInUse.
func (c *Controller) ChangeGlobal(g model.Global) Change {
	ch := changeOf(rankGlobal, tables.Globals, tables.GlobalKey{}, func(_ context.Context, tx store.Tx, _ *claim) error {
		old, err := tables.Globals.Get(tx, tables.GlobalKey{})
		if err != nil {
			return err
		}
		return putGlobal(tx, old, old.Merge(g))
	})
	ch.what = "update global"
	return ch
}

// ChangeTenant creates a tenant, or sets the default network of one; without
// default network it leaves an existing tenant as it is, or with clearDefault
// takes its default network away. In a list, the default network, which cannot
// be there before the tenant, is set after the networks.
func (c *Controller) ChangeTenant(t model.Tenant, clearDefault bool) Change {
	set := func(rank int, t model.Tenant, clearDefault bool) Change {
		ch := changeOf(rank, tables.Tenants, t.Name, func(_ context.Context, tx store.Tx, _ *claim) error {
			return putTenant(tx, t, clearDefault)
		})
		ch.check = t.Validate
		return ch
	}
	first := set(rankTenant, model.Tenant{Name: t.Name}, clearDefault && t.DefaultNetwork == "")
	if t.DefaultNetwork != "" {
		late := set(rankDefaultNetwork, t, false)
		first.late = &late
	}
	return first
}

// ChangeNetwork creates a network: it takes its name and subnets, a tag of its
// encapsulation from the global ranges, a network id and an identity. Tag, ID
// and Identity of n are ignored. An existing network with equal fields stays as
// it is; with others it is model.ErrConflict, since networks are immutable.
func (c *Controller) ChangeNetwork(n model.Network) Change {
	n.Tag, n.ID, n.Identity = 0, 0, 0
	ch := changeOf(rankNetwork, tables.Networks, n.Key, func(ctx context.Context, tx store.Tx, cl *claim) error {
		return c.putNetwork(ctx, tx, cl, n)
	})
	ch.check = n.Validate
	for _, p := range subnetsOf(n) { // creators of neighbouring subnets write these too
		ch.hold = append(ch.hold, tables.Subnets.Key(bucketOf(n.Key.Tenant, p)))
	}
	return ch
}

// ChangeGroup creates a group, or changes the policies, the net profile, the
// external contracts and the cfgdTag of one, whether or not it has endpoints.
// ID of g is ignored. The network and the pool of an existing group cannot change:
// model.ErrConflict; an empty pool means "as it is", and so does an empty
// cfgdTag without clearTag. Policies that together would not fit a host are
// model.ErrExhausted.
func (c *Controller) ChangeGroup(g model.Group, clearTag bool) Change {
	g, bad := checkedGroup(g)
	ch := changeOf(rankGroup, tables.Groups, g.Key, func(ctx context.Context, tx store.Tx, cl *claim) error {
		return c.putGroup(ctx, tx, cl, g, clearTag)
	})
	ch.check = func() error { return bad }
	ch.group = &g
	if g.Pool.IsValid() { // pools of one network share a row
		ch.hold = []string{tables.GroupPools.Key(tables.PoolsKey{Network: g.NetworkKey()})}
	}
	return ch
}

// ChangePolicy creates a policy; an existing one stays as it is.
func (c *Controller) ChangePolicy(p model.ContivPolicy) Change {
	ch := changeOf(rankBeside, tables.Policies, p.Key, func(_ context.Context, tx store.Tx, _ *claim) error {
		return putPolicy(tx, p.General())
	})
	inContivWords[model.Policy, model.ContivPolicy](&ch)
	ch.check = p.Validate
	return ch
}

// ChangeRule creates a rule. What it names must exist in its tenant. An
// existing rule with equal fields stays as it is; with others it is
// model.ErrConflict, since rules are immutable. One with which the policy, or
// the policies of a group, would not fit a host is model.ErrExhausted.
func (c *Controller) ChangeRule(r model.Rule) Change {
	general := r.General()
	ch := changeOf(rankMember, tables.Rules, r.Key, func(_ context.Context, tx store.Tx, _ *claim) error {
		return putRule(tx, general, model.KindContiv, model.OwnerUser)
	})
	inContivWords[model.PolicyRule, model.Rule](&ch)
	ch.check = r.Validate
	ch.rule = &general
	return ch
}

// ChangeNetProfile creates a net profile or replaces it, whether or not groups
// name it.
func (c *Controller) ChangeNetProfile(p model.NetProfile) Change {
	return rowChange(p.Key.Tenant, tables.NetProfiles, p.Key, p, p.Validate)
}

// ChangeExtContracts creates a group of external contracts or replaces it.
func (c *Controller) ChangeExtContracts(e model.ExtContracts) Change {
	return rowChange(e.Key.Tenant, tables.ExtContracts, e.Key, e, e.Validate)
}

// ChangeVolume creates a volume or replaces it.
func (c *Controller) ChangeVolume(v model.Volume) Change {
	return rowChange(v.Key.Tenant, tables.Volumes, v.Key, v, v.Validate)
}

// ChangeVolumeProfile creates a volume profile or replaces it.
func (c *Controller) ChangeVolumeProfile(p model.VolumeProfile) Change {
	return rowChange(p.Key.Tenant, tables.VolumeProfiles, p.Key, p, p.Validate)
}

// ChangeAppProfile creates an app profile or replaces its groups, which must
// exist. More changes than appBatch take several transactions, each of which
// leaves the profile with exactly the groups that are tied; when one of them
// fails, for a group that somebody deleted meanwhile, changing the profile again
// goes on from there.
func (c *Controller) ChangeAppProfile(p model.AppProfile) Change {
	ch := changeOf(rankMember, tables.AppProfiles, p.Key, func(_ context.Context, tx store.Tx, _ *claim) error {
		for {
			if done, err := tieGroups(tx, p); done || err != nil {
				return err
			}
		}
	})
	ch.check = p.Validate
	ch.alone = func(ctx context.Context) (any, store.Revision, error) {
		rev, err := c.tieAll(ctx, p)
		return p, rev, err
	}
	return ch
}

// ChangeService creates a load-balanced service, with the address that it asks
// for or a free one of its network, or changes the selectors, the ports and the
// address of one. VIP of s is ignored; an empty ReqAddr of an existing service
// means "as it is". The network cannot change: model.ErrConflict, and nothing
// has changed (known fault 24).
func (c *Controller) ChangeService(s model.Service) Change {
	s.VIP = netip.Addr{}
	ch := changeOf(rankMember, tables.LoadBalancers, s.Key, func(ctx context.Context, tx store.Tx, cl *claim) error {
		return c.putService(ctx, tx, cl, s)
	})
	ch.check = s.Validate
	return ch
}

// ChangeBgp creates a host's BGP settings or replaces them. The host must be one
// that an agent has told of (known fault 26): otherwise model.ErrNotFound.
func (c *Controller) ChangeBgp(b model.Bgp) Change {
	ch := changeOf(rankBeside, tables.Bgps, tables.BgpKey{Host: b.Host}, func(_ context.Context, tx store.Tx, _ *claim) error {
		return putBgp(tx, b)
	})
	ch.check = b.Validate
	return ch
}

// ChangeAciGw sets the settings of the ACI fabric.
func (c *Controller) ChangeAciGw(g model.AciGw) Change {
	ch := changeOf(rankBeside, tables.AciGws, tables.AciGwKey{}, func(_ context.Context, tx store.Tx, _ *claim) error {
		return putAciGw(tx, g)
	})
	ch.check = g.Validate
	return ch
}

// ChangeEndpoint is CreateEndpoint in a list: one that is there must be as
// wanted.
func (c *Controller) ChangeEndpoint(e model.Endpoint) Change {
	e.Identity = 0
	ch := changeOf(rankEndpoint, tables.Endpoints, e.Key, func(ctx context.Context, tx store.Tx, cl *claim) error {
		_, err := c.createEndpoint(ctx, tx, cl, e)
		return err
	})
	ch.check = e.Validate
	return ch
}
