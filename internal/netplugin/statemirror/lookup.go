package statemirror

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Lookup answers what the mirrors have of tenants' objects, and waits for them. It owns no
// state: attachments and observers ask it.
type Lookup struct {
	*shared
	mirrors  *mirrorSet
	settings *Settings
	guard    *StoreGuard
	comp     *compile.Compiler
}

// HasGroup reports whether the mirror holds a group; it holds none of a tenant that
// is not mirrored.
func (l *Lookup) HasGroup(k model.GroupKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.mirrors.byScope[TenantScope(k.Tenant)]
	if m == nil {
		return false
	}
	_, ok := m.groups[k]
	return ok
}

// UsesLabels reports whether a policy of a tenant selects by labels. Of a tenant whose
// policies are not mirrored it says yes.
func (l *Lookup) UsesLabels(t model.TenantName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.mirrors.byScope[TenantScope(t)]; m != nil && (m.withheld || m.partial) {
		return true
	}
	return l.comp.Identities.UsesLabels(t)
}

// AwaitTenant waits for the snapshot of a tenant's rest, which must have been acquired.
func (l *Lookup) AwaitTenant(ctx context.Context, t model.TenantName) error {
	return l.awaitTenant(ctx, t, func(m *mirror) bool { return m.ready })
}

// AwaitPolicies is AwaitTenant, and waits until nothing of the rest is left out: netmaster has
// seen that this host has an endpoint of the tenant.
func (l *Lookup) AwaitPolicies(ctx context.Context, t model.TenantName) error {
	return l.awaitTenant(ctx, t, func(m *mirror) bool { return m.ready && !m.partial })
}

// HasTenant waits for a tenant's rest, which must have been acquired, and reports whether all
// of it is here. A netmaster withholds it, or a part, until this host has an endpoint of the
// tenant.
func (l *Lookup) HasTenant(ctx context.Context, t model.TenantName) (all bool, err error) {
	err = l.awaitTenant(ctx, t, func(m *mirror) bool {
		all = m.ready && !m.partial
		return m.ready || m.withheld
	})
	return all, err
}

func (l *Lookup) awaitTenant(ctx context.Context, t model.TenantName, is func(*mirror) bool) error {
	var why error
	err := l.wait(ctx, func() (bool, error) {
		m := l.mirrors.byScope[TenantScope(t)]
		if m == nil {
			return false, model.Errorf(model.ErrUnavailable, "tenant %s is not mirrored", t)
		}
		if why = m.err; why == nil && m.partial {
			why = errWithheld
		}
		return is(m), nil
	})
	if err != nil && why != nil {
		return model.Errorf(model.ErrUnavailable, "read tenant %s from the store: %w", t, why)
	}
	return err
}

// AwaitSettings waits for the cluster's settings. first, optional, bounds the
// wait for the store itself; its end is first's error.
func (l *Lookup) AwaitSettings(ctx, first context.Context) (model.Global, error) {
	err := l.wait(first, func() (bool, error) {
		m := l.mirrors.global()
		return m != nil && m.ready, nil
	})
	if err != nil {
		return model.Global{}, err
	}
	var g model.Global
	err = l.wait(ctx, func() (bool, error) {
		if l.settings.global != nil {
			g = *l.settings.global
		}
		return l.settings.global != nil, nil
	})
	return g, err
}

// AwaitRevision waits until the mirror of a Scope, or of all endpoints of its tenant, has
// reached a revision.
func (l *Lookup) AwaitRevision(ctx context.Context, p Scope, rev store.Revision) error {
	return l.wait(ctx, func() (bool, error) {
		m := l.mirrors.byScope[p]
		if p.Network != "" {
			m = l.mirrors.endpoints(p.network())
		}
		return m != nil && m.rev >= rev, nil
	})
}

