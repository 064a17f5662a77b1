package compile

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Services has all services, with the endpoints that they select and the slices that name
// backends of them.
//
// Takes: rows of services and slices; marked endpoints, networks and providers; routing,
// exposure, nodePorts, serviceBackends.
// Gives: Services and their DNS.Records; which tenants have networks that every host has,
// to routing; marks networks.
type Services struct {
	rows          map[model.ServiceKey]*service
	slices        map[model.ServiceSliceKey]*serviceSlice
	byBackendName map[backendName]set[*service] // services with a backend of that name
	at            map[netip.Addr]set[*service]  // services by address
	cluster       int                           // rows that are an orchestrator's, of clusterNetworkKey
	remotePorts   int                           // ports that services want at other nodes' addresses, altogether
	overLimit     bool                          // they want more than there are
	dirty         *marks[*service]
	dirtyBackends map[*service]set[*endpoint]

	inv            *inventory
	routing        *routing
	exposure       *exposure
	nodePorts      *nodePorts
	backends       *serviceBackends
	out            *output
	problems       *problems
	dirtyNetworks  *marks[*network]
	dirtyEps       *marks[*endpoint]
	dirtyProviders *marks[*endpoint]
}

// service is what is known about one service, and what was compiled of it.
type service struct {
	// Services:
	key       model.ServiceKey
	rec       *model.Service         // nil = there is none of the name, though slices may be
	closed    bool                   // rec is what is left of it
	net       *network               // of rec
	found     *model.ServiceSelector // under which net.services has it
	members   set[*endpoint]         // whom it selects, in the desired state or not
	slices    set[*serviceSlice]
	parts     []model.ServiceKey // as which it is in the desired state
	external  bool               // it has backends that are on no network of its domain
	asked     int                // ports that it wants at other nodes' addresses
	overLimit bool               // and it has none: others have all that there are

	// serviceBackends:
	selected desired.Map[model.EndpointKey, *desired.Backend] // of members

	// exposure:
	wantedAddrs [2]netip.Addr // at which it wants to be exposed
}

type serviceSlice struct {
	rec *model.ServiceSlice
	of  *service
}

// clusterNetworkKey is the network of an orchestrator's services whose pods are on no other.
var clusterNetworkKey = model.ClusterNetworkKey

// hasAllPorts reports whether a service has all ports of its addresses, and its backends are
// asked at the ports that its record says. Where slices tell their ports, one may have
// several numbers.
func (s *service) hasAllPorts() bool {
	return !slices.ContainsFunc(s.rec.Ports, func(p model.ServicePort) bool { return p.Target == 0 })
}

// object names the service in problems.
func (s *service) object() string {
	if k, is := s.key.Cluster(); is {
		return "service of Kubernetes " + k.String()
	}
	return "service " + s.key.String()
}

func (sv *Services) of(k model.ServiceKey) *service {
	return lookup(sv.rows, k, func() *service { return &service{key: k, members: set[*endpoint]{}, slices: set[*serviceSlice]{}} })
}

func (sv *Services) put(v model.Service) {
	s := sv.of(v.Key)
	moved := s.rec == nil || s.rec.Network != v.Network || !slices.Equal(s.rec.Selectors, v.Selectors)
	if moved {
		sv.leaveNetwork(s)
	}
	sv.enter(s, &v)
	if moved {
		sv.joinNetwork(s)
	}
}

func (sv *Services) remove(k model.ServiceKey) {
	if s := sv.rows[k]; s != nil && s.rec != nil {
		sv.leaveNetwork(s)
		sv.enter(s, nil)
	}
}

// enter makes a record a service's in place of the one that it has.
func (sv *Services) enter(s *service, rec *model.Service) {
	_, cluster := s.key.Cluster()
	if s.rec != nil {
		for _, a := range s.rec.AllAddrs() {
			removeFrom(sv.at, a, s)
		}
		if cluster && s.rec.Network == clusterNetworkKey {
			sv.cluster--
		}
	}
	if s.rec, s.closed = rec, false; rec != nil {
		for _, a := range rec.AllAddrs() {
			addTo(sv.at, a, s)
		}
		if cluster && rec.Network == clusterNetworkKey {
			sv.cluster++
		}
	}
	sv.dirty.add(s)
}

