package conformance

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

var serviceWorldCount = flag.Int("worlds", 0, "how many random worlds RandomServices tries; 0 = as many as CI has time for")

// randomServices is a random world of services that changes while clients talk to
// them. Each answer of the data plane has to be the reference's, and neither may break
// what the rules of docs/design/services.md say in short (served.judge).
type randomServices struct {
	bench    *bench
	t        *testing.T
	r        *rand.Rand
	unusual  *rand.Rand // which packets are odd
	stays    bool       // the driver is not restarted
	seed     uint64
	world    uint64 // its number
	top      Topology
	w        *World
	pic      desired.Host     // as applied
	sctp     bool             // the driver serves it
	external []model.Endpoint // external backends; none = the driver reaches none
	plain    bool             // of a driver whose tracking is not the reference's: see Tracked
	single   bool             // no service has two backends, so who is chosen is known: see Chosen
	deleted  map[model.EndpointKey]bool
	split    map[model.TenantName]bool // tenants without a router
	shops    []*randomShop
	clients  []*serviceConn
	sport    *uint16
	history  []string // the latest changes and packets
}

// randomShop is a service, and who provides it while its endpoint is there.
type randomShop struct {
	of        desired.Service
	closed    bool // it is not there
	cleared   bool // while closed its addresses are there, as a deleted service's are for a minute
	providers []randomProvider
}

// mayBeCleared: with affinity, clients may stay with their backends beyond that or not.
func (s *randomShop) mayBeCleared() bool { return s.of.Affinity == 0 }

type randomProvider struct {
	e        model.Endpoint
	state    desired.BackendState
	nearness desired.Nearness
	port     uint16 // its own
	split    bool   // by IPv6 it is serving6
	serving6 desired.Serving
}

// Chosen and Tracked are parts of RandomServices. Chosen: the backend of a connection
// is the one that the reference chooses, and not just one that may be chosen. Tracked:
// tuples are used again, beside what is closed or denied, and by ICMP errors and
// fragments of what is not known.
const (
	Chosen  = "the backend that a service's slot has"
	Tracked = "a service's tuples that are used again"
)

// testRandomServices compares what becomes of random packets to and from the services
// of random worlds, while these change.
func testRandomServices(t *testing.T, h Harness) {
	t.Helper()
	top := Labelled(RoutedTopology())
	b, w := sending(t, h, top, Case{})
	if !b.drv.Capabilities().Services {
		t.Skip("the driver makes no services")
	}
	n, seed := *serviceWorldCount, Seed()
	if why := h.Differs[Tracked]; why != "" && n == 0 {
		t.Logf("%s: %s: the same worlds always; others with -worlds", Tracked, why)
		seed = 1
	}
	if n == 0 {
		if n = 32; h.Slow {
			n = 4
		}
	}
	foreign := b.withExternal(t, h, w)
	t.Logf("%d random worlds, which -seed %d repeats", n, seed)
	sport := uint16(20000)
	served, reached := 0, 0
	sctp := b.servesSCTP(t, w)
	for i := range n {
		x := newRandomServices(t, b, top, w)
		x.r, x.unusual = rand.New(rand.NewPCG(seed, uint64(i))), rand.New(rand.NewPCG(seed, 1<<32|uint64(i)))
		x.seed, x.world, x.sctp, x.sport, x.external = seed, uint64(i), sctp, &sport, foreign
		a, z := x.run()
		served, reached = served+a, reached+z
		x.restore()
	}
	if t.Logf("%d packets to and from services, %d of which came through", served, reached); reached < n {
		t.Errorf("of %d packets to and from services %d came through: that is no test", served, reached)
	}
}

// newRandomServices begins a world, with no connection of the one before.
func newRandomServices(t *testing.T, b *bench, top Topology, w *World) *randomServices {
	t.Helper()
	if err := w.Switch(Case{}); err != nil {
		t.Fatal(err)
	}
	b.apply(t, emptyState(1))
	return &randomServices{
		bench: b, t: t, top: top, w: w, plain: b.Differs[Tracked] != "", deleted: map[model.EndpointKey]bool{}, split: map[model.TenantName]bool{},
	}
}

