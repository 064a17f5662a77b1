package pipeline

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Services for clients outside that ask by this host (docs/design/services.md, "From
// outside"): what the host's stack sends to an exposed virtual address is a packet of
// a client from ServiceConntrack on, in the zone of the domain's translations.

// markExternalLocal in ct_mark, beside markService, says that a connection's client is outside
// and came through this host.
const markExternalLocal = 4

// exposesServices reports whether the flows for these clients are there.
func (c Config) exposesServices() bool { return c.Host != 0 }

func (s Service) isExposed(c Config) bool { return s.Exposed && c.exposesServices() }

// exposedBase adds what these clients need whatever services there are.
func (l baseFlows) exposedBase() {
	if !l.c.exposesServices() {
		return
	}
	for typ := ndRouterSolicit; typ <= ndRedirect; typ++ {
		l.drop(ExternalSource, 300, nd(typ, origin(fromExternalLocal)), driver.DropSpoof)
	}
	toService := []of.Action{of.Set(regSrc, model.IdentityExternal), goTo(ServiceConntrack)}
	for _, a := range []netip.Addr{l.c.Private.Addr, l.c.Private.Addr6} { // on this host it is known
		if a.IsValid() {
			l.add(ExternalSource, 250, fromAddr(a, origin(fromExternalLocal)), toService...)
		}
	}
	behind := origin(fromRemoteBackend)
	l.drop(BackendReply, 0, nil, driver.DropUnknownSource)
	l.drop(Conntrack, 60, match(behind), driver.DropUnknownDest)
	l.drop(ConntrackState, 93, match(behind, of.State(of.StateTrk, of.StateRpl)), driver.DropUnknownDest)
	l.drop(ConntrackState, 93, match(behind, of.Masked(of.CtMark, of.Value{}, of.Uint(markExternalLocal|markHostStack))), driver.DropUnknownDest)
	for _, eth := range []of.Term{isIP, isIPv6} {
		if l.c.clientsByTunnel() {
			l.add(ExternalClient, 150, match(eth, isToRouterMAC), goTo(BackendReply))
		}
		// Tracking would take a request for a step of the connection.
		l.drop(Conntrack, 120, match(eth, behind, isProto(6), of.Masked(of.TCPFlags, of.Uint(2), of.Uint(0x12))), driver.DropInvalid)
		l.add(ExternalSource, 10, match(eth, origin(fromExternalLocal)), toService...)
		asks := match(eth, isService, origin(fromExternalLocal))
		l.add(ConntrackCommit, 13, match(append(asks, of.State(of.StateNew|of.StateTrk, 0))...), goTo(CountConnections), commitMarked(markService|markExternalLocal))
		// The client has come by another host before.
		l.add(ConntrackCommit, 13, match(append(asks, isExternalRemoteConn, of.State(of.StateTrk, of.StateNew))...), goTo(Relabel))
		l.add(Relabel, 20, match(eth, isService), commitMarked(markService|markExternalLocal))
	}
}

// repliesToExternal adds what gives answers to such clients to the host's stack, whatever MAC
// the backend has sent them to.
func repliesToExternal(l *list, c Config, d desired.Domain, zone uint16) {
	if !c.exposesServices() {
		return
	}
	for _, v6 := range []bool{false, true} {
		eth, _, _ := ethOf(v6)
		l.add(Output, 151, match(eth, inDomain(d), isReply, of.Masked(of.CtMark, of.Uint(markService|markExternalLocal), of.Uint(markService|markExternalLocal))),
			noteBackend(v6), of.SetField{Field: of.EthDst, Value: of.MAC(desired.RouterMAC)}, of.Set(regPort, c.Host), of.Set(regZone, zone), serviceConntrack(ServiceReply))
	}
}

// externalRequests turns the host's packets to a virtual address into a client's packets, and
// drops external ones from that address.
func (s Service) externalRequests(l *list, c Config, vip netip.Addr) {
	if c.clientsByTunnel() || c.exposesServices() {
		l.drop(ExternalSource, 100, fromAddr(vip, inDomain(s.Domain)), driver.DropSpoof)
	}
	if s.isExposed(c) {
		l.add(Classify, 110, toAddr(vip, of.Eq(of.InPort, c.Host)), routerToRouter(
			of.Set(regDomain, s.Domain), of.Set(regNetwork, s.Network), of.Set(regOrigin, fromExternalLocal),
			of.Set(regService, s.Number), of.Set(regZone, s.Zone), goTo(ExternalSource))...)
	}
}

// externalRequests adds the flows by which translated packets of these clients find an
// endpoint on any network of the domain; no hop is counted.
func (l networkFlows) externalRequests(mac model.MAC, there []of.Action, own ...netip.Addr) {
	for _, a := range own {
		if l.c.exposesServices() && l.n.Contains(a) && there != nil {
			to := []of.Action{of.Set(regNetwork, l.n.ID), of.SetField{Field: of.EthDst, Value: of.MAC(mac)}}
			l.add(Backend, 105, toAddr(a, domain(l.n), origin(fromExternalLocal)), append(to, there...)...)
		}
	}
}

// remoteBackendReplies adds that a remote endpoint answers such clients by its host's router.
func (l networkFlows) remoteBackendReplies(r *desired.Remote) {
	if !l.c.exposesServices() || !l.c.clientsByTunnel() || !r.VTEP.IsValid() || r.Identity == model.IdentityUnknown {
		return
	}
	on := Conntrack
	if l.c.routesNetwork(l.n) {
		on = ToNode
	}
	for _, a := range []netip.Addr{r.IPv4, r.IPv6} {
		if a.IsValid() {
			l.add(BackendReply, 100, fromAddr(a, network(l.n.ID), tunnelFrom(r.VTEP)),
				of.Set(regOrigin, fromRemoteBackend), of.Set(regSrc, r.Identity), of.Set(regDst, model.IdentityExternal), of.Set(regPort, l.c.Host), goTo(on))
		}
	}
}

// clientClass is who asks a service, and among whom is chosen for it.
type clientClass struct {
	who        []of.Term
	above      uint16 // how much its flows are before others'
	all        []choice
	among      desired.TrafficPolicy
	unanswered bool // there is no backend, and packets get no error
}

// matchPort is what it sends to a port.
func (x clientClass) matchPort(port desired.ServicePort) of.Match {
	return match(append(slices.Clone(x.who), isProto(int(port.Protocol)), of.Eq(dstPort(port.Protocol), port.Port))...)
}

// clientClasses are those who ask a service, self its own packets, where clients inside and
// outside may go to these backends.
func (s Service) clientClasses(c Config, choose *chooser, self []of.Term, inside, outside desired.TrafficPolicy) []clientClass {
	v6, all := choose.v6, choose.among(desired.TrafficCluster)
	ask := func(among desired.TrafficPolicy, above uint16, more ...of.Term) clientClass {
		x := clientClass{who: append(slices.Clone(self), more...), above: above, all: all}
		if among != desired.TrafficCluster && choose.pools.Of(v6, among) != choose.pools.Of(v6, desired.TrafficCluster) {
			if some := choose.among(among); !slices.Equal(some, all) {
				x.all, x.among = some, among
			}
			x.unanswered = among == desired.TrafficLocalDrop && choose.pools.HasBackends(v6)
		}
		return x
	}
	out := []clientClass{ask(inside, 0)}
	if !s.isExposed(c) {
		return out
	}
	if outside != inside {
		out = []clientClass{ask(inside, 0, origin(fromPort)), ask(outside, 0, origin(fromExternalLocal))}
	}
	own, src := c.Private.Addr, of.NwSrc
	if v6 {
		own, src = c.Private.Addr6, of.IPv6Src
	}
	if own.IsValid() && outside != desired.TrafficLocal { // means nothing on other hosts
		if x := ask(desired.TrafficLocal, 1, origin(fromExternalLocal), of.EqAddr(src, own)); x.among != desired.TrafficCluster {
			out = append(out, x)
		}
	}
	return out
}
