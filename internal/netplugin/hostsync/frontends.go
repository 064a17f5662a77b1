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

// frontends follows what the host's own stack does for services at addresses that they
// share, which Kubernetes' are: whom this host's processes and clients outside are led
// to. A change costs what differs.
type frontends struct {
	out           *hoststack.Frontends
	sockets       *sockets
	last          desired.Map[model.ServiceKey, *desired.Service]
	nodes         desired.Map[netip.Addr, struct{}]
	hosts         desired.Map[netip.Addr, netip.Addr] // addresses of machines
	self          netip.Addr                          // this one's tunnel endpoint
	routed        []netip.Prefix
	claims        map[hoststack.FrontendAddr]map[model.ServiceKey]*hoststack.Frontend
	ours          map[model.ServiceKey][]hoststack.FrontendAddr // what a service claims
	bypassed      map[model.ServiceKey]bool                     // services with backends that this host's stack does not reach
	closed        controlPlanePorts
	foreign       map[model.ServiceKey]bool // services with backends that are no endpoints
	notExposed    map[model.ServiceKey]bool // of them, to the control plane or tunnels: clients outside are not led there
	planes        []netip.Addr              // of machines that the control plane is on
	ranges        []netip.Prefix            // of services' cluster addresses
	taken         map[model.ServiceKey]bool // services at such addresses: they get no packets
	seen          desired.Map[model.ServiceKey, *desired.Service]
	withFrontends int  // of seen, with faces
	missing       bool // there are such, and no way to their backends
	made          bool // the host's stack is as was last asked for
}

const frontsObject = "services of Kubernetes from this host"

// newFrontends gets the UDP port of the hosts' tunnels.
func newFrontends(log *slog.Logger, repairs hoststack.Repairs, tunnel uint16, own hostservices.Config) *frontends {
	return &frontends{
		sockets: newSockets(own),
		closed:  controlPlanePorts{tunnel: tunnel},
		out:     hoststack.NewFrontends(log, repairs), claims: map[hoststack.FrontendAddr]map[model.ServiceKey]*hoststack.Frontend{}, ours: map[model.ServiceKey][]hoststack.FrontendAddr{},
		bypassed: map[model.ServiceKey]bool{}, foreign: map[model.ServiceKey]bool{}, notExposed: map[model.ServiceKey]bool{}, taken: map[model.ServiceKey]bool{},
	}
}

