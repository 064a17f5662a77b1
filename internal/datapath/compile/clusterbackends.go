package compile

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Backends of an orchestrator's services.

// backendName is how a backend's endpoint is found: by its pod's UID, or where the slice
// names no pod, as those that people write may, by its address.
type backendName struct {
	pod  string
	addr netip.Addr
}

func nameOf(b model.ServiceBackend) backendName {
	if b.Pod != "" {
		return backendName{pod: b.Pod}
	}
	return backendName{addr: b.Addr}
}

// namesOf are all names that backends may have for an endpoint.
func namesOf(e *endpoint) (out []backendName) {
	if e.Pod.UID != "" {
		out = append(out, backendName{pod: e.Pod.UID})
	}
	for _, a := range []netip.Addr{e.IPv4, e.IPv6} {
		if a.IsValid() {
			out = append(out, backendName{addr: a})
		}
	}
	return out
}

// clusterDomain follows the network of the services, and what no backend beyond its domain
// may have: the subnets of the domain, and the ranges of services' addresses (the host's
// stack would lead such a client on to another service, in its own name). It tells whether
// they are others.
func (c *Compiler) clusterDomain(before desired.Host, at networkState) bool {
	x := &c.cluster
	same := at == x.at && !x.ranged
	x.ranged = false
	for range c.out.Networks.Diff(before.Networks) {
		same = false
		break
	}
	if same {
		return false
	}
	subnets := slices.Clone(c.out.ServiceRanges)
	own, _ := c.out.Networks.Get(at.id)
	for _, n := range c.out.Networks.All() {
		if own == nil || n.Domain() != own.Domain() {
			continue
		}
		for _, p := range []netip.Prefix{n.Subnet, n.Subnet6} {
			if p.IsValid() {
				subnets = append(subnets, p)
			}
		}
	}
	slices.SortFunc(subnets, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	if at == x.at && slices.Equal(subnets, x.domain) {
		return false
	}
	x.at, x.domain = at, subnets
	return true
}

// inDomain tells whether an address is of a network of the services' domain, or of a
// service.
func (x *clusterServices) inDomain(a netip.Addr) bool {
	return slices.ContainsFunc(x.domain, func(p netip.Prefix) bool { return p.Contains(a) })
}

// foreignKey is the key of a backend that is no endpoint: no endpoint has such an id.
func foreignKey(a netip.Addr) model.EndpointKey {
	return model.EndpointKey{Network: clusterNetwork, ID: model.EndpointID("@" + a.String())}
}

// clusterBackends are the backends of some slices: endpoints in the services' domain, and
// addresses beyond it; port (nil = none) is one that they have under several numbers.
func (c *Compiler) clusterBackends(s *clusterService, all []*serviceSlice, port *model.ClusterPort) (out desired.Map[model.EndpointKey, *desired.Backend]) {
	found := map[model.EndpointKey]*desired.Backend{}
	for _, x := range all {
		own := uint16(0)
		if port != nil {
			if own = portIn(x.rec, *port); own == 0 {
				continue
			}
		}
		for _, b := range x.rec.Backends {
			state, chosen := stateOf(b.State)
			if !chosen {
				continue
			}
			key, e := foreignKey(b.Addr), c.endOf(b)
			if e != nil {
				key = e.Key
			} else if c.cluster.inDomain(b.Addr) { // it has just gone, or is about to come
				continue
			}
			to := found[key]
			if to == nil {
				to = &desired.Backend{State: c.spared(e, state), Near: c.nearness(s.rec.Near, b), Port: own, Local: b.Node == model.NodeName(c.self)}
				if e != nil {
					to.Network, to.Identity, to.Local = e.net.id, e.identity(), e.isPort
				}
				if e != nil && e.isRemote && e.net.rec.Encap == model.EncapVXLAN {
					to.VTEP = c.vtep(e.Host)
				}
				found[key] = to
			}
			if b.Addr.Is4() {
				to.IPv4 = b.Addr
			} else {
				to.IPv6 = b.Addr
			}
		}
	}
	for k, b := range found {
		out = out.Set(k, b)
	}
	return out
}

// strangers are the backends, sorted, that will never be endpoints in the services'
// domain, since their addresses are on no network there: machines of the cluster and
// whoever is outside; and pods on other networks, since a pod that is on none has an
// address of its node's.
func (c *Compiler) strangers(all []*serviceSlice) (foreign, pods []netip.Addr) {
	for _, x := range all {
		for _, b := range x.rec.Backends {
			if _, chosen := stateOf(b.State); !chosen || c.cluster.inDomain(b.Addr) {
				continue
			}
			if _, node := c.out.NodeAddrs.Get(b.Addr); b.Pod == "" || node {
				foreign = append(foreign, b.Addr)
			} else {
				pods = append(pods, b.Addr)
			}
		}
	}
	for _, list := range []*[]netip.Addr{&foreign, &pods} {
		slices.SortFunc(*list, netip.Addr.Compare)
		*list = slices.Compact(*list)
	}
	return foreign, pods
}

// stateOf is the state of a backend; one that is unready is none, so that datagrams to it
// are chosen for anew.
func stateOf(s model.ServiceBackendState) (state desired.BackendState, is bool) {
	switch s {
	case model.ServiceBackendReady:
		return desired.BackendActive, true
	case model.ServiceBackendDraining:
		return desired.BackendLeaving, true
	case model.ServiceBackendUnready:
	}
	return 0, false
}

// endOf is the endpoint that a backend is, in the services' domain; nil = there is none.
func (c *Compiler) endOf(b model.ServiceBackend) *endpoint {
	own, _ := c.out.Networks.Get(c.cluster.at.id)
	for _, e := range c.cluster.ends[nameOf(b)] {
		if e.IPv4 != b.Addr && e.IPv6 != b.Addr || !e.serves() {
			continue
		}
		if n, ok := c.out.Networks.Get(e.net.id); ok && own != nil && n.Domain() == own.Domain() {
			return e
		}
	}
	return nil
}

// nearness says how near a backend is to this host, by its hints.
func (c *Compiler) nearness(near model.Near, b model.ServiceBackend) desired.Nearness {
	zone := slices.Contains(b.ForZones, c.cluster.zone) && c.cluster.zone != ""
	switch {
	case near == model.NearAnywhere:
		return desired.NearUnknown
	case near == model.NearNode && slices.Contains(b.ForNodes, model.NodeName(c.self)):
		return desired.NearHost
	case zone:
		return desired.NearZone
	case len(b.ForZones) == 0 && (near == model.NearZone || len(b.ForNodes) == 0):
		return desired.NearUnknown
	}
	return desired.NearFar
}