// Close leaves nothing of a service that has been deleted but its addresses, nodes' aside,
// where everybody is refused. It returns these: none where others have them, or there is
// no such service.
func (sv *Services) Close(k model.ServiceKey) []netip.Addr {
	s := sv.rows[k]
	if s == nil || s.rec == nil {
		return nil
	}
	left := slices.DeleteFunc(s.rec.AllAddrs(), func(a netip.Addr) bool {
		for o := range sv.at[a] {
			if o != s && o.key.Tenant == k.Tenant {
				return true
			}
		}
		return sv.backends.onNetwork(s.net, a)
	})
	sv.keepClosed(s, left)
	return left
}

// Reopen leaves an address of a closed service to its present owner.
func (sv *Services) Reopen(k model.ServiceKey, a netip.Addr) {
	if s := sv.rows[k]; s != nil && s.closed {
		sv.keepClosed(s, slices.DeleteFunc(s.rec.AllAddrs(), func(x netip.Addr) bool { return x == a }))
	}
}

func (sv *Services) keepClosed(s *service, left []netip.Addr) {
	rec := model.Service{Key: s.key, Network: s.rec.Network}
	for _, a := range left {
		if slices.Contains(s.rec.Addrs, a) {
			rec.Addrs = append(rec.Addrs, a)
		} else {
			rec.Balanced = append(rec.Balanced, a)
		}
	}
	sv.put(rec)
	s.closed = true
}

func (sv *Services) putSlice(v model.ServiceSlice) {
	sv.removeSlice(v.Key)
	s := sv.of(v.ServiceKey())
	x := &serviceSlice{rec: &v, of: s}
	sv.slices[v.Key] = x
	s.slices.add(x)
	for _, b := range v.Backends {
		addTo(sv.byBackendName, nameOf(b), s)
	}
	sv.dirty.add(s)
}

func (sv *Services) removeSlice(k model.ServiceSliceKey) {
	x := sv.slices[k]
	if x == nil {
		return
	}
	delete(sv.slices, k)
	delete(x.of.slices, x)
	still := set[backendName]{}
	for o := range x.of.slices {
		for _, b := range o.rec.Backends {
			still.add(nameOf(b))
		}
	}
	for _, b := range x.rec.Backends {
		if _, has := still[nameOf(b)]; !has {
			removeFrom(sv.byBackendName, nameOf(b), x.of)
		}
	}
	sv.dirty.add(x.of)
}

// SpeaksBGP records whether routes to the services with a provider on this host are
// announced to the physical network's routers. They then spread clients over such hosts,
// and stop using a dead one within a second. So a client that comes to this host gets a
// provider here while there is one, and not one on another host that may be the dead one.
func (sv *Services) SpeaksBGP(yes bool) {
	if sv.backends.speaksBGP == yes {
		return
	}
	sv.backends.speaksBGP = yes
	for _, s := range sv.rows {
		sv.dirty.add(s)
		for e := range s.members {
			sv.touchBackend(s, e)
		}
	}
}

// SetNoExternalBackends says, before anything else, that this host's data plane leads to no backends
// that are no endpoints: services with such ones are in no desired state of it.
func (sv *Services) SetNoExternalBackends() { sv.backends.noExternalBackends = true }

// follow enters an endpoint that has come, or (not in) takes it out.
func (sv *Services) follow(e *endpoint, in bool) {
	sv.backends.enter(e, in)
	sv.selectServices(e, in)
	sv.touch(e)
}

// touch marks an endpoint as a backend of the services that it provides.
func (sv *Services) touch(e *endpoint) {
	for s := range e.services {
		sv.touchBackend(s, e)
	}
	if len(sv.byBackendName) == 0 {
		return
	}
	for _, name := range namesOf(e) {
		for s := range sv.byBackendName[name] {
			sv.dirty.add(s)
		}
	}
}

