package compile

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// clusterBackends finds the backends of an orchestrator's services.
//
// Takes: endpoints by name, ranges of service addresses; networks, hosts, nodePorts.
// Gives: backends to cluster services; ServiceRanges.
type clusterBackends struct {
	self   model.HostName
	byName map[backendName][]*endpoint // endpoints, by each name that a backend may have for them
	ranged bool                        // the ranges of services' addresses may have changed
	at     networkState                // the network as the services were compiled
	domain []netip.Prefix              // the subnets of its domain, likewise, and the ranges of services, sorted

	hosts     *Hosts
	nodePorts *nodePorts
	out       *output
}

// enter notes an endpoint that has come or (not in) goes.
func (cb *clusterBackends) enter(e *endpoint, in bool) {
	for _, name := range namesOf(e) {
		if in {
			cb.byName[name] = append(cb.byName[name], e)
		} else if cb.byName[name] = slices.DeleteFunc(cb.byName[name], func(of *endpoint) bool { return of == e }); len(cb.byName[name]) == 0 {
			delete(cb.byName, name)
		}
	}
}

// Backends of an orchestrator's services.

// backendName finds a backend's endpoint: by its pod's UID, or by its address where the
// slice names no pod, as user-written ones may.
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

// update follows the network of the services, and what no backend beyond its domain
// may have: the subnets of the domain, and the ranges of services' addresses (the host's
// stack would lead such a client on to another service, in its own name). It tells whether
// they are others.
func (cb *clusterBackends) update(at networkState) bool {
	same := at == cb.at && !cb.ranged
	cb.ranged = false
	for range cb.out.Networks.Diff(cb.out.before.Networks) {
		same = false
		break
	}
	if same {
		return false
	}
	subnets := slices.Clone(cb.out.ServiceRanges)
	own, _ := cb.out.Networks.Get(at.id)
	for _, n := range cb.out.Networks.All() {
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
	if at == cb.at && slices.Equal(subnets, cb.domain) {
		return false
	}
	cb.at, cb.domain = at, subnets
	return true
}

// inDomain reports whether an address is of a network of the services' domain, or of a
// service.
func (cb *clusterBackends) inDomain(a netip.Addr) bool {
	return slices.ContainsFunc(cb.domain, func(p netip.Prefix) bool { return p.Contains(a) })
}

// foreignKey is the key of a backend that is no endpoint: no endpoint has such an id.
func foreignKey(a netip.Addr) model.EndpointKey {
	return model.EndpointKey{Network: clusterNetwork, ID: model.EndpointID("@" + a.String())}
}

// of are the backends of some slices: endpoints in the services' domain, and
// addresses beyond it; port (nil = none) is one that they have under several numbers.
func (cb *clusterBackends) of(s *clusterService, all []*serviceSlice, port *model.ClusterPort) (out desired.Map[model.EndpointKey, *desired.Backend]) {
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
			key, e := foreignKey(b.Addr), cb.endOf(b)
			if e != nil {
				key = e.Key
			} else if cb.inDomain(b.Addr) { // it has just gone, or is about to come
				continue
			}
			to := found[key]
			if to == nil {
				to = &desired.Backend{State: cb.hosts.spared(e, state), Near: cb.nearness(s.rec.Near, b), Port: own, Local: b.Node == model.NodeName(cb.self)}
				if e != nil {
					to.Network, to.Identity, to.Local = e.net.id, e.identity(), e.isPort
				}
				if e != nil && e.isRemote && e.net.rec.Encap == model.EncapVXLAN {
					to.VTEP = cb.hosts.vtep(e.Host)
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

// external are the backends, sorted, that can never be endpoints in the services' domain,
// since no network there has their addresses: machines of the cluster and external ones;
// and pods on other networks, since a pod without a network has its node's address.
func (cb *clusterBackends) external(all []*serviceSlice) (foreign, pods []netip.Addr) {
	for _, x := range all {
		for _, b := range x.rec.Backends {
			if _, chosen := stateOf(b.State); !chosen || cb.inDomain(b.Addr) {
				continue
			}
			if _, node := cb.out.NodeAddrs.Get(b.Addr); b.Pod == "" || node {
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

// stateOf is the state of a backend; an unready one has none, so that datagrams to it get
// another backend.
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
func (cb *clusterBackends) endOf(b model.ServiceBackend) *endpoint {
	own, _ := cb.out.Networks.Get(cb.at.id)
	for _, e := range cb.byName[nameOf(b)] {
		if e.IPv4 != b.Addr && e.IPv6 != b.Addr || !e.serves() {
			continue
		}
		if n, ok := cb.out.Networks.Get(e.net.id); ok && own != nil && n.Domain() == own.Domain() {
			return e
		}
	}
	return nil
}

// nearness says how near a backend is to this host, by its hints.
func (cb *clusterBackends) nearness(near model.Near, b model.ServiceBackend) desired.Nearness {
	zone := slices.Contains(b.ForZones, cb.nodePorts.zone) && cb.nodePorts.zone != ""
	switch {
	case near == model.NearAnywhere:
		return desired.NearUnknown
	case near == model.NearNode && slices.Contains(b.ForNodes, model.NodeName(cb.self)):
		return desired.NearHost
	case zone:
		return desired.NearZone
	case len(b.ForZones) == 0 && (near == model.NearZone || len(b.ForNodes) == 0):
		return desired.NearUnknown
	}
	return desired.NearFar
}

func (cb *clusterBackends) setRanges(r model.ServiceRanges) {
	cb.out.ServiceRanges, cb.ranged = r.Ranges, true
}
