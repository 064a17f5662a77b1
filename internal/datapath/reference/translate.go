package reference

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// tupleOf is the flow of a packet of a service's client, before its translation or
// behind it: with ports, and in its network's domain.
func tupleOf(n *desired.Network, p *Packet) flow {
	return flow{n.Domain(), p.Src, p.Dst, p.Proto, p.SrcPort, p.DstPort}
}

// translation is one connection of a client to a service.
type translation struct {
	original, behind flow // as the client sends it, and as it goes to the backend
	service          model.ServiceKey
	backend          model.EndpointKey
	foreign          bool   // the backend is no endpoint
	client           string // the local port; "" = the host's own
	network          model.NetworkID
	clientMAC        model.MAC // who they were when it began
	backendMAC       model.MAC
	counted          driver.ServiceOf
	ended            uint8 // ends of a TCP connection that have been seen, see note
}

const (
	clientEnded = 1 << iota
	backendEnded
)

// note follows the end of a TCP connection by a packet of it that was let through;
// by is clientEnded or backendEnded.
func (tr *translation) note(p *Packet, by uint8) {
	switch {
	case p.Proto != model.ProtoTCP || !p.hasPorts():
	case by == clientEnded && request(p):
		tr.ended = 0
	case p.TCPFlags&FlagRST != 0:
		tr.ended = clientEnded | backendEnded
	case p.TCPFlags&FlagFIN != 0:
		tr.ended |= by
	}
}

// closed reports whether both ends have ended the connection, or one has reset it.
func (tr *translation) closed() bool { return tr.ended == clientEnded|backendEnded }

// outside reports whether the client is the host, or beyond it.
func (tr *translation) outside() bool { return tr.client == "" }

// relayed reports whether the backend answers this host in place of a client outside.
func (tr *translation) relayed() bool { return tr.foreign && tr.outside() }

// hairpin reports whether the client is its own backend.
func (tr *translation) hairpin() bool { return tr.original.src == tr.behind.dst }

type affineKey struct {
	service model.ServiceKey
	client  netip.Addr
}

type affine struct {
	backend model.EndpointKey
	last    time.Time // new connection
}

// nat is one host's table of translations, and what clients stay with.
type nat struct {
	original, behind map[flow]*translation
	frags            map[fragKey]*translation
	byService        groups[model.ServiceKey, *translation]
	byAddr           groups[netip.Addr, *translation] // clients' and backends'
	affine           map[affineKey]affine
	clients          groups[model.ServiceKey, affineKey] // of affine
	stats            map[driver.ServiceOf]*driver.ServiceStats
	now              func() time.Time
}

func newNAT() *nat {
	return &nat{
		original: map[flow]*translation{}, behind: map[flow]*translation{}, frags: map[fragKey]*translation{},
		byService: groups[model.ServiceKey, *translation]{}, byAddr: groups[netip.Addr, *translation]{},
		affine: map[affineKey]affine{}, clients: groups[model.ServiceKey, affineKey]{}, stats: map[driver.ServiceOf]*driver.ServiceStats{}, now: time.Now,
	}
}

func (x *nat) add(tr *translation) {
	x.original[tr.original], x.behind[tr.behind] = tr, tr
	x.byService.add(tr.service, tr)
	x.byAddr.add(tr.original.src, tr)
	x.byAddr.add(tr.behind.dst, tr)
	x.of(tr).Total++
}

func (x *nat) remove(tr *translation) {
	delete(x.original, tr.original)
	delete(x.behind, tr.behind)
	x.byService.remove(tr.service, tr)
	x.byAddr.remove(tr.original.src, tr)
	x.byAddr.remove(tr.behind.dst, tr)
	for k, of := range x.frags {
		if of == tr {
			delete(x.frags, k)
		}
	}
}

// fragment follows the fragments of a datagram that is of a translation.
func (x *nat) fragment(n *desired.Network, p *Packet, tr *translation) {
	if p.Frag == nil {
		return
	}
	k := fragOf(n, p)
	switch {
	case !p.Frag.More:
		delete(x.frags, k)
	case p.Frag.Offset == 0:
		x.frags[k] = tr
	}
}

func fragOf(n *desired.Network, p *Packet) fragKey {
	return fragKey{n.Domain(), p.Src, p.Dst, p.Proto, p.Frag.ID}
}

