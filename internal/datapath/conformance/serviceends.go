package conformance

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// What changes of backends and policies do to established connections. Random worlds say so of a
// driver that chooses and tracks as the reference does; these say it of every driver.

// talk is how a client inside, or outside, talks to the service.
type talk struct {
	s      *externalTest
	client model.Endpoint // without a key: it is outside
}

// talks are how web1 and a client outside do.
func (s *externalTest) talks() []talk {
	return []talk{{s, s.services.at("web1")}, {s, model.Endpoint{}}}
}

func (x talk) String() string {
	if x.client.Host == "" {
		return "from outside"
	}
	return "from inside"
}

func (x talk) ask(proto model.Protocol, v6 bool) reference.Packet {
	if x.client.Host == "" {
		return x.s.from(clientOutside(v6), proto)
	}
	return x.s.services.ask(x.client, proto, v6)
}

// reached sends a client's packet, and wants it at one of some backends.
func (x talk) reached(what string, p reference.Packet, ids ...model.EndpointID) model.EndpointID {
	x.s.t.Helper()
	if x.client.Host == "" {
		return x.s.came(what, p, ids...).Key.ID
	}
	return x.s.services.reached(what, p, ids...).Key.ID
}

func (x talk) reply(p reference.Packet, id model.EndpointID) reference.Packet {
	if x.client.Host == "" {
		return x.s.back(p, x.s.services.at(id))
	}
	return x.s.services.replyOf(p, x.s.services.at(id))
}

// answered sends a backend's packet, and wants it at the client in the service's name.
func (x talk) answered(what string, p, r reference.Packet) {
	x.s.t.Helper()
	if x.client.Host == "" {
		x.s.answersAsService(what, p, r)
		return
	}
	x.s.services.answered(what, x.client, p, r)
}

// connectionEnd: connections go on with a backend that takes nothing new, but for UDP of an
// unhealthy one. A request by the same port begins another one.
func (s *externalTest) connectionEnd() {
	both := s.open("db1", "db2")
	other := map[model.EndpointID]model.EndpointID{"db1": "db2", "db2": "db1"}
	in := func(id model.EndpointID, state desired.BackendState) desired.Service {
		return s.services.inState(both, id, state)
	}
	for _, x := range []struct {
		name string
		then func(id model.EndpointID, v6 bool) desired.Service
		udp  bool // goes on
	}{
		{"draining", func(id model.EndpointID, _ bool) desired.Service { return in(id, desired.BackendDraining) }, true},
		{"leaving", func(id model.EndpointID, _ bool) desired.Service { return in(id, desired.BackendLeaving) }, true},
		{"unhealthy", func(id model.EndpointID, _ bool) desired.Service { return in(id, desired.BackendUnhealthy) }, false},
		{"no backend any more", func(id model.EndpointID, _ bool) desired.Service { return s.open(other[id]) }, false},
		{"draining, and unhealthy by the other family", func(id model.EndpointID, v6 bool) desired.Service {
			of := in(id, desired.BackendDraining)
			b, _ := of.Backends.Get(s.services.at(id).Key)
			x := *b
			x.Serve(x.Addr(!v6), desired.Serving{State: desired.BackendUnhealthy})
			of.Backends = of.Backends.Set(s.services.at(id).Key, &x)
			return of
		}, true},
	} {
		for _, v6 := range s.six() {
			for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				for _, c := range s.talks() {
					what := fmt.Sprintf("%s, %s %s %s", x.name, c, ipText(v6), proto)
					s.services.applyServices(both)
					p := c.ask(proto, v6)
					id := c.reached(what, p, "db1", "db2")
					c.answered(what, p, c.reply(p, id))
					s.services.applyServices(x.then(id, v6))
					if proto == model.ProtoUDP && !x.udp {
						c.reached(what+": is another one's", p, other[id])
					} else {
						c.reached(what+": goes on", laterPacket(p), id)
						c.answered(what+": goes on", p, c.reply(laterPacket(p), id))
					}
					if proto == model.ProtoTCP && c.client.Host != "" {
						c.reached(what+": asks again by the same port", p, other[id])
						c.answered(what+": asks again by the same port", p, c.reply(p, other[id]))
					}
					for range 4 {
						c.reached(what+": a new one", c.ask(proto, v6), other[id])
					}
				}
			}
		}
	}
	closed := s.open("db1")
	closed.Exposed = false
	for _, v6 := range s.six() { // no packet comes while it is closed
		s.services.applyServices(s.open("db1"))
		c := s.talks()[1]
		p := c.ask(model.ProtoUDP, v6)
		c.answered("UDP", p, c.reply(p, c.reached("UDP", p, "db1")))
		s.services.applyServices(closed)
		s.services.applyServices(s.open("db1"))
		if v := s.services.Send(s.t, c.reply(p, "db1")); v.Host && v.Sent != nil && v.Sent.Src == p.Dst {
			s.t.Errorf("%s: not exposed for a while: %s", ipText(v6), v)
		}
	}
}

