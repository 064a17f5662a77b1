package pipeline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// How backends are chosen for new connections: groups, and the flows that lead there.

// GroupOf names one of a service's groups: its choice for a port and a family.
type GroupOf struct {
	Service  model.ServiceKey
	Protocol model.Protocol
	Port     uint16
	V6       bool
	Pieces   bool // for fragments, which do not show their ports
	Among    desired.TrafficPolicy
	Backends bool // Port is the backends': all frontends that lead there choose by it
}

// Number is the number that a group would like to have.
func (g GroupOf) Number() uint32 {
	text := fmt.Sprint(g.Service, " ", g.Protocol, " ", g.Port, " ", g.V6, " ", g.Pieces, " ", g.Among)
	if g.Backends {
		text += " backends"
	}
	return NumberOf(text)
}

// GroupNumber is what a flow that leads to a group has in its cookie, so that who
// reads flows back knows what the group was made of.
func GroupNumber(g of.Group) uint32 { return NumberOf(g.Body()) }

// choice is a backend that a service chooses among.
type choice struct {
	*desired.Backend
	id uint32 // of its buckets
}

// chooser finds whom a service chooses among, for one family.
type chooser struct {
	of    *desired.Service
	v6    bool
	pools desired.Pools
	found map[desired.TrafficPolicy][]choice
}

func newChooser(s *desired.Service, v6 bool) *chooser {
	return &chooser{s, v6, s.Pools(), map[desired.TrafficPolicy][]choice{}}
}

// among are the backends that new connections may go to, sorted by number.
func (s *chooser) among(policy desired.TrafficPolicy) []choice {
	if found, known := s.found[policy]; known {
		return found
	}
	var keys []model.EndpointKey
	for k := range s.of.Pool(s.v6, policy) {
		keys = append(keys, k)
	}
	if len(keys) > of.MaxBuckets {
		slices.SortFunc(keys, func(a, b model.EndpointKey) int { return cmp.Compare(a.String(), b.String()) })
		keys = keys[:of.MaxBuckets]
	}
	slices.SortFunc(keys, func(a, b model.EndpointKey) int { return cmp.Compare(desired.BackendID(a), desired.BackendID(b)) })
	out := make([]choice, len(keys))
	for i, k := range keys {
		b, _ := s.of.Backends.Get(k)
		id := uint32(desired.BackendID(k) % of.MaxGroup)
		for slices.ContainsFunc(out[:i], func(o choice) bool { return o.id == id }) {
			id = (id + 1) % of.MaxGroup
		}
		out[i] = choice{b, id}
	}
	s.found[policy] = out
	return out
}

// frontendMatch is a port at which a service is asked.
type frontendMatch struct {
	desired.ServicePort
	shared bool // all that lead to the same port of the backends share a group
	alone  bool // fragments without a port are for it
}

// port adds the flows that choose for new connections to a port.
func (s Service) port(l *list, c Config, x clientClass, port frontendMatch, src of.Field) []of.Group {
	v6 := src == of.IPv6Src
	nat := func(b choice) of.CT {
		return of.CT{Commit: true, ZoneField: regZone, NAT: of.NATDst, To: b.Addr(v6), Port: b.PortFor(v6, port.Backend), Mark: markService, Recirc: true, Table: uint8(Backend)}
	}
	name := GroupOf{s.Key, port.Protocol, port.Port, v6, false, x.among, port.shared}
	if port.shared {
		name.Port = port.Backend
	}
	speaks := of.TCPSrc
	if port.Protocol == model.ProtoUDP {
		speaks = of.UDPSrc
	}
	g := of.Group{ID: s.Group(name), Seed: s.Seed(), Fields: []of.Field{src, speaks}}
	for _, b := range x.all {
		g.Buckets = append(g.Buckets, of.Bucket{ID: b.id, Actions: []of.Action{nat(b)}})
	}
	var clear []of.Action // what a learned flow has written
	if s.Affinity > 0 {
		for _, r := range affinityRegs {
			clear = append(clear, of.Set(r, 0))
		}
	}
	proto, asked := isProto(int(port.Protocol)), x.matchPort(port.ServicePort)
	lead := func(priority uint16, g of.Group, m of.Match) {
		before := l.cookie
		l.cookie = cookie(KindService, GroupNumber(g))
		l.add(SelectBackend, priority+x.above, m, append(slices.Clone(clear), of.GroupAction{Group: g.ID})...)
		l.cookie = before
	}
	lead(10, g, asked)
	groups := []of.Group{g}
	var parts []of.Match
	if c.Pieces && port.alone {
		parts = append(parts, match(append(slices.Clone(x.who), isFragment, proto)...))
		if v6 {
			parts = append(parts, match(append(slices.Clone(x.who), isFragment, isProto(protoFragment))...))
		}
		pieces := g // they do not show their ports: the client's address chooses
		name.Pieces = true
		pieces.ID, pieces.Fields = s.Group(name), []of.Field{src}
		groups = append(groups, pieces)
		for _, m := range parts {
			lead(20, pieces, m)
		}
	}
	if s.Affinity > 0 {
		for _, b := range x.all {
			stays := affinityTerms(b.Addr(v6))
			for _, m := range append(parts, asked) {
				l.add(SelectBackend, 100+x.above, match(append(m, stays...)...), append(slices.Clone(clear), nat(b))...)
			}
		}
	}
	return groups
}

func (s Service) oneUDP() bool {
	n := 0
	for _, p := range s.Ports {
		if p.Protocol == model.ProtoUDP {
			n++
		}
	}
	return n == 1
}
