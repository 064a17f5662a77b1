package compile

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// serviceBackends finds the backends of services: the endpoints that selectors select, and
// the backends that slices name.
//
// Takes: endpoints by name, ranges of service addresses, whether this host speaks BGP and
// what its data plane lacks; networks, hosts, nodePorts.
// Gives: backends to services; ServiceRanges.
type serviceBackends struct {
	self    model.HostName
	byName  map[backendName][]*endpoint // endpoints, by each name that a backend may have for them
	ranged  bool                        // the ranges of services' addresses may have changed
	domains map[*network][]netip.Prefix // of networks whose services have slices: see domain

	speaksBGP          bool
	noExternalBackends bool // this host's data plane leads to no backends that are no endpoints

	hosts     *Hosts
	nodePorts *nodePorts
	out       *output
}

// enter notes an endpoint that has come or (not in) goes.
func (sb *serviceBackends) enter(e *endpoint, in bool) {
	for _, name := range namesOf(e) {
		if in {
			sb.byName[name] = append(sb.byName[name], e)
		} else if sb.byName[name] = slices.DeleteFunc(sb.byName[name], func(of *endpoint) bool { return of == e }); len(sb.byName[name]) == 0 {
			delete(sb.byName, name)
		}
	}
}

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

// onNetwork reports whether an endpoint of a network has an address.
func (sb *serviceBackends) onNetwork(n *network, a netip.Addr) bool {
	return slices.ContainsFunc(sb.byName[backendName{addr: a}], func(e *endpoint) bool { return e.net == n })
}

// domain is what no backend beyond a network's domain may have: the subnets of the domain,
// and the ranges of services' addresses (the host's stack would lead such a client on to
// another service, in its own name); sorted.
func (sb *serviceBackends) domain(n *network) []netip.Prefix {
	subnets, known := sb.domains[n]
	if !known {
		subnets = sb.findDomain(n)
		sb.domains[n] = subnets
	}
	return subnets
}

