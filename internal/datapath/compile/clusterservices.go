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

// ClusterServices has the services of an orchestrator, with the slices that name their
// backends.
//
// Takes: rows of services and slices; marked endpoints and providers; nodePorts,
// clusterBackends.
// Gives: Services, under keys that no tenant's service has; that every host has their
// network, to routing; marks networks.
type ClusterServices struct {
	self    model.HostName
	all     map[model.ClusterServiceKey]*clusterService
	slices  map[model.ServiceSliceKey]*serviceSlice
	asking  map[backendName]set[*clusterService] // services with a backend of that name
	count   int                                  // services that have a record
	asked   int                                  // ports that services want at other nodes' addresses, altogether
	crowded bool                                 // they want more than there are
	dirty   *marks[*clusterService]

	lacksForeign bool // this host's data plane leads to no backends that are no endpoints

	inv            *inventory
	routing        *routing
	nodePorts      *nodePorts
	backends       *clusterBackends
	out            *output
	problems       *problems
	dirtyEps       *marks[*endpoint]
	dirtyProviders *marks[*endpoint]
}

// clusterService is what is known about one service of an orchestrator.
type clusterService struct {
	key      model.ClusterServiceKey
	rec      *model.ClusterService // nil = there is none of the name, though slices may be
	closed   bool                  // rec is what is left of it
	slices   set[*serviceSlice]
	pics     []model.ServiceKey // as which it is in the desired state
	external bool               // it has backends that are on no network of the services' domain
	asked    int                // ports that it wants at other nodes' addresses
	crowded  bool               // and it has none: others have all that there are
}

type serviceSlice struct {
	rec *model.ServiceSlice
	of  *clusterService
}

// networkState is of a network what all its cluster services rest on.
type networkState struct {
	id    model.NetworkID
	encap model.Encap
}

// clusterNetwork is the network in whose domain cluster services are asked and have
// their backends.
var clusterNetwork = model.NetworkKey{Tenant: model.DefaultTenant, Name: model.ClusterNetwork}

func (cs *ClusterServices) of(k model.ClusterServiceKey) *clusterService {
	return lookup(cs.all, k, func() *clusterService { return &clusterService{key: k, slices: set[*serviceSlice]{}} })
}

func (cs *ClusterServices) put(v model.ClusterService) {
	s := cs.of(v.Key)
	if s.rec == nil {
		cs.countServices(1)
	}
	s.rec, s.closed = &v, false
	cs.dirty.add(s)
}

// Close leaves nothing of a service that has been deleted but its addresses,
// nodes' aside, where everybody is refused. It returns these: none where other services have
// them, or there is no such service.
func (cs *ClusterServices) Close(k model.ClusterServiceKey) []netip.Addr {
	s := cs.all[k]
	if s == nil || s.rec == nil {
		return nil
	}
	left := slices.Concat(s.rec.Addrs, s.rec.Balanced, s.rec.External)
	for other, o := range cs.all {
		if other != k && o.rec != nil {
			left = slices.DeleteFunc(left, func(a netip.Addr) bool {
				return slices.Contains(o.rec.Addrs, a) || slices.Contains(o.rec.Balanced, a) || slices.Contains(o.rec.External, a)
			})
		}
	}
	cs.keepClosed(s, left)
	return left
}

// Reopen leaves an address of a closed service to its present owner.
func (cs *ClusterServices) Reopen(k model.ClusterServiceKey, a netip.Addr) {
	if s := cs.all[k]; s != nil && s.closed {
		cs.keepClosed(s, slices.DeleteFunc(slices.Concat(s.rec.Addrs, s.rec.Balanced), func(x netip.Addr) bool { return x == a }))
	}
}

func (cs *ClusterServices) keepClosed(s *clusterService, left []netip.Addr) {
	within := func(a netip.Addr) bool { return slices.Contains(s.rec.Addrs, a) }
	rec := model.ClusterService{
		Key: s.key, Addrs: slices.DeleteFunc(slices.Clone(left), func(a netip.Addr) bool { return !within(a) }),
		Balanced: slices.DeleteFunc(slices.Clone(left), within),
	}
	cs.put(rec)
	s.closed = true
}

// addrsOf are a service's addresses within the cluster, by family.
func addrsOf(s *model.ClusterService) (v4, v6 netip.Addr) {
	for _, a := range s.Addrs {
		if a.Is4() {
			v4 = a
		} else {
			v6 = a
		}
	}
	return v4, v6
}

func (cs *ClusterServices) remove(k model.ClusterServiceKey) {
	if s := cs.all[k]; s != nil && s.rec != nil {
		cs.countServices(-1)
		s.rec, s.closed = nil, false
		cs.dirty.add(s)
	}
}

// countServices has every host have the network while there are services to lead to.
func (cs *ClusterServices) countServices(by int) {
	was := cs.count
	if cs.count += by; (was == 0) != (cs.count == 0) {
		n := cs.inv.network(clusterNetwork)
		n.cluster = by > 0
		cs.routing.countExposing(n, by)
	}
}

