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

// clusterService is what is known about one service of an orchestrator.
type clusterService struct {
	key       model.ClusterServiceKey
	rec       *model.ClusterService // nil = there is none of the name, though slices may be
	closed    bool                  // rec is what is left of it
	slices    set[*serviceSlice]
	pics      []model.ServiceKey // as which it is in the picture
	strangers bool               // it has backends that are on no network of the services' domain
	asked     int                // ports that it wants at other nodes' addresses
	crowded   bool               // and it has none: others have all that there are
}

type serviceSlice struct {
	rec *model.ServiceSlice
	of  *clusterService
}

// clusterServices is what the Compiler knows of an orchestrator's services and nodes.
type clusterServices struct {
	all     map[model.ClusterServiceKey]*clusterService
	slices  map[model.ServiceSliceKey]*serviceSlice
	nodes   map[model.NodeName]model.ClusterNode
	ends    map[backendName][]*endpoint          // endpoints, by each name that a backend may have for them
	asking  map[backendName]set[*clusterService] // services with a backend of that name
	count   int                                  // services that have a record
	dirty   set[*clusterService]
	nodeOf  map[netip.Addr]model.NodeName // whose a node's address is
	crowded bool                          // services want more than there are
	asked   int                           // ports that services want at other nodes' addresses, altogether
	moved   bool                          // nodes have changed
	ranged  bool                          // the ranges of services' addresses may have
	zone    string
	at      networkState   // the network as the services were compiled
	domain  []netip.Prefix // the subnets of its domain, likewise, and the ranges of services, sorted
}

// networkState is of a network what all its cluster services rest on.
type networkState struct {
	id    model.NetworkID
	encap model.Encap
}

func newClusterServices() clusterServices {
	return clusterServices{
		all: map[model.ClusterServiceKey]*clusterService{}, slices: map[model.ServiceSliceKey]*serviceSlice{}, nodes: map[model.NodeName]model.ClusterNode{},
		ends: map[backendName][]*endpoint{}, asking: map[backendName]set[*clusterService]{}, dirty: set[*clusterService]{},
	}
}

// clusterNetwork is the network in whose domain cluster services are asked and have
// their backends.
var clusterNetwork = model.NetworkKey{Tenant: model.DefaultTenant, Name: model.ClusterNetwork}

func (x *clusterServices) of(k model.ClusterServiceKey) *clusterService {
	return lookup(x.all, k, func() *clusterService { return &clusterService{key: k, slices: set[*serviceSlice]{}} })
}

// SetClusterService records a service of an orchestrator.
func (c *Compiler) SetClusterService(v model.ClusterService) {
	s := c.cluster.of(v.Key)
	if s.rec == nil {
		c.countCluster(1)
	}
	s.rec, s.closed = &v, false
	c.cluster.dirty.add(s)
}

// CloseClusterService leaves nothing of a service that has been deleted but its addresses,
// nodes' aside, where everybody is refused. It returns these: none where other services have
// them, or there is no such service.
func (c *Compiler) CloseClusterService(k model.ClusterServiceKey) []netip.Addr {
	s := c.cluster.all[k]
	if s == nil || s.rec == nil {
		return nil
	}
	left := slices.Concat(s.rec.Addrs, s.rec.Balanced, s.rec.External)
	for other, o := range c.cluster.all {
		if other != k && o.rec != nil {
			left = slices.DeleteFunc(left, func(a netip.Addr) bool {
				return slices.Contains(o.rec.Addrs, a) || slices.Contains(o.rec.Balanced, a) || slices.Contains(o.rec.External, a)
			})
		}
	}
	c.keepClosed(s, left)
	return left
}

// ReopenClusterService leaves an address of a closed service to whoever has it now.
func (c *Compiler) ReopenClusterService(k model.ClusterServiceKey, a netip.Addr) {
	if s := c.cluster.all[k]; s != nil && s.closed {
		c.keepClosed(s, slices.DeleteFunc(slices.Concat(s.rec.Addrs, s.rec.Balanced), func(x netip.Addr) bool { return x == a }))
	}
}

