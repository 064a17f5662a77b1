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

// write writes a service into the desired state: where its network is in it, and it has
// addresses. Usually it is one service there; build says when it is several.
func (sv *Services) write(s *service) {
	was := s.parts
	s.parts = nil
	sv.remotePorts -= s.asked
	s.asked = 0
	var texts []string
	if s.rec != nil {
		if s.net.isSplit() {
			texts = append(texts, textSplit)
		}
		if s.net.id != 0 {
			all, more := sv.build(s)
			texts = append(texts, more...)
			for i := range all {
				pic := &all[i]
				if old, ok := sv.out.before.Services.Get(pic.Key); ok && old.Equal(pic) {
					pic = old
				}
				sv.out.Services = sv.out.Services.Set(pic.Key, pic)
				s.parts = append(s.parts, pic.Key)
			}
		}
	}
	for _, k := range was {
		if !slices.Contains(s.parts, k) {
			sv.out.Services = sv.out.Services.Delete(k)
		}
	}
	sv.problems.set(s.object(), strings.Join(texts, "; "))
}

// build makes what a service is in the desired state. A port that backends have under
// several numbers is a service of its own there.
func (sv *Services) build(s *service) (out []desired.Service, problems []string) {
	add := func(problem string) {
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	all := filledSlices(s)
	problem := ""
	if s.external, problem = sv.backends.external(s, all); problem != "" {
		return nil, []string{problem}
	}
	main := desired.Service{Key: s.key, Network: s.net.id, Affinity: s.rec.AffinityTime(), Backends: sv.backends.of(s, all, nil)}
	main.Exposed, problem = sv.exposure.isExposed(s)
	add(problem)
	if _, is := s.key.Cluster(); is && s.net.rec.Encap == model.EncapVLAN && main.Exposed && len(all) > 0 {
		add(fmt.Sprintf("%sits pods are on VLAN network %s, to which no tunnel leads: nodes, clients outside and pods of other tenants reach the pods of the node that they ask alone", model.NoEffectPrefix, s.net.key))
	}
	if s.hasAllPorts() {
		sv.ownAddrs(s, &main)
	}
	var others []desired.Service
	for _, p := range s.rec.Ports {
		port, alike := p.Target, true
		if port == 0 {
			port, alike = commonPort(all, p)
		}
		if alike {
			main.Frontends = append(main.Frontends, sv.frontendsOf(s, p, port)...)
			continue
		}
		of := main
		of.Key.Name += fmt.Sprintf(":%s/%d", p.Protocol, p.Port)
		of.Frontends = sv.frontendsOf(s, p, p.Port)
		of.Backends = sv.backends.of(s, all, &p)
		others = append(others, of)
	}
	if len(s.rec.Ports) == 0 { // no client uses port 0: all ports of the addresses are refused
		main.Frontends = sv.frontendsOf(s, model.ServicePort{Protocol: model.ProtoTCP}, 0)
	}
	if main.IPv4.IsValid() || main.IPv6.IsValid() || len(main.Frontends) > 0 {
		out = append(out, main)
	}
	out = append(out, others...)
	if len(out) > 0 && !s.closed { // one tells for all
		out[0].Balanced = s.rec.Balanced
	}
	for i := range out {
		out[i].HealthPort = s.rec.HealthPort
		slices.SortFunc(out[i].Frontends, desired.CompareFrontends)
		if n := out[i].Backends.Len(); n > desired.MaxBackends {
			out[i].Backends = firstBackends(out[i].Backends)
			add(fmt.Sprintf("has %d backends: connections go to the first %d of them by name", n, desired.MaxBackends))
		}
	}
	if s.rec.OutsideLocal {
		out = sv.remoteNodePorts(s, all, out)
	}
	return out, problems
}

// filledSlices returns a service's slices with backends, by name; none of a service without ports.
func filledSlices(s *service) []*serviceSlice {
	if len(s.slices) == 0 || len(s.rec.Ports) == 0 {
		return nil
	}
	all := slices.SortedFunc(maps.Keys(s.slices), func(a, b *serviceSlice) int { return cmp.Compare(a.rec.Key.String(), b.rec.Key.String()) })
	return slices.DeleteFunc(all, func(x *serviceSlice) bool { return len(x.rec.Backends) == 0 })
}

// policiesOf returns the traffic policies of a service: for connections to its own addresses
// (own), and for connections to all other addresses from outside the cluster (outside) and
// from inside (all).
func policiesOf(s *model.Service) (own, outside, all desired.TrafficPolicy) {
	if s.Near != model.NearAnywhere {
		all = desired.TrafficNearest
	}
	own, outside = all, all
	if s.InsideLocal {
		own = desired.TrafficLocalDrop
	}
	if s.OutsideLocal {
		outside = desired.TrafficLocalDrop
	}
	return own, outside, all
}

// ownAddrs gives the desired state of a service its addresses with all their ports.
func (sv *Services) ownAddrs(s *service, pic *desired.Service) {
	pic.IPv4, pic.IPv6 = s.rec.AddrsByFamily()
	pic.Ports = servicePorts(s.rec)
	own, _, _ := policiesOf(s.rec)
	pic.InternalPolicy, pic.ExternalPolicy = own, own
	if pic.Exposed && sv.backends.speaksBGP {
		pic.ExternalPolicy = desired.TrafficNearest
	}
	pic.ExternalPolicy = s.outsidePolicy(pic.ExternalPolicy)
}

// outsidePolicy is a traffic policy for clients outside, as the service's network allows it: a
// VLAN network has no tunnel by which a host could send in the name of such a client.
func (s *service) outsidePolicy(p desired.TrafficPolicy) desired.TrafficPolicy {
	if s.net.rec.Encap == model.EncapVLAN && p != desired.TrafficLocalDrop {
		return desired.TrafficLocal
	}
	return p
}

// frontendsOf returns the frontends of a service's port: at nodes' addresses, and at each of
// its addresses that has no Ports (ownAddrs).
func (sv *Services) frontendsOf(s *service, p model.ServicePort, backend uint16) (out []desired.Frontend) {
	rec := s.rec
	own, outside, all := policiesOf(rec)
	frontend := func(a netip.Addr, port uint16, inside, outside desired.TrafficPolicy, sources ...netip.Prefix) {
		out = append(out, desired.Frontend{Addr: a, Protocol: p.Protocol, Port: port, Backend: backend, InternalPolicy: inside, ExternalPolicy: s.outsidePolicy(outside), Sources: sources})
	}
	if !s.hasAllPorts() {
		for _, a := range rec.Addrs {
			frontend(a, p.Port, own, own)
		}
	}
	sources := rec.Sources
	if rec.OnlySources && len(sources) == 0 { // no client has such an address
		sources = noClient
	}
	taken := func(a netip.Addr) bool {
		_, node := sv.out.NodeAddrs.Get(a)
		return node || slices.Contains(rec.Addrs, a) || slices.ContainsFunc(out, func(f desired.Frontend) bool { return f.Addr == a })
	}
	for _, list := range []struct {
		addrs   []netip.Addr
		sources []netip.Prefix
	}{{rec.Balanced, sources}, {rec.External, nil}} {
		for _, a := range list.addrs {
			if !taken(a) {
				frontend(a, p.Port, all, outside, list.sources...)
			}
		}
	}
	if p.Node != 0 {
		for _, a := range rec.Addrs {
			frontend(desired.AnyNode(a), p.Node, all, outside)
		}
	}
	return out
}

// commonPort is the number that a service's port has in all slices, if it is one.
func commonPort(all []*serviceSlice, p model.ServicePort) (port uint16, alike bool) {
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
func portIn(x *model.ServiceSlice, p model.ServicePort) uint16 {
	for _, o := range x.Ports {
		if o.Name == p.Name && o.Protocol == p.Protocol {
			return o.Port
		}
	}
	return 0
}

// firstBackends returns as many as are chosen among, by their keys.
func firstBackends(all desired.Map[model.EndpointKey, *desired.Backend]) (out desired.Map[model.EndpointKey, *desired.Backend]) {
	byName := map[string]model.EndpointKey{}
	for k := range all.All() {
		byName[k.String()] = k
	}
	for _, name := range slices.Sorted(maps.Keys(byName))[:desired.MaxBackends] {
		b, _ := all.Get(byName[name])
		out = out.Set(byName[name], b)
	}
	return out
}