// servesSCTP reports whether the driver takes ports of SCTP.
func (b *bench) servesSCTP(t testing.TB, w *World) bool {
	t.Helper()
	pic := w.Desired["h1"]
	n := w.Topology.Networks[0]
	s := &desired.Service{Key: model.ServiceKey{Tenant: n.Key.Tenant, Name: "sctp"}, Network: n.ID, IPv4: host4(n, 200), Ports: []desired.ServicePort{{Protocol: model.ProtoSCTP, Port: 9, Backend: 10}}}
	pic.Services = pic.Services.Set(s.Key, s)
	report, err := b.drv.Apply(t.Context(), pic)
	if err != nil {
		t.Fatalf("Apply() = %v", err)
	}
	return !slices.ContainsFunc(report.Problems, func(p driver.Problem) bool { return strings.Contains(p.Err.Error(), "132/9") })
}

// run tries one world; it returns how many packets were sent, and how many of them
// came through.
func (x *randomServices) run() (sent, through int) {
	x.begin()
	const rounds, packets = 6, 20
	for range rounds {
		for range 1 + x.r.IntN(3) {
			x.change()
		}
		x.applied()
		for _, c := range slices.Clone(x.clients) { // each change concerns some of them
			bound := c.bound
			if c.behind != nil && !x.plain && x.r.IntN(4) == 0 { // before its client
				x.sendReply(c)
			}
			if c.behind != nil && (!x.plain || c.known && !c.ended) {
				sent++
				x.sendLaterPacket(c)
			}
			c.ended = c.ended || x.plain && c.behind != nil && !bound
		}
		for range packets {
			sent++
			if x.packet() {
				through++
			}
		}
	}
	return sent, through
}

// restore puts the world back as it was.
func (x *randomServices) restore() {
	x.tell(func(c *compile.Compiler) {
		c.SetGlobal(x.top.Global)
		for _, t := range x.top.Tenants {
			c.SetTenant(t)
		}
		for _, e := range x.top.Endpoints {
			if x.deleted[e.Key] {
				c.SetEndpoint(e)
			}
		}
	})
}

func (x *randomServices) tell(fn func(*compile.Compiler)) {
	x.t.Helper()
	if err := x.w.Change(fn); err != nil {
		x.t.Fatal(err)
	}
}

func (x *randomServices) note(format string, args ...any) {
	x.history = append(x.history, fmt.Sprintf(format, args...))
}

// fail says what led to a difference.
func (x *randomServices) fail() {
	x.t.Helper()
	for _, key := range x.shops {
		s := x.desired(key, x.w.Desired["h1"])
		x.history = append(x.history, fmt.Sprintf("now: %s closed %v %s %s ports %v affinity %s inside %d", s.Key, key.closed, s.IPv4, s.IPv6, s.Ports, s.Affinity, s.InternalPolicy))
		for k, b := range s.Backends.All() {
			x.history = append(x.history, fmt.Sprintf("     %s %s %s state %d local %v near %d port %d, by IPv6 otherwise: %v %+v", k, b.IPv4, b.IPv6, b.State, b.Local, b.Near, b.Port, b.Split, b.Serving6))
		}
	}
	x.t.Fatalf("world %d of -seed %d, -worlds %d or more:\n%s", x.world, x.seed, x.world+1, strings.Join(x.history, "\n"))
}

// begin makes the world's mode, policies and services.
func (x *randomServices) begin() {
	x.single = x.bench.Differs[Chosen] != "" && x.r.IntN(2) == 0
	x.setMode()
	if x.r.IntN(2) == 0 {
		x.setPolicies()
	}
	for i := range 2 + x.r.IntN(4) {
		n := x.top.Networks[x.r.IntN(len(x.top.Networks))]
		if i == 0 || x.r.IntN(2) == 0 {
			n = x.top.Networks[0] // where most endpoints are
		}
		x.shops = append(x.shops, &randomShop{of: desired.Service{Key: model.ServiceKey{Tenant: n.Key.Tenant, Name: fmt.Sprint("shop", i)}, Network: n.ID}})
		x.fill(x.shops[i], n, i)
	}
}