// affinityBackend returns the backend that a client of a service stays with.
func (x *nat) affinityBackend(s *desired.Service, client netip.Addr) (model.EndpointKey, bool) {
	a, ok := x.affine[affineKey{s.Key, client}]
	return a.backend, ok && x.now().Sub(a.last) < s.Affinity
}

// hasAffinityRoom reports whether a client of a service can be remembered; others whose time is over
// make room.
func (x *nat) hasAffinityRoom(s *desired.Service, client netip.Addr) bool {
	if _, known := x.affine[affineKey{s.Key, client}]; known || len(x.clients[s.Key]) < desired.MaxAffine {
		return true
	}
	for old := range x.clients[s.Key] {
		if x.now().Sub(x.affine[old].last) >= s.Affinity {
			delete(x.affine, old)
			x.clients.remove(s.Key, old)
		}
	}
	return len(x.clients[s.Key]) < desired.MaxAffine
}

// setAffinity notes to whom a client's new connection went, if there is room.
func (x *nat) setAffinity(s *desired.Service, client netip.Addr, backend model.EndpointKey) {
	if s.Affinity == 0 || !x.hasAffinityRoom(s, client) {
		return
	}
	k := affineKey{s.Key, client}
	x.affine[k] = affine{backend, x.now()}
	x.clients.add(s.Key, k)
}

func (x *nat) forgetClients(k model.ServiceKey) {
	for a := range x.clients[k] {
		delete(x.affine, a)
	}
	delete(x.clients, k)
}

// toBackend translates a client's packet, or an error of the client's about a packet
// that it got.
func (tr *translation) toBackend(p *Packet) *Packet {
	q := *p
	q.Src, q.Dst = tr.behind.src, tr.behind.dst
	if q.hasPorts() {
		q.SrcPort, q.DstPort = tr.behind.srcPort, tr.behind.dstPort
	}
	if p.Inner != nil {
		in := *p.Inner
		in.Src, in.SrcPort, in.Dst, in.DstPort = tr.behind.dst, tr.behind.dstPort, tr.behind.src, tr.behind.srcPort
		q.Inner = &in
	}
	return &q
}

// toClient translates a packet to the client, or an error about one that the client
// sent; the sender of an error keeps its address unless it is the backend.
func (tr *translation) toClient(p *Packet) *Packet {
	q := *p
	q.Dst = tr.original.src
	if p.Src == tr.behind.dst {
		q.Src = tr.original.dst
	}
	if q.hasPorts() {
		q.SrcPort, q.DstPort = tr.original.dstPort, tr.original.srcPort
	}
	if p.Inner != nil {
		in := *p.Inner
		in.Src, in.SrcPort, in.Dst, in.DstPort = tr.original.src, tr.original.srcPort, tr.original.dst, tr.original.dstPort
		q.Inner = &in
	}
	return &q
}

// hasPorts reports whether the packet shows the ports of its protocol.
func (p *Packet) hasPorts() bool {
	return p.Proto.HasPorts() && (p.Frag == nil || p.Frag.Offset == 0)
}

// keeps reports whether a translation goes on when its service has changed. When one
// of its addresses has, addressChanged decides.
func (t *tables) keeps(tr *translation, s *desired.Service) bool {
	if s == nil || tr.outside() && !s.Exposed {
		return false
	}
	frontend, ok := s.FrontendAt(tr.original.dst, t.isNode(tr.original.dst), tr.original.proto, tr.original.dstPort)
	if !ok {
		return false
	}
	if tr.original.proto != model.ProtoUDP {
		return true
	}
	b, ok := s.Backends.Get(tr.backend)
	v6 := tr.original.dst.Is6()
	return ok && b.Serving(v6).State != desired.BackendUnhealthy && b.PortFor(v6, frontend.Backend) == tr.behind.dstPort
}

// endTranslation drops a translation and the connection behind it.
func (k *kernel) endTranslation(tr *translation) {
	k.nat.remove(tr)
	if n := k.tables.networks[tr.network]; n != nil {
		k.conns.removeConn(tracked(n, tr.behind))
	}
}

// serviceChanged ends the translations that do not go on with a service as it is
// now, and those of services that have lost an address to it.
func (k *kernel) serviceChanged(key model.ServiceKey) {
	s := k.objects.services[key]
	again := map[model.ServiceKey]struct{}{key: {}}
	if s == nil {
		k.nat.forgetClients(key)
		maps.DeleteFunc(k.nat.stats, func(of driver.ServiceOf, _ *driver.ServiceStats) bool { return of.Service == key })
	} else {
		for _, a := range append(frontendAddrs(s), s.IPv4, s.IPv6) {
			maps.Copy(again, k.tables.vips[a])
			if a.IsValid() {
				maps.Copy(again, k.tables.servicesAt(a))
			}
		}
	}
	for key := range again {
		for tr := range k.nat.byService[key] {
			if !k.tables.keeps(tr, k.objects.services[key]) || k.lostAddress(tr) {
				k.endTranslation(tr)
			}
		}
	}
}