func (cs *ClusterServices) putSlice(v model.ServiceSlice) {
	cs.removeSlice(v.Key)
	s := cs.of(v.ServiceKey())
	x := &serviceSlice{rec: &v, of: s}
	cs.slices[v.Key] = x
	s.slices.add(x)
	for _, b := range v.Backends {
		addTo(cs.asking, nameOf(b), s)
	}
	cs.dirty.add(s)
}

func (cs *ClusterServices) removeSlice(k model.ServiceSliceKey) {
	x := cs.slices[k]
	if x == nil {
		return
	}
	delete(cs.slices, k)
	delete(x.of.slices, x)
	still := set[backendName]{}
	for o := range x.of.slices {
		for _, b := range o.rec.Backends {
			still.add(nameOf(b))
		}
	}
	for _, b := range x.rec.Backends {
		if _, has := still[nameOf(b)]; !has {
			removeFrom(cs.asking, nameOf(b), x.of)
		}
	}
	cs.dirty.add(x.of)
}

// follow notes an endpoint that has come or (not in) goes, for services that ask for it.
func (cs *ClusterServices) follow(e *endpoint, in bool) {
	cs.backends.enter(e, in)
	cs.touch(e)
}

// touch marks the services that use an endpoint.
func (cs *ClusterServices) touch(e *endpoint) {
	for _, name := range namesOf(e) {
		for s := range cs.asking[name] {
			cs.dirty.add(s)
		}
	}
}

// compile brings an orchestrator's services up to date.
func (cs *ClusterServices) compile() {
	var at networkState
	if n := cs.inv.networks[clusterNetwork]; n != nil && n.rec != nil {
		at = networkState{n.id, n.rec.Encap}
	}
	text := ""
	if cs.count > 0 && at.id == 0 {
		text = fmt.Sprintf("%sthey belong to network %s, which is not there", model.NoEffectPrefix, clusterNetwork)
	}
	cs.problems.set("services of Kubernetes", text)
	if cs.backends.update(at) {
		for _, s := range cs.all {
			cs.dirty.add(s)
		}
	}
	cs.markNodes()
	for e := range cs.dirtyEps.of {
		cs.touch(e)
	}
	for e := range cs.dirtyProviders.of {
		cs.touch(e)
	}
	for s := range cs.dirty.of {
		cs.write(s)
		if s.rec == nil && len(s.slices) == 0 {
			delete(cs.all, s.key)
		}
	}
	cs.boundAsked()
}

// markNodes marks the services that depend on what has changed of nodes.
func (cs *ClusterServices) markNodes() {
	if !cs.nodePorts.changed {
		return
	}
	for _, s := range cs.all {
		switch {
		case s.external: // whose addresses may be nodes' now, or no longer
			cs.dirty.add(s)
		case s.rec == nil:
		case len(s.rec.Balanced)+len(s.rec.External) > 0: // which must not be nodes'
			cs.dirty.add(s)
		case s.rec.OutsideLocal: // which is asked at nodes' addresses
			cs.dirty.add(s)
		case cs.nodePorts.zoneChanged && s.rec.Near != model.NearAnywhere:
			cs.dirty.add(s)
		}
	}
}

// write writes a service into the desired state: the ports that all backends have
// under one number as one service, each other port as one of its own.
func (cs *ClusterServices) write(s *clusterService) {
	object := "service of Kubernetes " + s.key.String()
	was := s.pics
	s.pics = nil
	cs.asked -= s.asked
	s.asked = 0
	text := ""
	if s.rec != nil && cs.backends.at.id != 0 {
		var all []desired.Service
		all, text = cs.build(s)
		for i := range all {
			pic := &all[i]
			if old, ok := cs.out.before.Services.Get(pic.Key); ok && old.Equal(pic) {
				pic = old
			}
			cs.out.Services = cs.out.Services.Set(pic.Key, pic)
			s.pics = append(s.pics, pic.Key)
		}
	}
	for _, k := range was {
		if !slices.Contains(s.pics, k) {
			cs.out.Services = cs.out.Services.Delete(k)
		}
	}
	cs.problems.set(object, text)
}

// PictureKey is the key that a service of an orchestrator has in a desired state; port is one
// that has a service of its own.
func PictureKey(k model.ClusterServiceKey, port string) model.ServiceKey {
	name := k.String()
	if port != "" {
		name += ":" + port
	}
	return model.ServiceKey{Tenant: model.DefaultTenant, Name: name}
}

