package compile

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Node ports of services whose external traffic policy is Local, used at other nodes'
// addresses: such a client gets that node's own backends only. While it has none, packets
// are dropped, as if they had gone there. At this node's own addresses all backends are
// used. So a service is in the desired state with its node ports at this node's addresses
// by themselves, with those of each other node that has backends of it as a service of its
// own, and with those of all other nodes as one that drops: as many as nodes have its
// backends, however many nodes there are.

// MaxRemoteNodePorts is how many ports at other nodes' addresses a host has for services whose
// external traffic policy is Local; at all nodes' addresses together a port counts as one.
const MaxRemoteNodePorts = 8192

// noClient is an address that no client has, so it matches none.
var noClient = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 32)}

// remoteNodePorts gives a service's desired states, of backends in some slices, the node ports that
// they have at each node's addresses.
func (sv *Services) remoteNodePorts(s *service, all []*serviceSlice, pics []desired.Service) []desired.Service {
	on := sv.backendNodes(s, all)
	var more []desired.Service
	want := 0
	now := slices.Clone(pics)
	for i := range now {
		others := sv.excludeOwnNodePorts(&now[i], on)
		for _, o := range others {
			want += len(o.Frontends)
		}
		more = append(more, others...)
	}
	s.asked = want
	if sv.remotePorts += want; s.overLimit {
		return pics
	}
	return append(now, more...)
}

// backendNodes says on which nodes the backends of some slices are.
func (sv *Services) backendNodes(s *service, all []*serviceSlice) map[model.EndpointKey]model.NodeName {
	on := map[model.EndpointKey]model.NodeName{}
	for _, x := range all {
		for _, b := range x.rec.Backends {
			key := externalBackendKey(s, b.Addr)
			if e := sv.backends.endOf(s.net, b); e != nil {
				key = e.Key
			}
			on[key] = b.Node
		}
	}
	return on
}

// excludeOwnNodePorts leaves a desired state the node ports of this node's addresses, and returns those
// of others' as services of their own. Of a family in which no address of this node is
// known the ports stay as they are.
func (sv *Services) excludeOwnNodePorts(pic *desired.Service, on map[model.EndpointKey]model.NodeName) (out []desired.Service) {
	self := model.NodeName(sv.nodePorts.self)
	own := sv.nodePorts.nodes[self].Addrs
	at := map[model.NodeName]*desired.Service{} // by node, "" = all others
	apart := func(node model.NodeName) *desired.Service {
		return lookup(at, node, func() *desired.Service {
			return &desired.Service{Key: desired.KeyAtNode(pic.Key, node), Network: pic.Network, Affinity: pic.Affinity}
		})
	}
	var frontends []desired.Frontend
	pools := pic.Pools()
	for _, f := range pic.Frontends {
		v6 := f.Addr.Is6()
		if !f.Addr.IsUnspecified() || !slices.ContainsFunc(own, func(a netip.Addr) bool { return a.Is6() == v6 }) {
			frontends = append(frontends, f)
			continue
		}
		for _, a := range own {
			if a.Is6() == v6 {
				here := f
				here.Addr = a
				frontends = append(frontends, here)
			}
		}
		there := desired.Frontend{Addr: f.Addr, Protocol: f.Protocol, Port: f.Port, Backend: f.Backend}
		for node := range nodesWithBackends(pic, on, v6) {
			for _, a := range sv.nodePorts.nodes[node].Addrs {
				if node != self && a.Is6() == v6 && sv.nodePorts.nodeOf[a] == node {
					there.Addr = a
					apart(node).Frontends = append(apart(node).Frontends, there)
				}
			}
		}
		if there.Addr = f.Addr; pools.HasBackends(v6) { // else who asks is refused
			there.Sources = noClient
		}
		apart("").Frontends = append(apart("").Frontends, there)
	}
	slices.SortFunc(frontends, desired.CompareFrontends)
	pic.Frontends = frontends
	for key, b := range pic.Backends.All() {
		if s := at[on[key]]; s != nil && on[key] != "" {
			s.Backends = s.Backends.Set(key, b)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(at)) {
		slices.SortFunc(at[node].Frontends, desired.CompareFrontends)
		out = append(out, *at[node])
	}
	return out
}

// nodesWithBackends are the nodes that have backends of a family.
func nodesWithBackends(s *desired.Service, on map[model.EndpointKey]model.NodeName, v6 bool) set[model.NodeName] {
	out := set[model.NodeName]{}
	for key, b := range s.Backends.All() {
		if b.Addr(v6).IsValid() {
			out.add(on[key])
		}
	}
	return out
}

// limitRemoteNodePorts has the first services by name have the ports at other nodes' addresses that
// they want, as far as there are, and tells of the rest.
func (sv *Services) limitRemoteNodePorts() {
	left := MaxRemoteNodePorts
	if len(sv.dirty.of) == 0 {
		return
	}
	text, crowded := "", 0
	if sv.remotePorts > MaxRemoteNodePorts || sv.overLimit {
		all := slices.SortedFunc(maps.Values(sv.rows), func(a, b *service) int { return cmp.Compare(a.key.Name, b.key.Name) })
		for _, s := range all {
			was := s.overLimit
			if s.overLimit = s.asked > left; s.overLimit {
				if crowded++; crowded == 1 {
					text = s.key.Name
				}
			} else {
				left -= s.asked
			}
			if was != s.overLimit {
				sv.write(s)
			}
		}
	}
	if sv.overLimit = crowded > 0; sv.overLimit {
		text = fmt.Sprintf("%sexternalTrafficPolicy Local has no effect for containers of this host that connect to other nodes' node ports, of %d services such as %s: more than %d ports at other nodes' addresses", model.NoEffectPrefix, crowded, text, MaxRemoteNodePorts)
	}
	sv.problems.set("node ports of Kubernetes at other nodes", text)
}
