package compile

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Compile brings the picture up to date with all changes since the last call
// and returns it, with the problems of the present inputs sorted by object.
// revision is the store revision that the inputs stand for. The picture shares
// what did not change with the one before; neither may be written to.
func (c *Compiler) Compile(revision int64) (desired.Host, []Problem) {
	before := c.out
	if c.dirtyHeader {
		c.compileHeader()
	}
	c.compileTunnels()
	c.compileNodes()
	c.compileNetworks(before)
	c.placeEndpoints()
	c.compileTenants()
	c.compilePolicies(before)
	c.putEndpoints(before)
	c.compileServices(before)
	c.compileClusterServices(before)
	c.compileDNS(before)
	c.prune()
	c.dirtyHeader = false
	reset(&c.dirtyEps)
	reset(&c.dirtyNetworks)
	reset(&c.dirtyGroups)
	reset(&c.dirtyTenants)
	c.out.Revision = revision
	return c.out, c.problems.list()
}

func (c *Compiler) compileHeader() {
	c.out.Name = c.self
	c.out.FwdMode, c.out.ArpMode = model.FwdBridge, model.ArpProxy
	if c.global != nil {
		c.out.FwdMode, c.out.ArpMode = c.global.FwdMode, c.global.ArpMode
		c.problems.set("global", "")
	} else {
		c.problems.set("global", "the cluster's settings are not known: bridge and proxy mode stand in")
	}
	noEffect(c, "globals", "global", c.global, true)
	object := "host " + string(c.self)
	if h := c.hosts[c.self]; h != nil {
		c.out.VTEP = h.VTEP
		c.problems.set(object, "")
	} else {
		c.out.VTEP = netip.Addr{}
		c.problems.set(object, "this host is not known to the cluster: it has no tunnel endpoint")
	}
}

// compileNetworks decides which networks are in the picture and writes them.
func (c *Compiler) compileNetworks(before desired.Host) {
	contested := set[model.NetworkID]{}
	for n := range c.dirtyNetworks {
		if n.base != nil {
			n.rec = n.record()
		}
		claim := model.NetworkID(0)
		if n.rec != nil && c.present(n) {
			claim = n.rec.ID
		}
		if claim == n.claimed {
			continue
		}
		if n.claimed != 0 {
			if delete(c.netIDs[n.claimed], n); len(c.netIDs[n.claimed]) == 0 {
				delete(c.netIDs, n.claimed)
			}
			contested.add(n.claimed)
		}
		if n.claimed = claim; claim != 0 {
			if c.netIDs[claim] == nil {
				c.netIDs[claim] = set[*network]{}
			}
			c.netIDs[claim].add(n)
			contested.add(claim)
		}
		c.renumber(n, 0)
	}
	for id := range contested {
		var winner *network
		for n := range c.netIDs[id] {
			if winner == nil || n.name() < winner.name() {
				winner = n
			}
		}
		for n := range c.netIDs[id] {
			if n == winner {
				c.renumber(n, id)
			} else {
				c.renumber(n, 0)
			}
		}
	}
	for n := range c.dirtyNetworks {
		if n.gone {
			continue
		}
		var text string
		switch {
		case !c.present(n):
		case n.rec == nil:
			text = "unknown: its ports on this host stay shut"
		case n.rec.ID == 0:
			text = "has no number: its ports on this host stay shut, and nothing here reaches it"
		case n.id == 0:
			text = fmt.Sprintf("its number %d belongs to another network: its ports on this host stay shut, and nothing here reaches it", n.rec.ID)
		default:
			if text = c.putNetworkPicture(n, before); text == "" {
				text = c.hostsInside(n.rec)
			}
		}
		c.problems.set("network "+n.name(), text)
		if n.base != nil {
			continue
		}
		noEffect(c, "networks", n.key.String(), n.rec, n.here(c.self))
	}
}

