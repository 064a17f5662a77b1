package compile

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Compiler holds the inputs of one host's picture. Set and Delete record a
// change, at a cost that does not depend on how much else there is; Compile
// brings the picture up to date. Values handed in are not changed afterwards,
// neither by the Compiler nor by the caller. A Compiler is used by one
// goroutine at a time; pictures it returned may be read by any.
type Compiler struct {
	self     model.HostName
	global   *model.Global
	hosts    map[model.HostName]*model.Host
	networks map[model.NetworkKey]*network
	groups   map[model.GroupKey]*group
	policies map[model.PolicyKey]*policy
	tenants  map[model.TenantName]*tenant
	services map[model.ServiceKey]*service
	// namespaces are those with a row; inNamespace has the identities of each that is named.
	namespaces  map[model.NamespaceName]*model.Namespace
	inNamespace map[model.NamespaceName]set[identityOf]
	privates    map[model.EndpointKey]netip.Addr // as this host has chosen them
	drained     set[model.HostName]
	silent      set[model.HostName]
	speaksBGP   bool
	control     []netip.AddrPort // sorted
	infra       set[*network]    // infra networks
	routers     map[model.TenantName]model.RouterID
	shared      map[model.TenantName][]model.NetworkKey    // networks of others that a tenant reaches
	clients     map[model.TenantName]set[model.TenantName] // the reverse: who reaches a tenant's networks

	// Indexes over dependencies.
	selecting map[peerRef]set[*selection]       // selections that name a group or network
	netIDs    map[model.NetworkID]set[*network] // who claims a number; nearly always one
	routerIDs map[model.RouterID]set[model.TenantName]
	tunnels   map[netip.Addr]set[model.HostName] // whose they are
	nodes     map[netip.Addr]set[model.HostName] // likewise of hosts' own addresses

	followed     *followed                    // nil = all endpoints are told
	lacksNative  bool                         // this host's data plane knows no native networks: ports there have private addresses
	lacksForeign bool                         // this host's data plane leads to no backends of services that are no endpoints
	exposedAt    map[netip.Addr]set[*service] // who wants to be exposed there

	subjects map[subjectKey]*subject
	sets     map[string]*policySet       // by name
	hashes   map[desired.PolicySetID]int // present names that have a hash
	clashes  int                         // hashes that several names have, or that are 0
	clashed  bool                        // there were clashes at the last Compile

	// What has to be looked at by the next Compile.
	dirtyHeader   bool
	dirtyNetworks set[*network]
	dirtyEps      set[*endpoint]
	dirtyGroups   set[*group]
	dirtyTenants  set[*tenant]
	dirtyTunnels  set[netip.Addr]
	dirtyNodes    set[netip.Addr]
	changed       serviceChanges
	cluster       clusterServices
	policyChanges
	profiles profiles

	out      desired.Host
	problems problems
}