// fill gives a service anything but its key and network.
func (x *randomServices) fill(s *randomShop, n model.Network, i int) {
	r := x.r
	at := byte(200 + i)
	if r.IntN(3) == 0 {
		at = 200 // another one's, perhaps
	}
	s.of.IPv4, s.of.IPv6 = host4(n, at), netip.Addr{}
	if n.Subnet6.IsValid() && r.IntN(4) > 0 {
		if s.of.IPv6 = host6(n, at); r.IntN(6) == 0 {
			s.of.IPv4 = netip.Addr{}
		}
	}
	if r.IntN(16) == 0 { // it is somebody's
		s.of.IPv4 = x.top.Endpoints[r.IntN(len(x.top.Endpoints))].IPv4
	}
	x.renumber(s)
	s.of.Affinity = one(r, 0, 0, time.Hour)
	s.of.InternalPolicy = one(r, desired.TrafficCluster, desired.TrafficCluster, desired.TrafficLocal, desired.TrafficLocalDrop, desired.TrafficNearest)
	s.providers = nil
	for _, e := range x.top.Endpoints {
		if e.Key.Network.Tenant != n.Key.Tenant || r.IntN(2) == 0 || e.Key.Network != n.Key && r.IntN(3) > 0 {
			continue
		}
		s.providers = append(s.providers, x.provider(e))
	}
	for _, e := range x.external {
		if r.IntN(4) == 0 {
			s.providers = append(s.providers, x.provider(e))
		}
	}
	if i := len(s.providers); x.single && i > 1 {
		i = r.IntN(i)
		s.providers = s.providers[i : i+1]
	}
	if r.IntN(10) == 0 {
		s.providers = nil
	}
}

func (x *randomServices) state() desired.BackendState {
	return one(x.r, desired.BackendActive, desired.BackendActive, desired.BackendActive, desired.BackendActive, desired.BackendDraining, desired.BackendUnhealthy, desired.BackendLeaving, desired.BackendLeaving)
}

// provider makes an endpoint a provider.
func (x *randomServices) provider(e model.Endpoint) randomProvider {
	split, serving6 := x.serving6()
	return randomProvider{e, x.state(), x.nearness(), one(x.r, uint16(0), 0, 0, 7000), split, serving6}
}

func (x *randomServices) nearness() desired.Nearness {
	if x.r.IntN(16) == 0 {
		return desired.NearUnknown
	}
	return one(x.r, desired.NearFar, desired.NearZone, desired.NearHost)
}

// serving6 says how a backend serves IPv6 where that is otherwise than IPv4.
func (x *randomServices) serving6() (split bool, s desired.Serving) {
	if x.r.IntN(4) > 0 {
		return false, s
	}
	return true, desired.Serving{State: x.state(), Nearness: x.nearness(), Port: one(x.r, uint16(0), 7001)}
}

// renumber gives a service other ports.
func (x *randomServices) renumber(s *randomShop) {
	s.of.Ports = nil
	protocols := []model.Protocol{model.ProtoTCP, model.ProtoTCP, model.ProtoUDP}
	if x.sctp {
		protocols = append(protocols, model.ProtoSCTP)
	}
	for range 1 + x.r.IntN(4) {
		p := desired.ServicePort{Protocol: one(x.r, protocols...), Port: one(x.r, uint16(53), 80, 81, 443), Backend: one(x.r, uint16(53), 80, 8080, 9000)}
		if _, there := s.of.PortOf(p.Protocol, p.Port); !there {
			s.of.Ports = append(s.of.Ports, p)
		}
	}
	slices.SortFunc(s.of.Ports, desired.CompareServicePorts)
}

