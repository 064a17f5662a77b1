package statemirror

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Knows tells whether the mirrors hold the endpoint as given.
func (c *State) Knows(ep model.Endpoint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.endpointsLocked(ep.Key.Network)
	if m == nil {
		return false
	}
	got, ok := m.endpoints[ep.Key]
	return ok && got.MAC == ep.MAC && got.IPv4 == ep.IPv4 && got.IPv6 == ep.IPv6
}

// HasGroup tells whether the mirror holds a group; it holds none of a tenant that
// is not mirrored.
func (c *State) HasGroup(k model.GroupKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.mirrors[TenantScope(k.Tenant)]
	if m == nil {
		return false
	}
	_, ok := m.groups[k]
	return ok
}

// AsksForLabels tells whether a policy of a tenant selects by labels; no policy is
// known of a tenant that is not mirrored.
func (c *State) AsksForLabels(t model.TenantName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.comp.Identities.AsksForLabels(t)
}

// AwaitTenant waits for the snapshot of a tenant's rest, which must have been acquired.
func (c *State) AwaitTenant(ctx context.Context, t model.TenantName) error {
	var why error
	err := c.wait(ctx, func() (bool, error) {
		m := c.mirrors[TenantScope(t)]
		if m == nil {
			return false, model.Errorf(model.ErrUnavailable, "tenant %s is not mirrored", t)
		}
		why = m.err
		return m.ready, nil
	})
	if err != nil && why != nil {
		return model.Errorf(model.ErrUnavailable, "read tenant %s from the store: %w", t, why)
	}
	return err
}

// AwaitSettings waits for the cluster's settings. first, optional, bounds the
// wait for the store itself; its end is first's error.
func (c *State) AwaitSettings(ctx, first context.Context) (model.Global, error) {
	err := c.wait(first, func() (bool, error) {
		m := c.mirrors[Scope{}]
		return m != nil && m.ready, nil
	})
	if err != nil {
		return model.Global{}, err
	}
	var g model.Global
	err = c.wait(ctx, func() (bool, error) {
		if c.global != nil {
			g = *c.global
		}
		return c.global != nil, nil
	})
	return g, err
}

// AwaitRevision waits until the mirror of a Scope, or of all endpoints of its tenant, has
// reached a revision.
func (c *State) AwaitRevision(ctx context.Context, p Scope, rev store.Revision) error {
	return c.wait(ctx, func() (bool, error) {
		m := c.mirrors[p]
		if p.Network != "" {
			m = c.endpointsLocked(p.network())
		}
		return m != nil && m.rev >= rev, nil
	})
}