func (sv *Services) touchBackend(s *service, e *endpoint) {
	if sv.dirtyBackends[s] == nil {
		sv.dirtyBackends[s] = set[*endpoint]{}
	}
	sv.dirtyBackends[s].add(e)
}

// compile brings services and their names up to date with what has
// changed of them, of their networks and nodes, and of their backends.
func (sv *Services) compile() {
	text := ""
	if n := sv.inv.networks[clusterNetworkKey]; sv.cluster > 0 && (n == nil || n.id == 0) {
		text = fmt.Sprintf("%sthey belong to network %s, which is not there", model.NoEffectPrefix, clusterNetworkKey)
	}
	sv.problems.set("services of Kubernetes", text)
	sv.markNetworks()
	sv.markNodes()
	for e := range sv.dirtyEps.of {
		sv.touch(e)
	}
	for e := range sv.dirtyProviders.of {
		sv.touch(e)
	}
	for s := range sv.dirty.of {
		sv.exposure.setAddresses(s)
	}
	for s, changed := range sv.dirtyBackends {
		for e := range changed {
			sv.backends.choose(s, e)
		}
		sv.write(s)
	}
	for s := range sv.dirty.of {
		if _, done := sv.dirtyBackends[s]; !done {
			sv.write(s)
		}
		sv.name(s)
		if s.rec == nil && len(s.slices) == 0 {
			delete(sv.rows, s.key)
		}
	}
	sv.limitRemoteNodePorts()
	if len(sv.dirtyBackends) > 0 {
		sv.dirtyBackends = map[*service]set[*endpoint]{}
	}
}

// markNetworks marks the services that depend on what has changed of networks.
func (sv *Services) markNetworks() {
	for n := range sv.dirtyNetworks.of {
		if x := n.services; x != nil && (x.at != n.id || x.split != n.isSplit() || n.rec != nil && x.encap != n.rec.Encap) {
			x.split = n.isSplit()
			if x.at = n.id; n.rec != nil {
				x.encap = n.rec.Encap
			}
			for s := range x.all {
				sv.dirty.add(s)
			}
		}
	}
	for _, n := range sv.backends.changedDomains() {
		for s := range n.services.all {
			if len(s.slices) > 0 {
				sv.dirty.add(s)
			}
		}
	}
}

// markNodes marks the services that depend on what has changed of nodes.
func (sv *Services) markNodes() {
	if !sv.nodePorts.changed {
		return
	}
	for _, s := range sv.rows {
		switch {
		case s.external: // whose addresses may be nodes' now, or no longer
			sv.dirty.add(s)
		case s.rec == nil:
		case len(s.rec.Balanced)+len(s.rec.External) > 0: // which must not be nodes'
			sv.dirty.add(s)
		case s.rec.OutsideLocal: // which is asked at nodes' addresses
			sv.dirty.add(s)
		case sv.nodePorts.zoneChanged && s.rec.Near != model.NearAnywhere:
			sv.dirty.add(s)
		}
	}
}

// name writes a service's name, addresses and ports; none of one that is gone, and none of
// an orchestrator's, which has names of its own.
func (sv *Services) name(s *service) {
	if _, is := s.key.Cluster(); is {
		return
	}
	noEffect(sv.problems, "serviceLBs", s.key.String(), s.rec, true)
	var r desired.DNSRecord
	if s.rec != nil && !s.closed && len(s.rec.Addrs) > 0 {
		r = desired.DNSRecord{Network: s.rec.Network, Service: dnsName(s.key.Name), Ports: servicePorts(s.rec)}
		r.IPv4, r.IPv6 = s.rec.AddrsByFamily()
	}
	sv.out.putName(desired.DNSKey{Service: s.key}, r)
}

func servicePorts(s *model.Service) (out []desired.ServicePort) {
	for _, p := range s.Ports {
		out = append(out, desired.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port, Backend: p.Target})
	}
	slices.SortFunc(out, desired.CompareServicePorts)
	return out
}