// lostAddress reports whether a translation's virtual address is another service's now.
func (k *kernel) lostAddress(tr *translation) bool {
	n := k.tables.networks[tr.network]
	if n == nil {
		return false // the network's end is its end
	}
	has := k.tables.serviceAt(n, tr.original.dst)
	if has == nil {
		has, _ = k.tables.frontendAt(n, tr.original.dst, tr.original.proto, tr.original.dstPort)
	}
	return has != nil && has.Key != tr.service
}

// addressChanged ends the translations of who has lost an address.
func (k *kernel) addressChanged(a netip.Addr) {
	for tr := range k.nat.byAddr[a] {
		n := k.tables.networks[tr.network]
		if n == nil || n.Domain() != tr.original.domain {
			k.endTranslation(tr)
			continue
		}
		client := k.tables.stations.byAddr(n, tr.original.src)
		if tr.outside() && client.known() || !tr.outside() && (client.port == nil || client.port.IfName != tr.client || client.mac() != tr.clientMAC) || k.tables.stations.byAddr(n, tr.behind.dst).mac() != tr.backendMAC {
			k.endTranslation(tr)
		}
	}
}

// serviceAt is the service that has an address in a network's domain; of several
// the one with the smallest key, unless the address is an endpoint's.
func (t *tables) serviceAt(n *desired.Network, a netip.Addr) *desired.Service {
	var keys []model.ServiceKey
	for key := range t.vips[a] {
		if s := t.services[key]; s != nil && t.networks[s.Network] != nil && t.networks[s.Network].Domain() == n.Domain() {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 || t.stations.byAddr(n, a).known() {
		return nil
	}
	return t.services[slices.MinFunc(keys, func(a, b model.ServiceKey) int { return cmp.Compare(a.String(), b.String()) })]
}

// hasServices reports whether some service is in a network's domain.
func (t *tables) hasServices(n *desired.Network) bool {
	for _, s := range t.services {
		if of := t.networks[s.Network]; of != nil && of.Domain() == n.Domain() {
			return true
		}
	}
	return false
}

func (t *tables) setService(old, now *desired.Service) {
	if old != nil {
		t.vips.remove(old.IPv4, old.Key)
		t.vips.remove(old.IPv6, old.Key)
		for _, a := range frontendAddrs(old) {
			t.frontends.remove(a, old.Key)
		}
	}
	if now != nil {
		for _, a := range []netip.Addr{now.IPv4, now.IPv6} {
			if a.IsValid() {
				t.vips.add(a, now.Key)
			}
		}
		for _, a := range frontendAddrs(now) {
			t.frontends.add(a, now.Key)
		}
	}
}

// forgetTranslations empties the table of translations, and who stays with whom.
func (k *kernel) forgetTranslations() {
	now := k.nat.now
	k.nat = newNAT()
	k.nat.now = now
}

// of are the counts of who the translation is between.
func (x *nat) of(tr *translation) *driver.ServiceStats {
	s := x.stats[tr.counted]
	if s == nil {
		s = &driver.ServiceStats{}
		x.stats[tr.counted] = s
	}
	return s
}

// countOut and countIn note and count a packet that a client sent, or gets.
func (x *nat) countOut(tr *translation, p *Packet) {
	tr.note(p, clientEnded)
	s := x.of(tr)
	s.PacketsOut++
	s.BytesOut += p.size()
}

func (x *nat) countIn(tr *translation, p *Packet) {
	tr.note(p, backendEnded)
	s := x.of(tr)
	s.PacketsIn++
	s.BytesIn += p.size()
}

// serviceStats returns what is counted of services, with the connections that live.
func (k *kernel) serviceStats() map[driver.ServiceOf]driver.ServiceStats {
	out := map[driver.ServiceOf]driver.ServiceStats{}
	for of, s := range k.nat.stats {
		out[of] = *s
	}
	for _, tr := range k.nat.original {
		s := out[tr.counted]
		s.Connections++
		out[tr.counted] = s
	}
	return out
}
