package hostsync

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/hostservices"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// frontends has this host serve the frontends of services, which Kubernetes' have, to its own
// processes and to clients outside. A service whose backends are all on routed networks is
// served by the host's stack, every other one by the data plane. A change costs what differs.
type frontends struct {
	out        *hoststack.Frontends
	sockets    *sockets
	clients    *clients
	containers *containers
	last       desired.Map[model.ServiceKey, *desired.Service]
	nodes      desired.Map[netip.Addr, struct{}]
	hosts      desired.Map[netip.Addr, netip.Addr] // addresses of machines
	self       netip.Addr                          // this one's tunnel endpoint
	networks   routedNetworks
	claims     map[hoststack.FrontendAddr]map[model.ServiceKey]claim
	ours       map[model.ServiceKey][]hoststack.FrontendAddr // what a service claims
	byPlane    map[model.ServiceKey]bool                     // services that the data plane serves
	closed     controlPlanePorts
	marked     markedServices
	planes     []netip.Addr   // of machines that the control plane is on
	ranges     []netip.Prefix // of services' cluster addresses
	moved      bool           // byPlane has changed since the last follow began
	made       bool           // clients outside are served as was last asked for
}

// markedServices are services with something that the host's status, or another look, is about.
type markedServices struct {
	foreign    map[model.ServiceKey]bool // with backends that are no endpoints
	notExposed map[model.ServiceKey]bool // with such ones that are the control plane or tunnels: clients outside are not led there
	taken      map[model.ServiceKey]bool // at addresses of control plane machines: they get no packets
}

// claim is a frontend that a service wants, as the host's stack and sockets are to have it;
// nil = not at all.
type claim struct {
	stack, sockets *hoststack.Frontend
	byPlane        bool // the data plane serves it
}

const frontsObject = "services of Kubernetes from this host"

// newFrontends gets the UDP port of the hosts' tunnels, and where programs for clients outside
// are pinned; empty = the data plane serves no such clients.
func newFrontends(log *slog.Logger, repairs hoststack.Repairs, tunnel uint16, own hostservices.Config, clientPins string) *frontends {
	sockets := newSockets(own)
	return &frontends{
		sockets: sockets, clients: newClients(clientPins, own.Repairs), containers: newContainers(sockets),
		closed: controlPlanePorts{tunnel: tunnel},
		out:    hoststack.NewFrontends(log, repairs), claims: map[hoststack.FrontendAddr]map[model.ServiceKey]claim{}, ours: map[model.ServiceKey][]hoststack.FrontendAddr{},
		byPlane: map[model.ServiceKey]bool{},
		marked:  markedServices{foreign: map[model.ServiceKey]bool{}, notExposed: map[model.ServiceKey]bool{}, taken: map[model.ServiceKey]bool{}},
	}
}

// follow notes the desired state and reports whether this host serves any frontends. control
// is what containers are kept from, planes are the machines that it is on.
func (f *frontends) follow(pic desired.Host, n routedNetworks, control *hoststack.Control, planes []netip.Addr) bool {
	f.moved = false
	closed := f.closed.follow(control)
	for range pic.Nodes.Diff(f.hosts) {
		closed = true
		break
	}
	if !slices.Equal(f.networks.subnets, n.subnets) || !slices.Equal(f.planes, planes) || !slices.Equal(f.ranges, pic.ServiceRanges) {
		f.networks, f.planes, f.ranges = n, planes, pic.ServiceRanges
		for key, s := range f.last.All() {
			f.setWanted(key, s, pic)
		}
	} else if closed {
		for key := range maps.Clone(f.marked.foreign) {
			s, _ := f.last.Get(key)
			f.setWanted(key, s, pic)
		}
	}
	for c := range pic.Services.Diff(f.last) {
		f.setWanted(c.Key, c.New, pic)
	}
	f.containers.follow(pic)
	for c := range pic.NodeAddrs.Diff(f.nodes) {
		f.out.SetNode(c.Key, c.Has)
		f.sockets.setNode(c.Key, c.Has)
		f.clients.setNode(c.Key, c.Has)
	}
	if f.self != pic.VTEP { // another machine's now
		for a := range f.hosts.All() {
			f.out.SetMachine(a, false)
		}
		f.hosts, f.self = desired.Map[netip.Addr, netip.Addr]{}, pic.VTEP
	}
	for c := range pic.Nodes.Diff(f.hosts) {
		f.out.SetMachine(c.Key, c.Has && c.New != pic.VTEP)
	}
	f.hosts = pic.Nodes
	f.last, f.nodes = pic.Services, pic.NodeAddrs
	return len(f.claims) > 0
}

