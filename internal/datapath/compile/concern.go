package compile

import "github.com/contiv/netplugin/v2/internal/model"

// Which networks' endpoints a host has to know, and which it does.

// followed are the networks whose endpoints are told.
type followed struct {
	networks set[model.NetworkKey]
	tenants  set[model.TenantName] // with all of their networks
}

// ByNetwork says, before anything else, that endpoints are told of some networks only:
// those of Follow and FollowAll. Others are in no picture, since who is on them is not
// known.
func (c *Compiler) ByNetwork() {
	c.followed = &followed{networks: set[model.NetworkKey]{}, tenants: set[model.TenantName]{}}
}

// Follow says whether all endpoints of a network have been told, and are from now on.
func (c *Compiler) Follow(k model.NetworkKey, is bool) {
	if is {
		c.followed.networks.add(k)
	} else {
		delete(c.followed.networks, k)
	}
	if n := c.networks[k]; n != nil {
		c.dirtyNetworks.add(n)
		c.touchSegments(n)
	}
}

// FollowAll is Follow of all networks that a tenant has, and will have.
func (c *Compiler) FollowAll(name model.TenantName, is bool) {
	if is {
		c.followed.tenants.add(name)
	} else {
		delete(c.followed.tenants, name)
	}
	c.touchRouter(c.tenants[name])
}

func (c *Compiler) follows(n *network) bool {
	if c.followed == nil {
		return true
	}
	_, one := c.followed.networks[n.key]
	_, all := c.followed.tenants[n.key.Tenant]
	return one || all
}

// Concerns tells whether a network's endpoints have to be known here, though none is
// here, when isHere are the tenants that have some or are about to: it is native, or has
// services that every host leads to, or is joined to a network that is here.
func (c *Compiler) Concerns(k model.NetworkKey, isHere func(model.TenantName) bool) bool {
	n := c.networks[k]
	return n != nil && c.concerns(n, isHere)
}

// ConcernsAll tells whether Concerns is so of all networks that a tenant has, and will
// have: they are joined, and one of them is here.
func (c *Compiler) ConcernsAll(name model.TenantName, isHere func(model.TenantName) bool) bool {
	t := c.tenants[name]
	return t != nil && c.joins(t) != 0 && (isHere(name) || t.exposing > 0)
}

func (c *Compiler) concerns(n *network, isHere func(model.TenantName) bool) bool {
	return n.rec != nil && (n.rec.Native || n.exposes() || c.joins(n.tenant) != 0 && (isHere(n.key.Tenant) || n.tenant.exposing > 0 || c.sharedHere(n, isHere)))
}
