package compile

import (
	"maps"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// endpoints enters endpoints into the indexes that other nodes have: by network, host and
// MAC address, by identity, by the services that they provide.
//
// Takes: endpoint rows.
// Gives: the endpoints of networks; what changes to networks, routing, identities and
// services; marks endpoints, networks.
type endpoints struct {
	self model.HostName

	inv           *inventory
	networks      *networks
	routing       *routing
	identities    *Identities
	services      *Services
	dirtyNetworks *marks[*network]
	dirtyEps      *marks[*endpoint]
}

func (es *endpoints) put(v model.Endpoint) {
	n := es.inv.network(v.Key.Network)
	old := n.eps[v.Key.ID]
	if old != nil {
		if sameEndpoint(&old.Endpoint, &v) {
			if old.Rates != v.Rates {
				es.dirtyEps.add(old)
			}
			es.update(old, v)
			return
		}
		es.unlink(n, old)
		old.Endpoint = v
		es.link(n, old)
		return
	}
	e := &endpoint{Endpoint: v, net: n, ifName: IfName(v.Key)}
	n.eps[v.Key.ID] = e
	es.link(n, e)
}

// update enters what else has changed of an endpoint: labels, health, and whether it
// drains.
func (es *endpoints) update(e *endpoint, v model.Endpoint) {
	if maps.Equal(e.Labels, v.Labels) {
		if e.Unhealthy != v.Unhealthy || e.Draining != v.Draining {
			es.services.touch(e)
		}
		e.Endpoint = v
		return
	}
	es.services.selectServices(e, false)
	e.Endpoint = v
	es.services.selectServices(e, true)
}

// sameEndpoint compares what a desired state depends on, but for services.
func sameEndpoint(a, b *model.Endpoint) bool {
	return a.Group == b.Group && a.Identity == b.Identity && a.Host == b.Host &&
		a.IPv4 == b.IPv4 && a.IPv6 == b.IPv6 && a.MAC == b.MAC && containerName(a) == containerName(b)
}

func (es *endpoints) remove(k model.EndpointKey) {
	n := es.inv.networks[k.Network]
	if n == nil || n.eps[k.ID] == nil {
		return
	}
	e := n.eps[k.ID]
	delete(n.eps, k.ID)
	es.unlink(n, e)
	e.deleted = true
	if len(n.eps) == 0 {
		es.dirtyNetworks.add(n)
	}
}

// link enters an endpoint into the indexes and marks what its coming touches.
func (es *endpoints) link(n *network, e *endpoint) {
	e.deleted = false
	es.dirtyEps.add(e)
	on := n.byHost[e.Host]
	if on == nil {
		on = set[*endpoint]{}
		n.byHost[e.Host] = on
		es.dirtyNetworks.add(n)
	}
	on.add(e)
	e.segment = n.segments[e.Group]
	es.networks.countEndpoint(e, 1)
	n.macs[e.MAC] = append(n.macs[e.MAC], e)
	es.services.follow(e, true)
	es.touchMAC(n, e.MAC)
	es.identities.use(n.tenant, e.identity(), 1)
	if e.Host == es.self {
		es.routing.countLocal(n.tenant, 1)
	}
}

// unlink is the reverse of link.
func (es *endpoints) unlink(n *network, e *endpoint) {
	es.dirtyEps.add(e)
	es.networks.countEndpoint(e, -1)
	es.services.follow(e, false)
	on := n.byHost[e.Host]
	if delete(on, e); len(on) == 0 {
		delete(n.byHost, e.Host)
		es.dirtyNetworks.add(n)
	}
	claims := n.macs[e.MAC]
	if i := slices.Index(claims, e); len(claims) == 1 {
		delete(n.macs, e.MAC)
	} else {
		n.macs[e.MAC] = slices.Delete(slices.Clone(claims), i, i+1)
		es.touchMAC(n, e.MAC)
	}
	es.identities.use(n.tenant, e.identity(), -1)
	if e.Host == es.self {
		es.routing.countLocal(n.tenant, -1)
	}
}

func (es *endpoints) touchMAC(n *network, mac model.MAC) {
	for _, e := range n.macs[mac] {
		es.dirtyEps.add(e)
	}
}