// desired is a service as it is in a desired state, with the providers that are there.
func (x *randomServices) desired(s *randomShop, pic desired.Host) *desired.Service {
	out := s.of
	if s.closed {
		out.Ports = nil
		return &out
	}
	own, _ := pic.Networks.Get(out.Network)
	for _, p := range s.providers {
		if p.e.Host == "" {
			out.Backends = out.Backends.Set(p.e.Key, &desired.Backend{IPv4: p.e.IPv4, IPv6: p.e.IPv6, State: p.state, Near: p.nearness, Port: p.port, Split: p.split, Serving6: p.serving6})
			continue
		}
		n := x.top.Network(p.e.Key.Network)
		in, ok := pic.Networks.Get(n.ID)
		if !ok || own == nil || in.Domain() != own.Domain() || x.deleted[p.e.Key] {
			continue
		}
		b := &desired.Backend{Network: n.ID, IPv4: p.e.IPv4, IPv6: p.e.IPv6, Identity: p.e.Identity, Local: p.e.Host == "h1", State: p.state, Near: p.nearness, Port: p.port, Split: p.split, Serving6: p.serving6}
		if !b.Local && n.Encap == model.EncapVXLAN {
			b.VTEP = x.top.vtep(p.e.Host)
		}
		out.Backends = out.Backends.Set(p.e.Key, b)
	}
	return &out
}

// applied applies the world as it is now.
func (x *randomServices) applied() {
	x.t.Helper()
	pic := x.w.Desired["h1"]
	for _, s := range x.shops {
		if _, there := pic.Networks.Get(s.of.Network); there && (!s.closed || s.cleared) {
			pic.Services = pic.Services.Set(s.of.Key, x.desired(s, pic))
		}
	}
	x.pic = pic
	x.bench.apply(x.t, pic)
	for _, c := range x.clients {
		c.forget(x)
	}
}

// change changes something of the world.
func (x *randomServices) change() {
	r := x.r
	s, c := x.shops[r.IntN(len(x.shops))], &serviceConn{}
	if len(x.clients) > 0 { // it concerns a connection, perhaps
		c = one(r, x.clients...)
		if i := slices.IndexFunc(x.shops, func(s *randomShop) bool { return s.of.Key == c.service }); i >= 0 && r.IntN(3) > 0 {
			s = x.shops[i]
		}
	}
	n := x.networkOf(s)
	switch r.IntN(16) {
	case 0:
		x.setPolicies()
	case 1:
		x.setMode()
	case 2:
		x.note("%s is another one", s.of.Key)
		x.fill(s, n, slices.Index(x.shops, s))
	case 3, 4:
		s.closed, s.cleared = !s.closed, s.mayBeCleared() && r.IntN(2) == 0
		x.note("%s closed: %v, its addresses stay: %v", s.of.Key, s.closed, s.cleared)
	case 5:
		x.note("%s made again", s.of.Key) // it is gone for a moment
		s.closed, s.cleared = true, s.mayBeCleared() && r.IntN(2) == 0
		x.applied()
		s.closed = false
	case 6:
		was := s.of
		if x.renumber(s); r.IntN(3) == 0 && was.IPv4.IsValid() && was.IPv6.IsValid() {
			s.of.IPv4, s.of.Ports = netip.Addr{}, was.Ports
		}
		x.note("%s is at %s with ports %v", s.of.Key, s.of.IPv4, s.of.Ports)
		if r.IntN(2) == 0 { // for a moment
			x.applied()
			s.of = was
		}
	case 7, 8, 9, 10:
		if len(s.providers) > 0 {
			p := &s.providers[r.IntN(len(s.providers))]
			if i := slices.IndexFunc(s.providers, func(p randomProvider) bool { return p.e.Key == c.by.Key }); i >= 0 {
				p = &s.providers[i]
			}
			if p.state = one(r, desired.BackendActive, desired.BackendDraining, desired.BackendUnhealthy, desired.BackendLeaving); r.IntN(3) == 0 {
				*p = x.provider(p.e)
			}
			x.note("%s of %s is another one: %+v", p.e.Key, s.of.Key, *p)
		}
	case 11:
		if i := len(s.providers); i > 0 {
			i = r.IntN(i)
			x.note("%s provides %s no more", s.providers[i].e.Key, s.of.Key)
			s.providers = slices.Delete(slices.Clone(s.providers), i, i+1)
		}
	case 12:
		e := x.top.Endpoints[r.IntN(len(x.top.Endpoints))]
		if e.Key.Network == n.Key && (!x.single || len(s.providers) == 0) && !slices.ContainsFunc(s.providers, func(p randomProvider) bool { return p.e.Key == e.Key }) {
			x.note("%s provides %s", e.Key, s.of.Key)
			s.providers = append(slices.Clone(s.providers), x.provider(e))
		}
	case 13:
		e := x.top.Endpoints[r.IntN(len(x.top.Endpoints))]
		if of := one(r, e, c.client, c.by); of.Host != "" {
			e = of
		}
		x.toggleEndpoint(e)
		if r.IntN(3) == 0 { // it is another one, of the same addresses
			x.applied()
			x.toggleEndpoint(e)
		}
	case 14:
		x.toggleTenantRecord(x.top.Tenants[r.IntN(len(x.top.Tenants))])
	case 15:
		if x.stays {
			return
		}
		x.note("the driver starts anew")
		if r.IntN(2) == 0 { // perhaps with another desired state
			x.bench.restart(x.t)
			return
		}
		x.applied()
		x.bench.restartsSame(x.t, x.pic)
	}
}