// New returns a Compiler for one host that has been told nothing yet.
func New(host model.HostName) *Compiler {
	return &Compiler{
		self:          host,
		hosts:         map[model.HostName]*model.Host{},
		infra:         set[*network]{},
		networks:      map[model.NetworkKey]*network{},
		groups:        map[model.GroupKey]*group{},
		policies:      map[model.PolicyKey]*policy{},
		tenants:       map[model.TenantName]*tenant{},
		privates:      map[model.EndpointKey]netip.Addr{},
		drained:       set[model.HostName]{},
		silent:        set[model.HostName]{},
		selecting:     map[peerRef]set[*selection]{},
		subjects:      map[subjectKey]*subject{},
		sets:          map[string]*policySet{},
		hashes:        map[desired.PolicySetID]int{},
		netIDs:        map[model.NetworkID]set[*network]{},
		routers:       map[model.TenantName]model.RouterID{},
		shared:        map[model.TenantName][]model.NetworkKey{},
		clients:       map[model.TenantName]set[model.TenantName]{},
		routerIDs:     map[model.RouterID]set[model.TenantName]{},
		tunnels:       map[netip.Addr]set[model.HostName]{},
		nodes:         map[netip.Addr]set[model.HostName]{},
		exposedAt:     map[netip.Addr]set[*service]{},
		dirtyHeader:   true,
		dirtyNetworks: set[*network]{},
		dirtyEps:      set[*endpoint]{},
		dirtyGroups:   set[*group]{},
		dirtyTenants:  set[*tenant]{},
		dirtyTunnels:  set[netip.Addr]{},
		dirtyNodes:    set[netip.Addr]{},
		services:      map[model.ServiceKey]*service{},
		namespaces:    map[model.NamespaceName]*model.Namespace{},
		inNamespace:   map[model.NamespaceName]set[identityOf]{},
		changed:       serviceChanges{set[*service]{}, map[*service]set[*endpoint]{}},
		cluster:       newClusterServices(),
		policyChanges: newPolicyChanges(),
		profiles:      newProfiles(),
	}
}

// SetGlobal records the cluster's settings.
func (c *Compiler) SetGlobal(g model.Global) { c.putGlobal(&g) }

// DeleteGlobal forgets them; the defaults (bridge, proxy) stand in.
func (c *Compiler) DeleteGlobal() { c.putGlobal(nil) }

func (c *Compiler) putGlobal(g *model.Global) {
	routed, fabric := c.routes(), c.global != nil && c.global.Infra == model.InfraACI
	c.global = g
	c.dirtyHeader = true
	if fabric != (g != nil && g.Infra == model.InfraACI) {
		for _, g := range c.groups {
			c.dirtyGroups.add(g)
		}
	}
	if c.routes() != routed {
		for _, t := range c.tenants {
			c.touchRouter(t)
			if c.shares(t.name) {
				c.touchApart(t)
			}
		}
	}
}

// SetHost records a host. When its VTEP changes, every network with endpoints
// on it is looked at again.
func (c *Compiler) SetHost(h model.Host) {
	old := c.hosts[h.Name]
	c.hosts[h.Name] = &h
	c.touchInside(old, &h)
	c.touchTunnel(h.Name, old, &h)
	c.touchNode(h.Name, old, &h)
	if old == nil || old.VTEP != h.VTEP {
		c.touchHost(h.Name)
	}
}

// DeleteHost forgets a host; its endpoints keep their place without a tunnel.
func (c *Compiler) DeleteHost(name model.HostName) {
	if old := c.hosts[name]; old != nil {
		c.touchInside(old, nil)
		c.touchTunnel(name, old, nil)
		c.touchNode(name, old, nil)
		delete(c.hosts, name)
		c.touchHost(name)
	}
}

func (c *Compiler) touchHost(name model.HostName) {
	if name == c.self { // rare: which tunnels there are depends on our own end
		c.dirtyHeader = true
		for _, n := range c.networks {
			if n.id != 0 {
				c.dirtyNetworks.add(n)
				for e := range eachEndpoint(n) {
					c.dirtyEps.add(e)
				}
			}
		}
		return
	}
	for _, n := range c.networks {
		if eps := n.byHost[name]; len(eps) > 0 {
			c.dirtyNetworks.add(n)
			for e := range eps {
				c.dirtyEps.add(e)
			}
		}
	}
}

func (c *Compiler) network(k model.NetworkKey) *network {
	return lookup(c.networks, k, func() *network {
		n := &network{
			key: k, tenant: c.tenant(k.Tenant), eps: map[model.EndpointID]*endpoint{},
			byHost: map[model.HostName]set[*endpoint]{}, macs: map[model.MAC][]*endpoint{},
		}
		n.tenant.networks.add(n)
		return n
	})
}

// SetNetwork records a network.
func (c *Compiler) SetNetwork(v model.Network) { c.putNetwork(v.Key, &v) }