// replaced: a connection does not go on with another endpoint of its client's or its
// backend's address.
func (s *externalTest) replaced() {
	c := s.talks()[0]
	for _, id := range []model.EndpointID{"web1", "db1"} {
		old := s.services.at(id)
		s.services.applyServices(s.open("db1"))
		p := c.ask(model.ProtoTCP, false)
		c.answered("at first", p, c.reply(p, c.reached("at first", p, "db1")))
		s.services.applyServices(s.open("db2"))
		c.reached("no backend any more", laterPacket(p), "db1")
		for _, tell := range []func(*compile.Compiler){
			func(c *compile.Compiler) { c.DeleteEndpoint(old.Key) }, func(c *compile.Compiler) { c.SetEndpoint(old) },
		} {
			if err := s.services.w.Change(tell); err != nil {
				s.t.Fatal(err)
			}
			s.services.applyServices(s.open("db2"))
		}
		c.reached(string(id)+" has gone and come", laterPacket(p), "db2")
	}
}

// morePorts: connections go on with their backend when the service has another port and another
// backend besides, and fewer of the others.
func (s *externalTest) morePorts() {
	c, ids := s.talks()[0], []model.EndpointID{"db1", "db2", "web2"}
	for _, id := range ids {
		for _, proto := range []model.Protocol{model.ProtoUDP, model.ProtoTCP} {
			what := fmt.Sprintf("%s of %s", proto, id)
			s.services.applyServices(s.open(ids...))
			p := c.ask(proto, false)
			for range 100 {
				if c.reached(what, p, ids...) == id {
					break
				}
				p = c.ask(proto, false)
			}
			c.answered(what, p, c.reply(p, id))
			more := s.open(id, "solo1")
			more.Ports = slices.Insert(more.Ports, 1, desired.ServicePort{Protocol: model.ProtoTCP, Port: 81, Backend: 8081})
			s.services.applyServices(more)
			c.answered(what+", another port besides", p, c.reply(p, id))
			c.reached(what+", another port besides", laterPacket(p), id)
		}
	}
}

// lostForAMoment: a connection whose service loses the port or the address ends, though the
// service has them again before the next packet.
func (s *externalTest) lostForAMoment() {
	c := s.talks()[0]
	for _, v6 := range s.six() {
		for _, x := range []struct {
			what string
			lose func(*desired.Service)
		}{
			{"port", func(of *desired.Service) { of.Ports = of.Ports[1:] }},
			{"IPv4 address", func(of *desired.Service) { of.IPv4 = netip.Addr{} }},
			{"IPv6 address", func(of *desired.Service) { of.IPv6 = netip.Addr{} }},
		} {
			s.services.applyServices(s.open("db1"))
			p := c.ask(model.ProtoTCP, v6)
			c.answered("at first", p, c.reply(p, c.reached("at first", p, "db1")))
			less := s.open("db1")
			x.lose(&less)
			s.services.applyServices(less)
			s.services.applyServices(s.open("db2"))
			want := model.EndpointID("db2")
			if _, has := less.FrontendAt(p.Dst, false, p.Proto, p.DstPort); has {
				want = "db1" // it is the other family's
			}
			c.reached(ipText(v6)+", its "+x.what+" was gone", laterPacket(p), want)
		}
	}
}