func (x *randomServices) networkOf(s *randomShop) model.Network {
	return x.top.Networks[slices.IndexFunc(x.top.Networks, func(n model.Network) bool { return n.ID == s.of.Network })]
}

// setMode switches forwarding mode and ARP mode.
func (x *randomServices) setMode() {
	g := x.top.Global
	g.FwdMode, g.ArpMode = one(x.r, model.FwdBridge, model.FwdRouting), one(x.r, model.ArpProxy, model.ArpFlood)
	x.note("mode %s, %s", g.FwdMode, g.ArpMode)
	x.tell(func(c *compile.Compiler) { c.SetGlobal(g) })
}

// toggleEndpoint lets an endpoint go, or come again.
func (x *randomServices) toggleEndpoint(e model.Endpoint) {
	flip(x, x.deleted, e.Key, (*compile.Compiler).DeleteEndpoint, func(c *compile.Compiler) { c.SetEndpoint(e) })
}

// toggleTenantRecord takes a tenant's record, and so its router, out of the cluster, or puts it
// back.
func (x *randomServices) toggleTenantRecord(t model.Tenant) {
	flip(x, x.split, t.Name, (*compile.Compiler).DeleteTenant, func(c *compile.Compiler) { c.SetTenant(t) })
}

// flip takes a record out of the cluster, or puts it back; gone says which are out.
func flip[K comparable](x *randomServices, gone map[K]bool, k K, remove func(*compile.Compiler, K), put func(*compile.Compiler)) {
	x.note("%v gone: %v", k, !gone[k])
	gone[k] = !gone[k]
	x.tell(func(c *compile.Compiler) {
		if gone[k] {
			remove(c, k)
		} else {
			put(c)
		}
	})
}

// serviceAt is the service that has an address in a network's domain, as the desired state says.
func serviceAt(pic desired.Host, n *desired.Network, a netip.Addr) *desired.Service {
	same := func(id model.NetworkID) bool {
		of, ok := pic.Networks.Get(id)
		return ok && of.Domain() == n.Domain()
	}
	for _, p := range pic.Ports.All() {
		if (p.IPv4 == a || p.IPv6 == a) && same(p.Network) {
			return nil // it is an endpoint's
		}
	}
	for _, r := range pic.Remotes.All() {
		if (r.IPv4 == a || r.IPv6 == a) && same(r.Network) {
			return nil
		}
	}
	var has *desired.Service
	for _, s := range pic.Services.All() {
		if same(s.Network) && (s.IPv4 == a || s.IPv6 == a) && (has == nil || s.Key.String() < has.Key.String()) {
			has = s
		}
	}
	return has
}