// renumber moves a network to another number in the picture, 0 = out of it.
func (c *Compiler) renumber(n *network, id model.NetworkID) {
	if n.id == id {
		return
	}
	if cur, ok := c.out.Networks.Get(n.id); ok && cur.Key == n.key && cur.Group == n.group {
		c.out.Networks = c.out.Networks.Delete(n.id)
	}
	n.id = id
	c.dirtyNetworks.add(n)
	for _, e := range n.root().eps {
		c.dirtyEps.add(e)
	}
}

// putNetworkPicture writes a network and returns what is wrong with it.
func (c *Compiler) putNetworkPicture(n *network, before desired.Host) (problem string) {
	r := n.rec
	pic := &desired.Network{
		ID: n.id, Key: n.key, Group: n.group, Encap: r.Encap, Tag: r.Tag,
		Subnet: r.Subnet, Subnet6: r.Subnet6, Gateway: r.Gateway, Gateway6: r.Gateway6,
		Routed: r.Native && r.Encap == model.EncapVXLAN, ByTenant: r.ByTenant,
	}
	if n.base == nil { // a segment's router is the fabric's
		pic.Joined = c.joins(n.tenant)
	}
	if r.Encap == model.EncapVXLAN {
		var unknown []string
		for h := range n.byHost {
			if h == c.self {
				continue
			}
			switch vtep := c.vtep(h); {
			case !vtep.IsValid():
				unknown = append(unknown, fmt.Sprintf("%q", h))
			case n.here(c.self): // else nothing is flooded to it from here
				pic.VTEPs = append(pic.VTEPs, vtep)
			}
		}
		slices.SortFunc(pic.VTEPs, netip.Addr.Compare)
		pic.VTEPs = slices.Compact(pic.VTEPs)
		if slices.Sort(unknown); len(unknown) > 0 {
			problem = "hosts without a tunnel endpoint, whose endpoints cannot be reached: " + strings.Join(unknown, ", ")
		}
	}
	if old, ok := before.Networks.Get(n.id); ok {
		if old.Equal(pic) {
			pic = old
		}
		if old.Joined != pic.Joined && r.Encap == model.EncapVLAN { // by which its endpoints have tunnels
			for e := range eachEndpoint(n) {
				c.dirtyEps.add(e)
			}
		}
	}
	c.out.Networks = c.out.Networks.Set(n.id, pic)
	return problem
}

// vtep returns another host's tunnel endpoint, zero when it is unknown or our own.
func (c *Compiler) vtep(name model.HostName) netip.Addr {
	h := c.hosts[name]
	if h == nil {
		return netip.Addr{}
	}
	if own := c.hosts[c.self]; own != nil && own.VTEP == h.VTEP {
		return netip.Addr{}
	}
	return h.VTEP
}

// winsMAC tells whether e is the one that gets its MAC: local endpoints come
// first, then the smallest id. Control never hands a MAC out twice.
func (c *Compiler) winsMAC(e *endpoint) (bool, *endpoint) {
	win := e
	for _, o := range e.net.macs[e.MAC] {
		if local := o.Host == c.self; local != (win.Host == c.self) {
			if local {
				win = o
			}
		} else if cmp.Less(o.Key.ID, win.Key.ID) {
			win = o
		}
	}
	return win == e, win
}

// placeEndpoints decides which changed endpoints are in the picture and as
// what, and takes out of their former place the ones that have moved or gone.
func (c *Compiler) placeEndpoints() {
	for e := range c.dirtyEps {
		in := !e.gone && e.net.shown()
		text := ""
		if in {
			won, winner := c.winsMAC(e)
			if in = won; !won {
				text = fmt.Sprintf("its MAC %s belongs to endpoint %s: it stays shut", e.MAC, winner.Key)
			} else if e.identity() == model.IdentityUnknown {
				text = "has no identity: others take it for unknown"
			}
		}
		if cur := c.networks[e.Key.Network]; !e.gone || cur == nil || cur.eps[e.Key.ID] == nil {
			c.problems.set("endpoint "+e.Key.String(), text)
		}
		at, here := e.place(), e.Host == c.self
		port, remote := in && here && at.id != 0, in && e.net.id != 0 && (!here || at != e.net)
		if e.isPort && !port {
			c.out.Ports = c.out.Ports.Delete(e.ifName)
			c.out.Bandwidth = c.out.Bandwidth.Delete(e.ifName)
		}
		c.moveSubject(e, port)
		key := desired.RemoteKey{Network: e.net.id, MAC: e.MAC}
		if e.isRemote && (!remote || key != e.remote) {
			c.out.Remotes = c.out.Remotes.Delete(e.remote)
		}
		e.isPort, e.isRemote, e.remote = port, remote, key
		if len(e.beside)+len(e.net.segments) > 0 {
			c.placeBeside(e, in)
		}
	}
}