// policy: rules see backends and clients and no service, of new connections and of established
// ones. The `in` rules of a backend elsewhere are its own host's.
func (s *externalTest) policy() {
	one := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
	vip, backend, client := one(vipOf(s.services.top.Network(s.services.key), false)), one(s.services.at("db1").IPv4), one(s.services.at("web1").IPv4)
	for _, x := range []struct {
		name    string
		rule    model.Rule
		inside  []model.EndpointID // to whom the client inside does not get
		outside bool               // nor the one outside, to db1
	}{
		{"out, the backends' port", model.Rule{Direction: model.Out, Port: 8080}, []model.EndpointID{"db1", "db2"}, false},
		{"out, the service's port", model.Rule{Direction: model.Out, Port: 80}, nil, false},
		{"out, the backends' group", model.Rule{Direction: model.Out, Port: 8080, Group: "db"}, []model.EndpointID{"db1", "db2"}, false},
		{"out, the client's group", model.Rule{Direction: model.Out, Port: 8080, Group: "web"}, nil, false},
		{"out, a backend's address", model.Rule{Direction: model.Out, Addr: backend}, []model.EndpointID{"db1"}, false},
		{"out, a backend's address and port", model.Rule{Direction: model.Out, Addr: backend, Port: 8080}, []model.EndpointID{"db1"}, false},
		{"out, a backend's address and the service's port", model.Rule{Direction: model.Out, Addr: backend, Port: 80}, nil, false},
		{"out, the service's address", model.Rule{Direction: model.Out, Addr: vip}, nil, false},
		{"in, anybody", model.Rule{Direction: model.In}, []model.EndpointID{"db1"}, true},
		{"in, the backends' port", model.Rule{Direction: model.In, Port: 8080}, []model.EndpointID{"db1"}, true},
		{"in, the service's port", model.Rule{Direction: model.In, Port: 80}, nil, false},
		{"in, the client's group", model.Rule{Direction: model.In, Group: "web"}, []model.EndpointID{"db1"}, false},
		{"in, the network", model.Rule{Direction: model.In, Network: "vx"}, []model.EndpointID{"db1"}, false},
		{"in, the client's address", model.Rule{Direction: model.In, Addr: client}, []model.EndpointID{"db1"}, false},
		{"in, the address outside", model.Rule{Direction: model.In, Addr: one(Outside)}, nil, true},
		{"in, another address outside", model.Rule{Direction: model.In, Addr: one(Outside.Next())}, nil, false},
		{"in, the service's address", model.Rule{Direction: model.In, Addr: vip}, nil, false},
	} {
		group := model.GroupKey{Tenant: "blue", Name: map[model.Direction]model.GroupName{model.In: "db", model.Out: "web"}[x.rule.Direction]}
		x.rule.Key, x.rule.Priority, x.rule.Action, x.rule.Protocol = model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "1"}, 10, model.Deny, model.ProtoTCP
		rule := Case{
			Policies: []model.ContivPolicy{{Key: model.PolicyKey{Tenant: "blue", Name: "p1"}}},
			Attach:   map[model.GroupKey][]model.PolicyName{group: {"p1"}}, Rules: []model.Rule{x.rule},
		}
		for _, id := range []model.EndpointID{"db1", "db2"} {
			turn := func(c Case) {
				s.t.Helper()
				if err := s.services.w.Switch(c); err != nil {
					s.t.Fatal(err)
				}
				s.services.applyServices(s.open(id))
			}
			turn(Case{})
			var old []reference.Packet
			for _, c := range s.talks() {
				p := c.ask(model.ProtoTCP, false)
				c.reached(x.name, p, id)
				c.answered(x.name, p, c.reply(p, id))
				old = append(old, p)
			}
			turn(rule)
			for i, c := range s.talks() {
				what, back := fmt.Sprintf("%s, %s to %s", x.name, c, id), c.reply(laterPacket(old[i]), id)
				if i == 0 && slices.Contains(x.inside, id) || i == 1 && x.outside && id == "db1" {
					s.services.denied(what+": a new one", c.ask(model.ProtoTCP, false))
					s.services.denied(what+": an established one", laterPacket(old[i]))
					s.services.denied(what+": what comes back", back)
					continue
				}
				c.reached(what+": a new one", c.ask(model.ProtoTCP, false), id)
				c.reached(what+": an established one", laterPacket(old[i]), id)
				c.answered(what+": what comes back", old[i], back)
			}
			turn(Case{})
			for i, c := range s.talks() {
				c.reached(x.name+": the rule is gone", laterPacket(old[i]), id)
			}
		}
	}
}