// apply makes the host's stack so. nat is the host's interface to the data plane; nil = there
// is none, and nothing is served.
func (f *frontends) apply(ctx context.Context, nat *desired.HostNAT, sources [2]netip.Addr, look bool) (problems []compile.Problem) {
	var at hoststack.InterfaceConfig
	if nat != nil {
		at = hoststack.InterfaceConfig{Device: nat.Interface, Sources: sources}
	}
	stack, clients, sockets := f.out.Apply(ctx, at, look), f.clients.apply(nat, look), f.sockets.apply(ctx, nat != nil, look)
	f.made = stack == nil && clients == nil
	for _, err := range []error{stack, clients, sockets} {
		if err != nil {
			problems = append(problems, compile.Problem{Object: frontsObject, Text: err.Error()})
		}
	}
	some := func(object string, of map[model.ServiceKey]bool, what string) {
		if len(of) == 0 {
			return
		}
		var first model.ServiceKey
		for k := range of {
			if first == (model.ServiceKey{}) || k.String() < first.String() {
				first = k
			}
		}
		problems = append(problems, compile.Problem{Object: object, Text: fmt.Sprintf("%s%s, of %d services such as %s", model.NoEffectPrefix, what, len(of), first)})
	}
	if f.clients.pins == "" || f.clients.unable {
		some(frontsObject, f.byPlane, "clients outside reach no node ports of services with backends on networks that are not routed, since that needs eBPF (Linux 5.10 or later)")
	}
	if f.sockets.isUnable() {
		some(frontsObject, f.byPlane, "this host's processes reach no node ports of services with backends on networks that are not routed, since that needs eBPF at a cgroup2")
	}
	if nat != nil {
		problems = append(problems, f.containers.problems()...)
	}
	some("services of Kubernetes at addresses of the control plane", f.marked.taken, "they do not work at addresses of machines with netmasters, the store or netplugins")
	some("services of Kubernetes before the control plane", f.marked.notExposed, "clients outside are not led to backends that are the control plane (netmasters, the store, inspection of netplugins) or the hosts' tunnels")
	return problems
}

// setWanted notes the frontends that a service (nil = none) wants in the host's stack. Of
// services that want the same place, the first by key has it.
func (f *frontends) setWanted(key model.ServiceKey, s *desired.Service, pic desired.Host) {
	was := f.ours[key]
	delete(f.ours, key)
	if is := f.isByPlane(s, pic); is != f.byPlane[key] {
		if f.moved = true; is {
			f.byPlane[key] = true
		} else {
			delete(f.byPlane, key)
		}
	}
	delete(f.marked.foreign, key)
	delete(f.marked.notExposed, key)
	delete(f.marked.taken, key)
	wants := map[hoststack.FrontendAddr]claim{}
	if s != nil && s.Exposed && len(s.Frontends) > 0 {
		wants = f.frontendsOf(key, s, pic)
	}
	for _, at := range was {
		if _, still := wants[at]; !still {
			if delete(f.claims[at], key); len(f.claims[at]) == 0 {
				delete(f.claims, at)
			}
			f.decide(at)
		}
	}
	for at, c := range wants {
		if f.claims[at] == nil {
			f.claims[at] = map[model.ServiceKey]claim{}
		}
		f.claims[at][key] = c
		f.ours[key] = append(f.ours[key], at)
		f.decide(at)
	}
}

func (f *frontends) decide(at hoststack.FrontendAddr) {
	var first model.ServiceKey
	for k := range f.claims[at] {
		if first == (model.ServiceKey{}) || k.String() < first.String() {
			first = k
		}
	}
	c := f.claims[at][first]
	f.out.Set(at, c.stack)
	f.sockets.set(at, c.sockets)
	f.clients.set(at, c.byPlane)
}

// frontendsOf are the frontends of a service.
func (f *frontends) frontendsOf(key model.ServiceKey, s *desired.Service, pic desired.Host) map[hoststack.FrontendAddr]claim {
	out := map[hoststack.FrontendAddr]claim{}
	pools := s.Pools()
	for _, face := range s.Frontends {
		if f.covers(face.Addr, pic) {
			f.marked.taken[key] = true
			continue
		}
		c := claim{byPlane: f.byPlane[key]}
		if c.byPlane {
			c.sockets = clusterAddressOf(s, face, pic)
		} else {
			c.stack = f.direct(key, s, pools, face, pic)
			c.sockets = c.stack
		}
		if len(face.Sources) > 0 || c.stack != nil && c.stack.Own.Drop { // packets are judged, and dropped
			c.sockets = nil
		}
		at := face.Addr
		if pic.IsNode(at) { // this one's: who is exposed has frontends at no other's
			at = desired.AnyNode(at)
		}
		out[hoststack.FrontendAddr{Addr: at, Proto: face.Protocol, Port: face.Port}] = c
	}
	return out
}