// putEndpoints writes the changed endpoints that are in the picture.
func (c *Compiler) putEndpoints(before desired.Host) {
	for e := range c.dirtyEps {
		if e.isPort {
			p := desired.Port{
				IfName: e.ifName, Endpoint: e.Key, Network: e.place().id, MAC: e.MAC,
				IPv4: e.IPv4, IPv6: e.IPv6, Identity: e.identity(), OnHost: e.OfHost(),
			}
			p.Private, p.Private6 = c.privateOf(e)
			if e.subject.set != nil {
				p.Policies = e.subject.set.id
			}
			pic := &p
			if old, ok := before.Ports.Get(e.ifName); ok && *old == p {
				pic = old
			}
			c.out.Ports = c.out.Ports.Set(e.ifName, pic)
			c.putRate(e, before)
		}
		if e.isRemote {
			var vtep netip.Addr
			if e.seg == nil && (e.net.rec.Encap == model.EncapVXLAN || c.joins(e.net.tenant) != 0) { // what it sends to a VXLAN network comes by its host's tunnel
				vtep = c.vtep(e.Host)
			}
			c.putRemote(e, e.remote, vtep, before)
		}
		for _, k := range e.beside {
			c.putRemote(e, k, netip.Addr{}, before)
		}
	}
}

func (c *Compiler) putRemote(e *endpoint, k desired.RemoteKey, vtep netip.Addr, before desired.Host) {
	r := desired.Remote{Network: k.Network, MAC: e.MAC, IPv4: e.IPv4, IPv6: e.IPv6, Identity: e.identity(), VTEP: vtep}
	pic := &r
	if old, ok := before.Remotes.Get(k); ok && *old == r {
		pic = old
	}
	c.out.Remotes = c.out.Remotes.Set(k, pic)
}

// compileTenants looks at the tenants' routers, at the identities that have
// endpoints but no record, and at those whose labels are told later.
func (c *Compiler) compileTenants() {
	for t := range c.dirtyTenants {
		c.problems.set("router of tenant "+string(t.name), c.routerProblem(t))
		c.problems.set("shared networks of tenant "+string(t.name), c.sharedProblem(t))
		orphans, later := slices.Sorted(maps.Keys(t.orphans)), slices.Sorted(maps.Keys(t.later))
		same := slices.Equal(orphans, t.compiledOrphans)
		if same && slices.Equal(later, t.compiledLater) {
			continue
		}
		t.compiledOrphans, t.compiledLater = orphans, later
		maps.Copy(c.dirtyRules, t.named)
		text := ""
		if len(orphans) > 0 {
			text = fmt.Sprintf("identities %d have endpoints but no record: rules that deny take them for a peer", orphans)
		}
		c.problems.set("tenant "+string(t.name), text)
		for _, s := range t.selections {
			if !same || s.selector.AsksForLabels() {
				c.dirtySelections.add(s)
			}
		}
	}
}

// prune forgets entries that nothing refers to any more.
func (c *Compiler) prune() {
	for n := range c.dirtyNetworks {
		if n.base == nil && n.empty() {
			delete(c.networks, n.key)
			delete(n.tenant.networks, n)
			c.dirtyTenants.add(n.tenant)
		}
	}
	for g := range c.dirtyGroups {
		if g.rec == nil && len(g.subjects) == 0 {
			delete(c.groups, g.key)
		}
	}
	for t := range c.dirtyTenants {
		if t.empty() {
			delete(c.tenants, t.name)
		}
	}
}