// DeleteNetwork forgets a network; ports that remain on it leave the picture.
func (c *Compiler) DeleteNetwork(k model.NetworkKey) { c.putNetwork(k, nil) }

func (c *Compiler) putNetwork(k model.NetworkKey, rec *model.Network) {
	n := c.network(k)
	old := n.rec
	n.rec = rec
	c.dirtyNetworks.add(n)
	c.touchSegments(n)
	if old == nil || rec == nil || *old != *rec {
		for e := range eachEndpoint(n) {
			c.dirtyEps.add(e)
		}
		c.touchPeer(peerRef{tenant: k.Tenant, network: k.Name})
		c.touchShared(n.tenant)
		c.countNative(n, old, rec)
		c.countInfra(n, rec)
	}
}

func eachEndpoint(n *network) func(func(*endpoint) bool) {
	return func(yield func(*endpoint) bool) {
		for _, e := range n.eps {
			if !yield(e) {
				return
			}
		}
	}
}

func (c *Compiler) group(k model.GroupKey) *group {
	return lookup(c.groups, k, func() *group { return &group{key: k, subjects: set[*subject]{}} })
}

// SetGroup records an endpoint group.
func (c *Compiler) SetGroup(v model.Group) { c.putGroup(v.Key, &v) }

// DeleteGroup forgets a group; ports that remain in it deny everything.
func (c *Compiler) DeleteGroup(k model.GroupKey) { c.putGroup(k, nil) }

func (c *Compiler) putGroup(k model.GroupKey, rec *model.Group) {
	g := c.group(k)
	old := g.rec
	g.rec = rec
	if old != nil {
		for _, name := range old.Policies {
			p := c.policy(model.PolicyKey{Tenant: k.Tenant, Name: name})
			delete(p.refs, k)
			c.prunePolicy(p)
		}
	}
	if rec != nil {
		for _, name := range rec.Policies {
			c.policy(model.PolicyKey{Tenant: k.Tenant, Name: name}).refs.add(k)
		}
	}
	c.dirtyGroups.add(g)
	c.followSegment(k, old, rec)
	c.followProfile(g, old, rec)
	if (old == nil) != (rec == nil) {
		c.touchPeer(peerRef{tenant: k.Tenant, group: k.Name})
	}
}

// SetEndpoint records an endpoint.
func (c *Compiler) SetEndpoint(v model.Endpoint) {
	n := c.network(v.Key.Network)
	old := n.eps[v.Key.ID]
	if old != nil {
		if sameEndpoint(&old.Endpoint, &v) {
			if old.Rates != v.Rates {
				c.dirtyEps.add(old)
			}
			c.relabel(old, v)
			return
		}
		c.unlink(n, old)
		old.Endpoint = v
		c.link(n, old)
		return
	}
	e := &endpoint{Endpoint: v, net: n, ifName: IfName(v.Key)}
	n.eps[v.Key.ID] = e
	c.link(n, e)
}

// sameEndpoint compares what a picture depends on, but for services.
func sameEndpoint(a, b *model.Endpoint) bool {
	return a.Group == b.Group && a.Identity == b.Identity && a.Host == b.Host &&
		a.IPv4 == b.IPv4 && a.IPv6 == b.IPv6 && a.MAC == b.MAC && containerName(a) == containerName(b)
}

// DeleteEndpoint forgets an endpoint.
func (c *Compiler) DeleteEndpoint(k model.EndpointKey) {
	n := c.networks[k.Network]
	if n == nil || n.eps[k.ID] == nil {
		return
	}
	e := n.eps[k.ID]
	delete(n.eps, k.ID)
	c.unlink(n, e)
	e.gone = true
	if len(n.eps) == 0 {
		c.dirtyNetworks.add(n)
	}
}