// isByPlane reports whether the data plane serves a service: if one of its endpoints is on a
// network that is not routed, or, while it has no backends, if its own network is such a one.
func (f *frontends) isByPlane(s *desired.Service, pic desired.Host) bool {
	if s == nil || !s.Exposed || len(s.Frontends) == 0 {
		return false
	}
	for _, b := range s.Backends.All() {
		if !b.External() && !isRouted(b.Network, pic) {
			return true
		}
	}
	return s.Backends.Len() == 0 && !isRouted(s.Network, pic)
}

// clusterAddressOf is where sockets of this host's processes reach a frontend that the data
// plane serves: its service's cluster address, to which there is a route. Sockets need no
// help at that address itself, and have none where a service has no such address: nil.
func clusterAddressOf(s *desired.Service, face desired.Frontend, pic desired.Host) *hoststack.Frontend {
	for _, o := range s.Frontends {
		if o.Addr != face.Addr && o.Addr.Is6() == face.Addr.Is6() && o.Protocol == face.Protocol && o.Backend == face.Backend && slices.ContainsFunc(pic.ServiceRanges, func(p netip.Prefix) bool { return p.Contains(o.Addr) }) {
			to := netip.AddrPortFrom(o.Addr, o.Port)
			return &hoststack.Frontend{Own: hoststack.Choice{Targets: []hoststack.Target{{AddrPort: to}}}, Keep: []netip.AddrPort{to}, Reserved: isReserved(face, pic)}
		}
	}
	return nil
}

// isReserved reports whether processes of this host have no use for a frontend's port.
func isReserved(face desired.Frontend, pic desired.Host) bool {
	return (face.Addr.IsUnspecified() || pic.IsNode(face.Addr)) && face.Backend != face.Port
}

// direct is a frontend that the host's stack serves.
func (f *frontends) direct(key model.ServiceKey, s *desired.Service, pools desired.Pools, face desired.Frontend, pic desired.Host) *hoststack.Frontend {
	v6 := face.Addr.Is6()
	choice := func(among desired.TrafficPolicy) (c hoststack.Choice) {
		pool := pools.Of(v6, among)
		for _, b := range s.Backends.All() {
			if pool.Has(b) {
				c.Targets = append(c.Targets, hoststack.Target{AddrPort: netip.AddrPortFrom(b.Addr(v6), b.PortFor(v6, face.Backend)), Location: locationOf(b)})
			}
		}
		c.Drop = len(c.Targets) == 0 && among == desired.TrafficLocalDrop && pools.HasBackends(v6)
		slices.SortFunc(c.Targets, hoststack.CompareTargets)
		c.Targets = slices.CompactFunc(c.Targets, func(a, b hoststack.Target) bool { return a.AddrPort == b.AddrPort })
		return c
	}
	front := &hoststack.Frontend{Own: choice(face.InternalPolicy), Sources: face.Sources, Affinity: s.Affinity, Reserved: isReserved(face, pic)}
	if front.Outside = front.Own; face.ExternalPolicy != face.InternalPolicy {
		front.Outside = choice(face.ExternalPolicy)
	}
	if slices.ContainsFunc(front.Outside.Targets, isExternal) {
		f.marked.foreign[key] = true
		front.Outside.Targets = slices.DeleteFunc(slices.Clone(front.Outside.Targets), func(t hoststack.Target) bool {
			closed := isExternal(t) && f.closed.has(face.Protocol, t.AddrPort, pic.Nodes)
			if closed {
				f.marked.notExposed[key] = true
			}
			return closed
		})
	}
	for _, b := range s.Backends.All() {
		if a := b.Addr(v6); a.IsValid() && b.Serving(v6).State != desired.BackendUnhealthy {
			front.Keep = append(front.Keep, netip.AddrPortFrom(a, b.PortFor(v6, face.Backend)))
		}
	}
	slices.SortFunc(front.Keep, netip.AddrPort.Compare)
	return front
}

// covers reports whether a service at an address would take it from a control plane
// machine: this host could no longer reach that, and not even learn that the service has
// gone. A cluster address is no machine's.
func (f *frontends) covers(a netip.Addr, pic desired.Host) bool {
	_, plane := slices.BinarySearchFunc(f.planes, a, netip.Addr.Compare)
	return plane && !pic.IsNode(a) && !slices.ContainsFunc(pic.ServiceRanges, func(p netip.Prefix) bool { return p.Contains(a) })
}

func isExternal(t hoststack.Target) bool { return t.Location == hoststack.External }

// locationOf is where a backend is.
func locationOf(b *desired.Backend) hoststack.Location {
	switch {
	case b.External():
		return hoststack.External
	case b.Local:
		return hoststack.Local
	}
	return hoststack.OtherHost
}

// isRouted reports whether the host's stack reaches the endpoints of a network.
func isRouted(id model.NetworkID, pic desired.Host) bool {
	n, ok := pic.Networks.Get(id)
	return ok && n.Routed
}