// AwaitEndpoints waits until all endpoints are known that concern this host because of a
// network, which must have been acquired: the network's own, and those of its tenant's
// networks that it is joined to.
func (l *Lookup) AwaitEndpoints(ctx context.Context, k model.NetworkKey) error {
	var why error
	err := l.wait(ctx, func() (bool, error) {
		own := l.mirrors.endpoints(k)
		if own == nil || !own.ready {
			why = model.Errorf(model.ErrUnavailable, "the endpoints of network %s have not been read", k)
			if own != nil {
				why = own.err
			}
			return false, nil
		}
		for p := range l.mirrors.subscribed {
			if p.Tenant != k.Tenant || p.isTenant() {
				continue
			}
			m := l.mirrors.byScope[p]
			if p.Network != "" {
				m = l.mirrors.endpoints(p.network())
			}
			if m == nil || !m.ready && !m.withheld || m.staged {
				why = model.Errorf(model.ErrUnavailable, "%s have not been read", p)
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil && why != nil {
		return model.Errorf(model.ErrUnavailable, "read the endpoints relevant to network %s from the store: %w", k, why)
	}
	return err
}

// Resolve returns the network that an attachment is to be on: the one asked for,
// else the group's, else the tenant's default, else attach.DefaultNetwork; and
// its record, when the mirror has it.
func (l *Lookup) Resolve(g model.GroupKey, asked model.NetworkName) (name model.NetworkName, n model.Network, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resolve(g, asked)
}

func (l *Lookup) resolve(g model.GroupKey, asked model.NetworkName) (name model.NetworkName, n model.Network, known bool) {
	m := l.mirrors.byScope[TenantScope(g.Tenant)]
	if asked == "" && g.Name != "" && m != nil {
		asked = m.groups[g].Network
	}
	if asked == "" {
		asked = l.settings.tenants[g.Tenant].DefaultNetwork
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

// AwaitNetworkOf returns the network that an attachment to a group, or to none, and to the
// network asked for, if any, is to be on, once the mirror of the tenant has both, and the
// group is on that network. The mirror must have been waited for; what it lacks is waited
// for until patience ends. The error is then what netmaster would refuse it with: of kind
// model.ErrNotFound or model.ErrConflict.
func (l *Lookup) AwaitNetworkOf(ctx context.Context, patience time.Duration, g model.GroupKey, asked model.NetworkName) (n model.Network, err error) {
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var why error
	err = l.wait(waiting, func() (bool, error) {
		n, why = l.networkOf(g, asked)
		return why == nil, nil
	})
	if err != nil && ctx.Err() == nil {
		return n, why
	}
	return n, err
}

func (l *Lookup) networkOf(g model.GroupKey, asked model.NetworkName) (n model.Network, err error) {
	name, n, known := l.resolve(g, asked)
	if m := l.mirrors.byScope[TenantScope(g.Tenant)]; g.Name != "" && m != nil {
		switch group, there := m.groups[g]; {
		case !there:
			return n, model.Errorf(model.ErrNotFound, "endpoint group %q does not exist", g)
		case group.Network != name:
			return n, model.Errorf(model.ErrConflict, "endpoint group %q is on network %q, not on %q", g, group.Network, name)
		}
	}
	if !known {
		return n, model.Errorf(model.ErrNotFound, "network %q does not exist", model.NetworkKey{Tenant: g.Tenant, Name: name})
	}
	return n, nil
}

// AwaitNetwork waits for the record of a network that netmaster knows already.
func (l *Lookup) AwaitNetwork(ctx context.Context, k model.NetworkKey) (n model.Network, err error) {
	err = l.wait(ctx, func() (known bool, err error) {
		m := l.mirrors.byScope[TenantScope(k.Tenant)]
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

// network returns a network that is mirrored; its zero value when it is not.
func (l *Lookup) network(k model.NetworkKey) (n model.Network) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.mirrors.byScope[TenantScope(k.Tenant)]; m != nil {
		n = m.networks[k]
	}
	return n
}

// Subnets are those of all networks that this host knows of: of the cluster's, where it
// has BGP settings.
func (l *Lookup) Subnets() (out []netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mirrors.subnets()
}

// subnets are those of all networks that are mirrored.
func (s *mirrorSet) subnets() (out []netip.Prefix) {
	for _, m := range s.byScope {
		for _, n := range m.networks {
			for _, p := range []netip.Prefix{n.Subnet, n.Subnet6} {
				if p.IsValid() {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// VLANs are the networks of encap vlan that this host knows of, in order: of the
// cluster's, where it has BGP settings.
func (l *Lookup) VLANs() (out []model.Network) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.mirrors.byScope {
		for _, n := range m.networks {
			if n.Encap == model.EncapVLAN {
				out = append(out, n)
			}
		}
	}
	slices.SortFunc(out, func(a, b model.Network) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Infra returns the infra networks that there are, on which each host has an endpoint of
// its own; known is false unless the store is followed, and then nothing may be
// concluded of what is missing.
func (l *Lookup) Infra() (wanted map[model.NetworkKey]bool, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.guard.current() {
		return nil, false
	}
	return l.settings.infra(), true
}

// Each calls network, endpoint, policy and group with all that is mirrored, networks
// first, and returns the revision that the mirrors have reached; when that is
// unless, it calls nothing. The State is locked meanwhile.
func (l *Lookup) Each(unless store.Revision, network func(model.Network), endpoint func(model.Endpoint), policy func(model.Policy), group func(model.Group)) store.Revision {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mirrors.rev == unless {
		return unless
	}
	for _, m := range l.mirrors.byScope {
		for _, n := range m.networks {
			network(n)
		}
	}
	for _, m := range l.mirrors.byScope {
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
	return l.mirrors.rev
}

// Progress returns how far the mirrors are now.
func (l *Lookup) Progress() Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mirrors.progress()
}
