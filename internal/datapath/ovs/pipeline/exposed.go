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
// a client from translate on, in the zone of the domain's translations.

// forHost in ct_mark, beside marked, says of a connection that its client is outside
// and asked by this host.
const forHost = 4

// servicesOutside reports whether the flows for these clients are there.
func (c Config) servicesOutside() bool { return c.Host != 0 }

func (s Service) outside(c Config) bool { return s.Exposed && c.servicesOutside() }

// exposedBase adds what these clients need whatever services there are.
func (l baseFlows) exposedBase() {
	if !l.c.servicesOutside() {
		return
	}
	for typ := ndRouterSolicit; typ <= ndRedirect; typ++ {
		l.drop(Outside, 300, nd(typ, origin(fromStack)), driver.DropSpoof)
	}
	toService := []of.Action{of.Set(regSrc, model.IdentityExternal), goTo(Translate)}
	for _, a := range []netip.Addr{l.c.Private.Addr, l.c.Private.Addr6} { // on this host it is known
		if a.IsValid() {
			l.add(Outside, 250, fromAddr(a, origin(fromStack)), toService...)
		}
	}
	behind := origin(fromBehind)
	l.drop(Returned, 0, nil, driver.DropUnknownSource)
	l.drop(Track, 60, match(behind), driver.DropUnknownDest)
	l.drop(State, 93, match(behind, of.State(of.StateTrk, of.StateRpl)), driver.DropUnknownDest)
	l.drop(State, 93, match(behind, of.Masked(of.CtMark, of.Value{}, of.Uint(forHost|fromThisStack))), driver.DropUnknownDest)
	for _, eth := range []of.Term{isIP, isIPv6} {
		if l.c.clientsByTunnel() {
			l.add(Relayed, 150, match(eth, toItsMAC), goTo(Returned))
		}
		// Tracking would take a request for a step of the connection.
		l.drop(Track, 120, match(eth, behind, isProto(6), of.Masked(of.TCPFlags, of.Uint(2), of.Uint(0x12))), driver.DropInvalid)
		l.add(Outside, 10, match(eth, origin(fromStack)), toService...)
		asks := match(eth, isService, origin(fromStack))
		l.add(Commit, 13, match(append(asks, of.State(of.StateNew|of.StateTrk, 0))...), goTo(CountBegun), commitMarked(marked|forHost))
		// The client has come by another host before.
		l.add(Commit, 13, match(append(asks, isByTunnel, of.State(of.StateTrk, of.StateNew))...), goTo(Relabel))
		l.add(Relabel, 20, match(eth, isService), commitMarked(marked|forHost))
	}
}

// toStack adds what gives answers to such clients to the host's stack, whatever MAC
// the backend has sent them to.
func toStack(l *list, c Config, d desired.Domain, zone uint16) {
	if !c.servicesOutside() {
		return
	}
	for _, v6 := range []bool{false, true} {
		eth, _, _ := ethOf(v6)
		l.add(Output, 151, match(eth, inDomain(d), isAnswer, of.Masked(of.CtMark, of.Uint(marked|forHost), of.Uint(marked|forHost))),
			noteBackend(v6), of.SetField{Field: of.EthDst, Value: of.MAC(desired.RouterMAC)}, of.Set(regPort, c.Host), of.Set(regZone, zone), translate(Back))
	}
}

// fromOutside turns the host's packets to a virtual address into a client's packets, and
// drops external ones from that address.
func (s Service) fromOutside(l *list, c Config, vip netip.Addr) {
	if c.clientsByTunnel() || c.servicesOutside() {
		l.drop(Outside, 100, fromAddr(vip, inDomain(s.Domain)), driver.DropSpoof)
	}
	if s.outside(c) {
		l.add(Classify, 110, toAddr(vip, of.Eq(of.InPort, c.Host)), routerToRouter(
			of.Set(regDomain, s.Domain), of.Set(regNetwork, s.Network), of.Set(regOrigin, fromStack),
			of.Set(regService, s.Number), of.Set(regZone, s.Zone), goTo(Outside))...)
	}
}

// fromStackTo adds the flows by which translated packets of these clients find an
// endpoint on any network of the domain; no hop is counted.
func (l networkFlows) fromStackTo(mac model.MAC, there []of.Action, own ...netip.Addr) {
	for _, a := range own {
		if l.c.servicesOutside() && l.n.Contains(a) && there != nil {
			to := []of.Action{of.Set(regNetwork, l.n.ID), of.SetField{Field: of.EthDst, Value: of.MAC(mac)}}
			l.add(Backend, 105, toAddr(a, domain(l.n), origin(fromStack)), append(to, there...)...)
		}
	}
}

// behind adds that an endpoint elsewhere answers such clients by its host's router.
func (l networkFlows) behind(r *desired.Remote) {
	if !l.c.servicesOutside() || !l.c.clientsByTunnel() || !r.VTEP.IsValid() || r.Identity == model.IdentityUnknown {
		return
	}
	on := Track
	if l.c.routesNetwork(l.n) {
		on = ToNode
	}
	for _, a := range []netip.Addr{r.IPv4, r.IPv6} {
		if a.IsValid() {
			l.add(Returned, 100, fromAddr(a, network(l.n.ID), tunnelFrom(r.VTEP)),
				of.Set(regOrigin, fromBehind), of.Set(regSrc, r.Identity), of.Set(regDst, model.IdentityExternal), of.Set(regPort, l.c.Host), goTo(on))
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
	if !s.outside(c) {
		return out
	}
	if outside != inside {
		out = []clientClass{ask(inside, 0, origin(fromPort)), ask(outside, 0, origin(fromStack))}
	}
	own, src := c.Private.Addr, of.NwSrc
	if v6 {
		own, src = c.Private.Addr6, of.IPv6Src
	}
	if own.IsValid() && outside != desired.TrafficLocal { // means nothing on other hosts
		if x := ask(desired.TrafficLocal, 1, origin(fromStack), of.EqAddr(src, own)); x.among != desired.TrafficCluster {
			out = append(out, x)
		}
	}
	return out
}