// AwaitEndpoints waits until all endpoints are known that concern this host for the sake
// of a network, which must have been acquired: its own, and of its tenant those that it
// is joined to.
func (c *State) AwaitEndpoints(ctx context.Context, k model.NetworkKey) error {
	var why error
	err := c.wait(ctx, func() (bool, error) {
		own := c.endpointsLocked(k)
		if own == nil || !own.ready {
			why = model.Errorf(model.ErrUnavailable, "the endpoints of network %s have not been read", k)
			if own != nil {
				why = own.err
			}
			return false, nil
		}
		for p := range c.subscribed {
			if p.Tenant != k.Tenant || p.isRest() {
				continue
			}
			m := c.mirrors[p]
			if p.Network != "" {
				m = c.endpointsLocked(p.network())
			}
			if m == nil || !m.ready || m.staged {
				why = model.Errorf(model.ErrUnavailable, "%s have not been read", p)
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil && why != nil {
		return model.Errorf(model.ErrUnavailable, "read the endpoints that concern network %s from the store: %w", k, why)
	}
	return err
}

// Resolve returns the network that an attachment is to be on: the one asked for,
// else the group's, else the tenant's default, else attach.DefaultNetwork; and
// its record, when the mirror has it.
func (c *State) Resolve(g model.GroupKey, asked model.NetworkName) (name model.NetworkName, n model.Network, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resolveLocked(g, asked)
}

func (c *State) resolveLocked(g model.GroupKey, asked model.NetworkName) (name model.NetworkName, n model.Network, known bool) {
	m := c.mirrors[TenantScope(g.Tenant)]
	if asked == "" && g.Name != "" && m != nil {
		asked = m.groups[g].Network
	}
	if asked == "" {
		asked = c.tenants[g.Tenant].DefaultNetwork
	}
	if asked == "" {
		asked = attach.DefaultNetwork
	}
	if m == nil {
		return asked, n, false
	}
	n, known = m.networks[model.NetworkKey{Tenant: g.Tenant, Name: asked}]
	return asked, n, known
}

// AwaitNetwork waits for the record of a network that netmaster knows already.
func (c *State) AwaitNetwork(ctx context.Context, k model.NetworkKey) (n model.Network, err error) {
	err = c.wait(ctx, func() (known bool, err error) {
		m := c.mirrors[TenantScope(k.Tenant)]
		if m == nil {
			return false, model.Errorf(model.ErrUnavailable, "tenant %s is not mirrored", k.Tenant)
		}
		n, known = m.networks[k]
		return known, nil
	})
	if err != nil {
		return n, model.Errorf(model.ErrUnavailable, "wait for network %s in the mirror: %w", k, err)
	}
	return n, nil
}

// MissingEndpoints returns those of this host's endpoints that the store, as far as it is
// known, does not have.
func (c *State) MissingEndpoints(all []model.EndpointKey) map[model.EndpointKey]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := map[model.EndpointKey]bool{}
	for _, k := range all {
		if m := c.endpointsLocked(k.Network); m != nil && m.ready {
			if _, there := m.endpoints[k]; !there {
				lost[k] = true
			}
		}
	}
	return lost
}

// Groups returns the group of each of this host's endpoints; "" for an endpoint
// that is not known.
func (c *State) Groups(of []model.EndpointKey) []model.GroupName {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]model.GroupName, len(of))
	for i, k := range of {
		if m := c.endpointsLocked(k.Network); m != nil {
			out[i] = m.endpoints[k].Group
		}
	}
	return out
}

// Endpoints returns endpoints by their keys, those that are not known without
// addresses.
func (c *State) Endpoints(of []model.EndpointKey) map[model.EndpointKey]model.Endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[model.EndpointKey]model.Endpoint, len(of))
	for _, k := range of {
		if m := c.endpointsLocked(k.Network); m != nil {
			out[k] = m.endpoints[k]
		}
	}
	return out
}

// Each calls network, endpoint, policy and group with all that is mirrored, networks
// first, and returns the revision that the mirrors have reached; when that is
// unless, it calls nothing. The State is locked meanwhile.
func (c *State) Each(unless store.Revision, network func(model.Network), endpoint func(model.Endpoint), policy func(model.Policy), group func(model.Group)) store.Revision {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rev == unless {
		return c.rev
	}
	for _, m := range c.mirrors {
		for _, n := range m.networks {
			network(n)
		}
	}
	for _, m := range c.mirrors {
		if m.staged {
			continue
		}
		for _, v := range m.values {
			switch v := v.(type) {
			case model.Endpoint:
				endpoint(v)
			case model.Policy:
				policy(v)
			case model.Group:
				group(v)
			}
		}
	}
	return c.rev
}

// Progress is how far the mirrors are.
type Progress struct {
	Revision store.Revision                      // newest that they have delivered
	Dirty    store.Revision                      // of the last change that could concern this host
	Paused   bool                                // by Pause
	Tenants  map[model.TenantName]store.Revision // of which something is mirrored
	Parts    map[string]store.Revision           // mirrored
}

// Progress returns how far the mirrors are now.
func (c *State) Progress() Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := Progress{Revision: c.rev, Dirty: c.dirty, Paused: c.paused != nil, Tenants: map[model.TenantName]store.Revision{}, Parts: map[string]store.Revision{}}
	for part, m := range c.mirrors {
		if p.Parts[part.String()] = m.rev; part.Tenant != "" {
			p.Tenants[part.Tenant] = max(p.Tenants[part.Tenant], m.rev)
		}
	}
	return p
}