// link enters an endpoint into the indexes and marks what its coming touches.
func (c *Compiler) link(n *network, e *endpoint) {
	e.gone = false
	c.dirtyEps.add(e)
	on := n.byHost[e.Host]
	if on == nil {
		on = set[*endpoint]{}
		n.byHost[e.Host] = on
		c.dirtyNetworks.add(n)
	}
	on.add(e)
	e.seg = n.segments[e.Group]
	c.settle(e, 1)
	n.macs[e.MAC] = append(n.macs[e.MAC], e)
	c.serve(e, true)
	c.cluster.follow(e, true)
	c.touchMAC(n, e.MAC)
	c.useIdentity(n.tenant, e.identity(), 1)
	if e.Host == c.self {
		c.countLocal(n.tenant, 1)
	}
}

// unlink is the reverse of link.
func (c *Compiler) unlink(n *network, e *endpoint) {
	c.dirtyEps.add(e)
	c.settle(e, -1)
	c.serve(e, false)
	c.cluster.follow(e, false)
	on := n.byHost[e.Host]
	if delete(on, e); len(on) == 0 {
		delete(n.byHost, e.Host)
		c.dirtyNetworks.add(n)
	}
	claims := n.macs[e.MAC]
	if i := slices.Index(claims, e); len(claims) == 1 {
		delete(n.macs, e.MAC)
	} else {
		n.macs[e.MAC] = slices.Delete(slices.Clone(claims), i, i+1)
		c.touchMAC(n, e.MAC)
	}
	c.useIdentity(n.tenant, e.identity(), -1)
	if e.Host == c.self {
		c.countLocal(n.tenant, -1)
	}
}

func (c *Compiler) touchMAC(n *network, mac model.MAC) {
	for _, e := range n.macs[mac] {
		c.dirtyEps.add(e)
	}
}

func (c *Compiler) tenant(name model.TenantName) *tenant {
	return lookup(c.tenants, name, func() *tenant {
		return &tenant{
			name: name, networks: set[*network]{}, records: map[model.Identity]*model.IdentityRecord{}, postings: map[term]set[model.Identity]{},
			uses: map[model.Identity]int{}, orphans: set[model.Identity]{}, later: set[model.Identity]{}, named: set[*rule]{}, subjects: map[model.Identity]set[*subject]{},
			selections: map[string]*selection{}, byTerm: map[term]set[*selection]{},
		}
	})
}

func (c *Compiler) useIdentity(t *tenant, id model.Identity, by int) {
	if t.uses[id] += by; t.uses[id] == 0 {
		delete(t.uses, id)
		c.dirtyTenants.add(t)
	}
	c.checkOrphan(t, id)
}

func (c *Compiler) checkOrphan(t *tenant, id model.Identity) {
	_, was := t.orphans[id]
	if is := t.uses[id] > 0 && t.records[id] == nil; is != was {
		if is {
			t.orphans.add(id)
		} else {
			delete(t.orphans, id)
		}
		c.dirtyTenants.add(t)
	}
}

// SetIdentity records what an identity stands for.
func (c *Compiler) SetIdentity(r model.IdentityRecord) {
	t := c.tenant(r.Network.Tenant)
	old := t.records[r.ID]
	if r = r.In(c.namespaces[r.Namespace]); old != nil && old.Equal(r) {
		return
	}
	c.enterIdentity(t, r.ID, old, &r)
}

// KnowsIdentity reports whether an identity's record is there.
func (c *Compiler) KnowsIdentity(name model.TenantName, id model.Identity) bool {
	t := c.tenants[name]
	return t != nil && t.records[id] != nil
}

// DeleteIdentity forgets an identity. An endpoint that still has it is taken
// for a peer of every rule that denies, and of none that allows.
func (c *Compiler) DeleteIdentity(name model.TenantName, id model.Identity) {
	t := c.tenant(name)
	if old := t.records[id]; old != nil {
		c.enterIdentity(t, id, old, nil)
	}
	c.dirtyTenants.add(t)
}