func (sb *serviceBackends) findDomain(n *network) []netip.Prefix {
	subnets := slices.Clone(sb.out.ServiceRanges)
	own, _ := sb.out.Networks.Get(n.id)
	for _, n := range sb.out.Networks.All() {
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
	return subnets
}

func (sb *serviceBackends) forgetDomain(n *network) { delete(sb.domains, n) }

// changedDomains brings the domains up to date and returns the networks that have another
// one.
func (sb *serviceBackends) changedDomains() (out []*network) {
	same := !sb.ranged
	sb.ranged = false
	for range sb.out.Networks.Diff(sb.out.before.Networks) {
		same = false
		break
	}
	if same {
		return nil
	}
	for n, was := range sb.domains {
		if now := sb.findDomain(n); !slices.Equal(now, was) {
			sb.domains[n] = now
			out = append(out, n)
		}
	}
	return out
}

// inDomain reports whether an address is of a network of a network's domain, or of a
// service.
func (sb *serviceBackends) inDomain(n *network, a netip.Addr) bool {
	return slices.ContainsFunc(sb.domain(n), func(p netip.Prefix) bool { return p.Contains(a) })
}

// externalBackendKey is the key of a service's backend that is no endpoint: no endpoint has such an
// id.
func externalBackendKey(s *service, a netip.Addr) model.EndpointKey {
	return model.EndpointKey{Network: s.net.key, ID: model.EndpointID("@" + a.String())}
}

// choose brings what an endpoint that has changed is to a service that may select it up to
// date. What the present endpoint of its key is counts, should it be another one.
func (sb *serviceBackends) choose(s *service, e *endpoint) {
	if now := e.net.eps[e.Key.ID]; e.deleted && now != nil {
		e = now
	}
	if _, provides := e.services[s]; !provides || !e.serves() {
		s.selected = s.selected.Delete(e.Key)
		return
	}
	b := sb.backend(e, model.ServiceBackend{})
	b.IPv4, b.IPv6 = e.IPv4, e.IPv6
	own := sb.serving(s, e, model.ServiceBackend{}, b.Local)
	b.State, b.Near = own.State, own.Nearness
	if old, ok := s.selected.Get(e.Key); !ok || *old != *b {
		s.selected = s.selected.Set(e.Key, b)
	}
}

// backend is what an endpoint (nil = one that is none) is to any service, but for addresses
// and how it serves them; says is what a slice says of it.
func (sb *serviceBackends) backend(e *endpoint, says model.ServiceBackend) *desired.Backend {
	b := &desired.Backend{Local: says.Node == model.NodeName(sb.self)}
	if e != nil {
		b.Network, b.Identity, b.Local = e.net.id, e.identity(), e.isPort
		if e.isRemote && e.net.rec.Encap == model.EncapVXLAN {
			b.VTEP = sb.hosts.vtep(e.Host)
		}
	}
	return b
}

// serving is how a backend serves a family of a service, but for its port.
func (sb *serviceBackends) serving(s *service, e *endpoint, says model.ServiceBackend, here bool) (out desired.Serving) {
	out.State, _ = stateOf(says.State)
	switch {
	case e == nil:
	case e.Unhealthy:
		out.State = desired.BackendUnhealthy
	case e.Draining || sb.hosts.drains(e.Host):
		out.State = desired.BackendDraining
	}
	out.Nearness = sb.nearness(s.rec.Near, says, here)
	return out
}

// of returns the backends of a service: the endpoints that it selects, and the endpoints of its
// domain and addresses beyond it that some slices name. port (nil = none) is one that they
// have under several numbers.
func (sb *serviceBackends) of(s *service, all []*serviceSlice, port *model.ServicePort) (out desired.Map[model.EndpointKey, *desired.Backend]) {
	out = s.selected
	if len(all) == 0 {
		return out
	}
	found := map[model.EndpointKey]*desired.Backend{}
	for _, x := range all {
		own := uint16(0)
		if port != nil {
			if own = portIn(x.rec, *port); own == 0 {
				continue
			}
		}
		for _, b := range x.rec.Backends {
			if _, chosen := stateOf(b.State); !chosen {
				continue
			}
			key, e := externalBackendKey(s, b.Addr), sb.endOf(s.net, b)
			if e != nil {
				key = e.Key
			} else if sb.inDomain(s.net, b.Addr) { // it has just gone, or is about to come
				continue
			}
			to := found[key]
			if to == nil {
				to = sb.backend(e, b)
				found[key] = to
			}
			if !to.Addr(b.Addr.Is6()).IsValid() { // of several slices the first by name says it
				serving := sb.serving(s, e, b, to.Local)
				serving.Port = own
				to.Serve(b.Addr, serving)
			}
		}
	}
	for k, b := range found {
		out = out.Set(k, b)
	}
	return out
}

// external reports whether a service has backends that can never be endpoints in its domain,
// since no network there has their addresses: machines of the cluster and external ones; and
// pods on other networks, since a pod without a network has its node's address. The problem
// is why it cannot be served for these.
func (sb *serviceBackends) external(s *service, all []*serviceSlice) (has bool, problem string) {
	if len(all) == 0 {
		return false, ""
	}
	var foreign, pods []netip.Addr
	for _, x := range all {
		for _, b := range x.rec.Backends {
			if _, chosen := stateOf(b.State); !chosen || sb.inDomain(s.net, b.Addr) {
				continue
			}
			if _, node := sb.out.NodeAddrs.Get(b.Addr); b.Pod == "" || node {
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
	switch {
	case len(pods) > 0: // kube-proxy serves it, where it runs
		problem = fmt.Sprintf("%s%d of its backends are pods on no network that is joined with %s, such as %s: kube-proxy has to serve it", model.NoEffectPrefix, len(pods), s.net.key, pods[0])
	case len(foreign) > 0 && sb.noExternalBackends:
		problem = fmt.Sprintf("%s%d of its backends are not pods of network %s, such as %s (a pod in its node's network, or an address outside the cluster), which this host's data plane does not support: kube-proxy has to serve it", model.NoEffectPrefix, len(foreign), s.net.key, foreign[0])
	}
	return len(foreign)+len(pods) > 0, problem
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

// endOf is the endpoint that a backend is, in a network's domain, of several the first by
// key; nil = there is none.
func (sb *serviceBackends) endOf(at *network, b model.ServiceBackend) (first *endpoint) {
	own, _ := sb.out.Networks.Get(at.id)
	for _, e := range sb.byName[nameOf(b)] {
		if e.IPv4 != b.Addr && e.IPv6 != b.Addr || !e.serves() {
			continue
		}
		n, ok := sb.out.Networks.Get(e.net.id)
		if ok && own != nil && n.Domain() == own.Domain() && (first == nil || e.Key.String() < first.Key.String()) {
			first = e
		}
	}
	return first
}

// nearness says how near a backend is to this host: by its hints where the service goes by
// them, else by where it is while this host speaks BGP.
func (sb *serviceBackends) nearness(near model.Near, b model.ServiceBackend, here bool) desired.Nearness {
	zone := slices.Contains(b.ForZones, sb.nodePorts.zone) && sb.nodePorts.zone != ""
	switch {
	case near == model.NearAnywhere && !sb.speaksBGP:
		return desired.NearUnknown
	case near == model.NearAnywhere && here:
		return desired.NearHost
	case near == model.NearAnywhere:
		return desired.NearFar
	case near == model.NearNode && slices.Contains(b.ForNodes, model.NodeName(sb.self)):
		return desired.NearHost
	case zone:
		return desired.NearZone
	case len(b.ForZones) == 0 && (near == model.NearZone || len(b.ForNodes) == 0):
		return desired.NearUnknown
	}
	return desired.NearFar
}

func (sb *serviceBackends) setRanges(r model.ServiceRanges) {
	sb.out.ServiceRanges, sb.ranged = r.Ranges, true
}