// build makes what a service is in the desired state.
func (cs *ClusterServices) build(s *clusterService) (out []desired.Service, problem string) {
	if s.closed {
		x := desired.Service{Key: PictureKey(s.key, ""), Network: cs.backends.at.id, Exposed: true}
		x.IPv4, x.IPv6 = addrsOf(s.rec)
		// No client uses port 0: all ports of the addresses are refused.
		x.Frontends = cs.frontendsOf(&model.ClusterService{Balanced: s.rec.Balanced}, model.ClusterPort{Protocol: model.ProtoTCP}, 0)
		slices.SortFunc(x.Frontends, desired.CompareFrontends)
		return []desired.Service{x}, ""
	}
	all := slices.SortedFunc(maps.Keys(s.slices), func(a, b *serviceSlice) int { return cmp.Compare(a.rec.Key.String(), b.rec.Key.String()) })
	all = slices.DeleteFunc(all, func(x *serviceSlice) bool { return len(x.rec.Backends) == 0 })
	foreign, pods := cs.backends.external(all)
	s.external = len(foreign)+len(pods) > 0
	if len(pods) > 0 { // kube-proxy serves it, where it runs
		return nil, fmt.Sprintf("%s%d of its backends are pods on no network that is joined with %s, such as %s: kube-proxy has to serve it", model.NoEffectPrefix, len(pods), clusterNetwork, pods[0])
	}
	if len(foreign) > 0 && cs.lacksForeign {
		return nil, fmt.Sprintf("%s%d of its backends are no pods of network %s, such as %s (a pod in its node's network, or somebody outside of the cluster), to whom this host's data plane does not lead: kube-proxy has to serve it", model.NoEffectPrefix, len(foreign), clusterNetwork, foreign[0])
	}
	main := desired.Service{Key: PictureKey(s.key, ""), Network: cs.backends.at.id, Affinity: s.rec.AffinityTime(), Exposed: true}
	var others []desired.Service
	for _, p := range s.rec.Ports {
		port, alike := commonPort(all, p)
		if alike {
			main.Frontends = append(main.Frontends, cs.frontendsOf(s.rec, p, port)...)
			continue
		}
		of := main
		of.Key, of.Frontends = PictureKey(s.key, fmt.Sprintf("%s/%d", p.Protocol, p.Port)), cs.frontendsOf(s.rec, p, p.Port)
		of.Backends = cs.backends.of(s, all, &p)
		others = append(others, of)
	}
	if main.Backends = cs.backends.of(s, all, nil); len(main.Frontends) > 0 {
		out = append(out, main)
	}
	out = append(out, others...)
	if len(out) > 0 { // one tells for all
		out[0].Balanced = s.rec.Balanced
	}
	var texts []string
	for i := range out {
		out[i].HealthPort = s.rec.HealthPort
		slices.SortFunc(out[i].Frontends, desired.CompareFrontends)
		if n := out[i].Backends.Len(); n > desired.MaxBackends {
			out[i].Backends = firstBackends(out[i].Backends)
			texts = append(texts, fmt.Sprintf("has %d backends: connections go to the first %d of them by name", n, desired.MaxBackends))
		}
	}
	if s.rec.OutsideLocal {
		out = cs.askedAtNodes(s, all, out)
	}
	return out, strings.Join(texts, "; ")
}

// commonPort is the number that a service's port has in all slices, if it is one.
func commonPort(all []*serviceSlice, p model.ClusterPort) (port uint16, alike bool) {
	for i, x := range all {
		n := portIn(x.rec, p)
		if n == 0 || i > 0 && n != port {
			return 0, false
		}
		port = n
	}
	if len(all) == 0 {
		return p.Port, true // no backend has to be known
	}
	return port, true
}

// portIn is the number of a service's port in a slice; 0 = its backends have it not.
func portIn(x *model.ServiceSlice, p model.ClusterPort) uint16 {
	for _, o := range x.Ports {
		if o.Name == p.Name && o.Protocol == p.Protocol {
			return o.Port
		}
	}
	return 0
}

// frontendsOf are the frontends of a service's port.
func (cs *ClusterServices) frontendsOf(s *model.ClusterService, p model.ClusterPort, backend uint16) (out []desired.Frontend) {
	all := desired.TrafficCluster
	if s.Near != model.NearAnywhere {
		all = desired.TrafficNear
	}
	inside, outside := all, all
	if s.InsideLocal {
		inside = desired.TrafficLocalDrop
	}
	if s.OutsideLocal {
		outside = desired.TrafficLocalDrop
	}
	frontend := func(a netip.Addr, port uint16, inside, outside desired.TrafficPolicy, sources ...netip.Prefix) {
		out = append(out, desired.Frontend{Addr: a, Protocol: p.Protocol, Port: port, Backend: backend, InternalPolicy: inside, ExternalPolicy: outside, Sources: sources})
	}
	for _, a := range s.Addrs {
		frontend(a, p.Port, inside, inside)
	}
	sources := s.Sources
	if s.OnlySources && len(sources) == 0 { // no client has such an address
		sources = noClient
	}
	taken := slices.Clone(s.Addrs)
	for _, list := range []struct {
		addrs   []netip.Addr
		sources []netip.Prefix
	}{{s.Balanced, sources}, {s.External, nil}} {
		for _, a := range list.addrs {
			if _, node := cs.out.NodeAddrs.Get(a); node || slices.Contains(taken, a) {
				continue
			}
			taken = append(taken, a)
			frontend(a, p.Port, all, outside, list.sources...)
		}
	}
	if p.Node != 0 {
		for _, a := range s.Addrs {
			frontend(desired.AnyNode(a), p.Node, all, outside)
		}
	}
	return out
}

// LackForeign says, before anything else, that it leads to no backends of services that
// are no endpoints: services with such ones are in no desired state of it.
func (cs *ClusterServices) LackForeign() { cs.lacksForeign = true }