func (c *Compiler) keepClosed(s *clusterService, left []netip.Addr) {
	within := func(a netip.Addr) bool { return slices.Contains(s.rec.Addrs, a) }
	rec := model.ClusterService{
		Key: s.key, Addrs: slices.DeleteFunc(slices.Clone(left), func(a netip.Addr) bool { return !within(a) }),
		Balanced: slices.DeleteFunc(slices.Clone(left), within),
	}
	c.SetClusterService(rec)
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

// DeleteClusterService forgets one.
func (c *Compiler) DeleteClusterService(k model.ClusterServiceKey) {
	if s := c.cluster.all[k]; s != nil && s.rec != nil {
		c.countCluster(-1)
		s.rec, s.closed = nil, false
		c.cluster.dirty.add(s)
	}
}

// countCluster has every host have the network while there are services to lead to.
func (c *Compiler) countCluster(by int) {
	was := c.cluster.count
	if c.cluster.count += by; (was == 0) != (c.cluster.count == 0) {
		n := c.network(clusterNetwork)
		n.cluster = by > 0
		c.countExposing(n, by)
	}
}

// SetServiceSlice records some backends of a cluster service.
func (c *Compiler) SetServiceSlice(v model.ServiceSlice) {
	c.DeleteServiceSlice(v.Key)
	s := c.cluster.of(v.ServiceKey())
	x := &serviceSlice{rec: &v, of: s}
	c.cluster.slices[v.Key] = x
	s.slices.add(x)
	for _, b := range v.Backends {
		addTo(c.cluster.asking, nameOf(b), s)
	}
	c.cluster.dirty.add(s)
}

// DeleteServiceSlice forgets them.
func (c *Compiler) DeleteServiceSlice(k model.ServiceSliceKey) {
	x := c.cluster.slices[k]
	if x == nil {
		return
	}
	delete(c.cluster.slices, k)
	delete(x.of.slices, x)
	still := set[backendName]{}
	for o := range x.of.slices {
		for _, b := range o.rec.Backends {
			still.add(nameOf(b))
		}
	}
	for _, b := range x.rec.Backends {
		if _, has := still[nameOf(b)]; !has {
			removeFrom(c.cluster.asking, nameOf(b), x.of)
		}
	}
	c.cluster.dirty.add(x.of)
}

// SetClusterNode records what services ask of a node.
func (c *Compiler) SetClusterNode(v model.ClusterNode) {
	if old, had := c.cluster.nodes[v.Name]; !had || !old.Equal(v) {
		c.cluster.nodes[v.Name], c.cluster.moved = v, true
	}
}

// DeleteClusterNode forgets it.
func (c *Compiler) DeleteClusterNode(k model.NodeName) {
	if _, had := c.cluster.nodes[k]; had {
		delete(c.cluster.nodes, k)
		c.cluster.moved = true
	}
}

// SetServiceRanges records where the addresses of the orchestrator's services come from.
func (c *Compiler) SetServiceRanges(r model.ServiceRanges) {
	c.out.ServiceRanges, c.cluster.ranged = r.Ranges, true
}

// follow notes an endpoint that has come or (not in) goes, for services that ask for it.
func (x *clusterServices) follow(e *endpoint, in bool) {
	for _, name := range namesOf(e) {
		if in {
			x.ends[name] = append(x.ends[name], e)
		} else if x.ends[name] = slices.DeleteFunc(x.ends[name], func(of *endpoint) bool { return of == e }); len(x.ends[name]) == 0 {
			delete(x.ends, name)
		}
	}
	x.touch(e)
}

// touch has the services that ask for an endpoint be made anew.
func (x *clusterServices) touch(e *endpoint) {
	for _, name := range namesOf(e) {
		for s := range x.asking[name] {
			x.dirty.add(s)
		}
	}
}

// compileNodePorts writes at which addresses node ports are.
func (c *Compiler) compileNodePorts() {
	x := &c.cluster
	if !x.moved {
		return
	}
	x.moved = false
	now := map[netip.Addr]model.NodeName{}
	for _, n := range x.nodes {
		for _, a := range n.Addrs {
			if first, had := now[a]; !had || n.Name == model.NodeName(c.self) || first != model.NodeName(c.self) && n.Name < first {
				now[a] = n.Name
			}
		}
	}
	x.nodeOf = now
	for a := range now {
		if _, had := c.out.NodeAddrs.Get(a); !had {
			c.out.NodeAddrs = c.out.NodeAddrs.Set(a, struct{}{})
		}
	}
	for a := range c.out.NodeAddrs.All() {
		if _, has := now[a]; !has {
			c.out.NodeAddrs = c.out.NodeAddrs.Delete(a)
		}
	}
	for _, s := range x.all {
		if s.rec != nil && (len(s.rec.Balanced)+len(s.rec.External) > 0 || s.rec.OutsideLocal) || s.strangers { // which must not be nodes', may be, or are asked there
			x.dirty.add(s)
		}
	}
	if zone := x.nodes[model.NodeName(c.self)].Zone; zone != x.zone {
		x.zone = zone
		for _, s := range x.all {
			if s.rec != nil && s.rec.Near != model.NearAnywhere {
				x.dirty.add(s)
			}
		}
	}
}

// compileClusterServices brings an orchestrator's services up to date.
func (c *Compiler) compileClusterServices(before desired.Host) {
	c.compileNodePorts()
	x := &c.cluster
	var at networkState
	if n := c.networks[clusterNetwork]; n != nil && n.rec != nil {
		at = networkState{n.id, n.rec.Encap}
	}
	text := ""
	if x.count > 0 && at.id == 0 {
		text = fmt.Sprintf("%sthey belong to network %s, which is not there", model.NoEffectPrefix, clusterNetwork)
	}
	c.problems.set("services of Kubernetes", text)
	if c.clusterDomain(before, at) {
		for _, s := range x.all {
			x.dirty.add(s)
		}
	}
	for e := range c.dirtyEps {
		x.touch(e)
	}
	for s := range x.dirty {
		c.putClusterService(s, before)
		if s.rec == nil && len(s.slices) == 0 {
			delete(x.all, s.key)
		}
	}
	c.boundAsked(before)
	reset(&x.dirty)
}

// putClusterService writes a service into the picture: the ports that all backends have
// under one number as one service, each other port as one of its own.
func (c *Compiler) putClusterService(s *clusterService, before desired.Host) {
	object := "service of Kubernetes " + s.key.String()
	was := s.pics
	s.pics = nil
	c.cluster.asked -= s.asked
	s.asked = 0
	text := ""
	if s.rec != nil && c.cluster.at.id != 0 {
		var all []desired.Service
		all, text = c.clusterPictures(s)
		for i := range all {
			pic := &all[i]
			if old, ok := before.Services.Get(pic.Key); ok && old.Equal(pic) {
				pic = old
			}
			c.out.Services = c.out.Services.Set(pic.Key, pic)
			s.pics = append(s.pics, pic.Key)
		}
	}
	for _, k := range was {
		if !slices.Contains(s.pics, k) {
			c.out.Services = c.out.Services.Delete(k)
		}
	}
	c.problems.set(object, text)
}

// PictureKey is the key that a service of an orchestrator has in a picture; port is one
// that has a service of its own.
func PictureKey(k model.ClusterServiceKey, port string) model.ServiceKey {
	name := k.String()
	if port != "" {
		name += ":" + port
	}
	return model.ServiceKey{Tenant: model.DefaultTenant, Name: name}
}

// clusterPictures makes what a service is in the picture.
func (c *Compiler) clusterPictures(s *clusterService) (out []desired.Service, problem string) {
	if s.closed {
		x := desired.Service{Key: PictureKey(s.key, ""), Network: c.cluster.at.id, Exposed: true}
		x.IPv4, x.IPv6 = addrsOf(s.rec)
		// At port 0 nobody asks: all ports of the addresses are refused.
		x.Frontends = c.facesOf(&model.ClusterService{Balanced: s.rec.Balanced}, model.ClusterPort{Protocol: model.ProtoTCP}, 0)
		slices.SortFunc(x.Frontends, desired.CompareFrontends)
		return []desired.Service{x}, ""
	}
	all := slices.SortedFunc(maps.Keys(s.slices), func(a, b *serviceSlice) int { return cmp.Compare(a.rec.Key.String(), b.rec.Key.String()) })
	all = slices.DeleteFunc(all, func(x *serviceSlice) bool { return len(x.rec.Backends) == 0 })
	foreign, pods := c.strangers(all)
	s.strangers = len(foreign)+len(pods) > 0
	if len(pods) > 0 { // kube-proxy serves it, where it runs
		return nil, fmt.Sprintf("%s%d of its backends are pods on no network that is joined with %s, such as %s: kube-proxy has to serve it", model.NoEffectPrefix, len(pods), clusterNetwork, pods[0])
	}
	if len(foreign) > 0 && c.lacksForeign {
		return nil, fmt.Sprintf("%s%d of its backends are no pods of network %s, such as %s (a pod in its node's network, or somebody outside of the cluster), to whom this host's data plane does not lead: kube-proxy has to serve it", model.NoEffectPrefix, len(foreign), clusterNetwork, foreign[0])
	}
	main := desired.Service{Key: PictureKey(s.key, ""), Network: c.cluster.at.id, Affinity: s.rec.AffinityTime(), Exposed: true}
	var others []desired.Service
	for _, p := range s.rec.Ports {
		port, alike := commonPort(all, p)
		if alike {
			main.Frontends = append(main.Frontends, c.facesOf(s.rec, p, port)...)
			continue
		}
		of := main
		of.Key, of.Frontends = PictureKey(s.key, fmt.Sprintf("%s/%d", p.Protocol, p.Port)), c.facesOf(s.rec, p, p.Port)
		of.Backends = c.clusterBackends(s, all, &p)
		others = append(others, of)
	}
	if main.Backends = c.clusterBackends(s, all, nil); len(main.Frontends) > 0 {
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
		out = c.askedAtNodes(s, all, out)
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
		return p.Port, true // nobody is asked
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

// facesOf are the faces of a service's port.
func (c *Compiler) facesOf(s *model.ClusterService, p model.ClusterPort, backend uint16) (out []desired.Frontend) {
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
	face := func(a netip.Addr, port uint16, inside, outside desired.TrafficPolicy, sources ...netip.Prefix) {
		out = append(out, desired.Frontend{Addr: a, Protocol: p.Protocol, Port: port, Backend: backend, InternalPolicy: inside, ExternalPolicy: outside, Sources: sources})
	}
	for _, a := range s.Addrs {
		face(a, p.Port, inside, inside)
	}
	sources := s.Sources
	if s.OnlySources && len(sources) == 0 { // nobody has such an address
		sources = nobody
	}
	taken := slices.Clone(s.Addrs)
	for _, list := range []struct {
		addrs   []netip.Addr
		sources []netip.Prefix
	}{{s.Balanced, sources}, {s.External, nil}} {
		for _, a := range list.addrs {
			if _, node := c.out.NodeAddrs.Get(a); node || slices.Contains(taken, a) {
				continue
			}
			taken = append(taken, a)
			face(a, p.Port, all, outside, list.sources...)
		}
	}
	if p.Node != 0 {
		for _, a := range s.Addrs {
			face(desired.AnyNode(a), p.Node, all, outside)
		}
	}
	return out
}