// follow notes a picture and tells whether this host's stack serves: while the pods'
// network is native, so that it reaches pods at their own addresses. control is what
// containers are kept from, planes are the machines that it is on.
func (f *frontends) follow(pic desired.Host, n routedNetworks, control *hoststack.Control, planes []netip.Addr) bool {
	now, nodes := pic.Services, pic.NodeAddrs
	if !n.cluster {
		now, nodes = desired.Map[model.ServiceKey, *desired.Service]{}, desired.Map[netip.Addr, struct{}]{}
	}
	closed := f.closed.follow(control)
	for range pic.Nodes.Diff(f.hosts) {
		closed = true
		break
	}
	if !slices.Equal(f.routed, n.subnets) || !slices.Equal(f.planes, planes) || !slices.Equal(f.ranges, pic.ServiceRanges) {
		f.routed, f.planes, f.ranges = n.subnets, planes, pic.ServiceRanges
		for key, s := range f.last.All() {
			f.setWanted(key, s, pic)
		}
	} else if closed {
		for key := range maps.Clone(f.foreign) {
			s, _ := f.last.Get(key)
			f.setWanted(key, s, pic)
		}
	}
	for c := range now.Diff(f.last) {
		f.setWanted(c.Key, c.New, pic)
	}
	for c := range nodes.Diff(f.nodes) {
		f.out.SetNode(c.Key, c.Has)
		f.sockets.setNode(c.Key, c.Has)
	}
	for c := range pic.Services.Diff(f.seen) {
		if c.Had && len(c.Old.Frontends) > 0 {
			f.withFrontends--
		}
		if c.Has && len(c.New.Frontends) > 0 {
			f.withFrontends++
		}
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
	f.last, f.nodes, f.seen, f.missing = now, nodes, pic.Services, !n.cluster && f.withFrontends > 0
	return n.cluster && f.out.Len() > 0
}

// apply makes the host's stack so.
func (f *frontends) apply(ctx context.Context, at hoststack.InterfaceConfig, look bool) (problems []compile.Problem) {
	err := f.out.Apply(ctx, at, look)
	if f.made = err == nil; !f.made {
		problems = append(problems, compile.Problem{Object: frontsObject, Text: err.Error()})
	}
	if err := f.sockets.apply(ctx, at.Device != "", look); err != nil {
		problems = append(problems, compile.Problem{Object: frontsObject, Text: err.Error()})
	}
	if f.missing {
		problems = append(problems, compile.Problem{Object: frontsObject, Text: model.NoEffectPrefix +
			"node ports lead nowhere for this host's processes and clients outside, and cluster addresses only as far as the data plane takes them: network " + clusterNetwork.String() + " is not native; kube-proxy has to serve them"})
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
	some(frontsObject, f.bypassed, "this host's processes and clients outside are not led to backends on networks that are not native")
	some("services of Kubernetes at addresses of the control plane", f.taken, "they do not work at addresses of machines with netmasters, the store or netplugins")
	some("services of Kubernetes before the control plane", f.notExposed, "clients outside are not led to backends that are the control plane (netmasters, the store, inspection of netplugins) or the hosts' tunnels")
	return problems
}

// setWanted notes the frontends that a service (nil = none) wants in the host's stack. Of
// services that want the same place, the first by key has it.
func (f *frontends) setWanted(key model.ServiceKey, s *desired.Service, pic desired.Host) {
	was := f.ours[key]
	delete(f.ours, key)
	delete(f.bypassed, key)
	delete(f.foreign, key)
	delete(f.notExposed, key)
	delete(f.taken, key)
	wants := map[hoststack.FrontendAddr]*hoststack.Frontend{}
	if s != nil && s.Exposed && len(s.Frontends) > 0 {
		wants = f.frontendsOf(key, s, pic)
	}
	for _, at := range was {
		if wants[at] == nil {
			if delete(f.claims[at], key); len(f.claims[at]) == 0 {
				delete(f.claims, at)
			}
			f.decide(at)
		}
	}
	for at, front := range wants {
		if f.claims[at] == nil {
			f.claims[at] = map[model.ServiceKey]*hoststack.Frontend{}
		}
		f.claims[at][key] = front
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
	f.out.Set(at, f.claims[at][first])
	f.sockets.set(at, f.claims[at][first])
}

// frontendsOf are the fronts of a service's faces.
func (f *frontends) frontendsOf(key model.ServiceKey, s *desired.Service, pic desired.Host) map[hoststack.FrontendAddr]*hoststack.Frontend {
	out := map[hoststack.FrontendAddr]*hoststack.Frontend{}
	pools := s.Pools()
	for _, face := range s.Frontends {
		if f.covers(face.Addr, pic) {
			f.taken[key] = true
			continue
		}
		v6 := face.Addr.Is6()
		choice := func(among desired.TrafficPolicy) (c hoststack.Choice) {
			pool, somebody := pools.Of(v6, among), false
			for _, b := range s.Backends.All() {
				if !pool.Has(b) {
					continue
				}
				somebody = true
				if f.reaches(b, pic) {
					c.Targets = append(c.Targets, hoststack.Target{AddrPort: netip.AddrPortFrom(b.Addr(v6), b.PortFor(v6, face.Backend)), Location: locationOf(b)})
				} else {
					f.bypassed[key] = true
				}
			}
			c.Drop = !somebody && among == desired.TrafficLocalDrop && pools.HasBackends(v6)
			slices.SortFunc(c.Targets, hoststack.CompareTargets)
			c.Targets = slices.CompactFunc(c.Targets, func(a, b hoststack.Target) bool { return a.AddrPort == b.AddrPort })
			return c
		}
		front := &hoststack.Frontend{Own: choice(face.InternalPolicy), Sources: face.Sources, Affinity: s.Affinity, Reserved: face.Addr.IsUnspecified() && face.Backend != face.Port}
		if front.Outside = front.Own; face.ExternalPolicy != face.InternalPolicy {
			front.Outside = choice(face.ExternalPolicy)
		}
		if slices.ContainsFunc(front.Outside.Targets, isExternal) {
			f.foreign[key] = true
			front.Outside.Targets = slices.DeleteFunc(slices.Clone(front.Outside.Targets), func(t hoststack.Target) bool {
				closed := isExternal(t) && f.closed.has(face.Protocol, t.AddrPort, pic.Nodes)
				if closed {
					f.notExposed[key] = true
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
		at := face.Addr
		if pic.IsNode(at) { // this one's: who is exposed has faces at no other's
			at = desired.AnyNode(at)
		}
		out[hoststack.FrontendAddr{Addr: at, Proto: face.Protocol, Port: face.Port}] = front
	}
	return out
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

// reaches reports whether the host's stack reaches a backend at its own address.
func (f *frontends) reaches(b *desired.Backend, pic desired.Host) bool {
	if b.External() {
		return true
	}
	n, ok := pic.Networks.Get(b.Network)
	return ok && n.Routed
}
