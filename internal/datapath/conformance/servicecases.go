package conformance

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// serviceCases are the parts of Services: each applies services of its own and tries them.
type serviceCases struct {
	services *services
	t        *testing.T
}

func (s *serviceCases) neighbours() {
	client := s.services.at("web1")
	for _, mode := range []model.ArpMode{model.ArpFlood, model.ArpProxy} {
		if err := s.services.w.Change(func(c *compile.Compiler) {
			g := s.services.top.Global
			g.ArpMode = mode
			c.SetGlobal(g)
		}); err != nil {
			s.t.Fatal(err)
		}
		s.services.applyServices(s.services.shop("db1"))
		for _, v6 := range ipv4and6 {
			p := s.services.ask(client, model.ProtoTCP, v6)
			asked := reference.Packet{Port: p.Port, SrcMAC: p.SrcMAC, DstMAC: reference.Broadcast, ARP: &reference.ARP{
				Op: reference.ARPRequest, SenderMAC: p.SrcMAC, SenderIP: p.Src, TargetIP: p.Dst,
			}}
			if v6 {
				group, mac := reference.SolicitedNode(p.Dst)
				asked = reference.Packet{
					Port: p.Port, SrcMAC: p.SrcMAC, DstMAC: mac, Src: p.Src, Dst: group, Proto: model.ProtoICMPv6,
					ICMPType: reference.NDNeighborSolicit, ND: &reference.ND{Target: p.Dst, LinkAddr: p.SrcMAC, HasLink: true},
				}
			}
			if v := s.services.Send(s.t, asked); v.Answer == nil || v.Answer.SrcMAC != desired.RouterMAC || !nowhere(v) {
				s.t.Errorf("%s, mode %s: who has the virtual address: %s (%+v), want the router's answer", ipText(v6), mode, v, v.Answer)
			}
			p.DstMAC = s.services.at("db1").MAC
			s.services.denied(ipText(v6)+": to another MAC", p)
		}
	}
}

// local: with the traffic policy local, only backends on this host are chosen. And
// a client has to have an address that its backends can answer.
func (s *serviceCases) local() {
	client := s.services.at("web1")
	local := s.services.shop("db1", "db2")
	local.InternalPolicy = desired.TrafficLocal
	s.services.applyServices(local)
	for range 16 {
		s.services.reached("one is here", s.services.ask(client, model.ProtoTCP, false), "db1")
	}
	local = s.services.shop("db2")
	local.InternalPolicy = desired.TrafficLocal
	s.services.applyServices(local)
	if v := s.services.Send(s.t, s.services.ask(client, model.ProtoTCP, false)); !nowhere(v) || v.Answer == nil {
		s.t.Errorf("none is here: %s, want a reset", v)
	}
	s.services.applyServices(s.services.shop("db1"))
	p := s.services.ask(client, model.ProtoTCP, true)
	p.Src = client.MAC.LinkLocal()
	s.services.denied("from a link-local address", p)
}

func (s *serviceCases) policy() {
	client := s.services.at("web1")
	rule := func(dir model.Direction, port uint16, to, group string) Case {
		r := model.Rule{
			Key: model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "1"}, Direction: dir, Priority: 10,
			Action: model.Deny, Protocol: model.ProtoTCP, Port: port, Group: model.GroupName(group),
		}
		if to != "" {
			r.Addr = netip.PrefixFrom(netip.MustParseAddr(to), netip.MustParseAddr(to).BitLen())
		}
		of := model.GroupName("web")
		if dir == model.In {
			of = "db"
		}
		return Case{
			Policies: []model.ContivPolicy{{Key: model.PolicyKey{Tenant: "blue", Name: "p1"}}},
			Attach:   map[model.GroupKey][]model.PolicyName{{Tenant: "blue", Name: of}: {"p1"}}, Rules: []model.Rule{r},
		}
	}
	vip := vipOf(s.services.top.Network(s.services.key), false).String()
	for _, id := range []model.EndpointID{"db1", "db2"} {
		backend := s.services.at(id).IPv4.String()
		for _, x := range []struct {
			name string
			c    Case
			deny bool
		}{
			{"out, the backend's port", rule(model.Out, 8080, "", ""), true},
			{"out, the service's port", rule(model.Out, 80, "", ""), false},
			{"out, the backend's group", rule(model.Out, 8080, "", "db"), true},
			{"out, the client's group", rule(model.Out, 8080, "", "web"), false},
			{"out, the backend's address", rule(model.Out, 0, backend, ""), true},
			{"out, the backend's address and port", rule(model.Out, 8080, backend, ""), true},
			{"out, the backend's address and the service's port", rule(model.Out, 80, backend, ""), false},
			{"out, the service's address", rule(model.Out, 0, vip, ""), false},
			{"in, the backend's port", rule(model.In, 8080, "", ""), id == "db1"}, // of db2 its own host judges
			{"in, the service's port", rule(model.In, 80, "", ""), false},
			{"in, the client's group", rule(model.In, 8080, "", "web"), id == "db1"},
			{"in, the client's address", rule(model.In, 0, client.IPv4.String(), ""), id == "db1"},
			{"in, the service's address", rule(model.In, 0, vip, ""), false},
		} {
			what := fmt.Sprintf("%s: %s", id, x.name)
			old := s.services.ask(client, model.ProtoTCP, false)
			s.services.applyServices(s.services.shop(id))
			s.services.reached(what+": before", old, id)
			back := s.services.replyOf(old, s.services.at(id))
			s.services.answered(what+": before", client, old, back)
			if err := s.services.w.Switch(x.c); err != nil {
				s.t.Fatal(err)
			}
			s.services.applyServices(s.services.shop(id))
			fresh := s.services.ask(client, model.ProtoTCP, false)
			back.TCPFlags = reference.FlagACK
			if x.deny {
				s.services.denied(what+": a new one", fresh)
				s.services.denied(what+": a living one", laterPacket(old))
				s.services.denied(what+": what comes back", back)
			} else {
				s.services.reached(what+": a new one", fresh, id)
				s.services.reached(what+": a living one", laterPacket(old), id)
				s.services.answered(what+": what comes back", client, old, back)
			}
			if err := s.services.w.Switch(Case{}); err != nil {
				s.t.Fatal(err)
			}
			s.services.applyServices(s.services.shop(id))
			s.services.reached(what+": the rule is gone", laterPacket(old), id)
			s.services.answered(what+": the rule is gone", client, old, back)
		}
	}
}

func (s *serviceCases) connectionEnd() {
	client := s.services.at("web1")
	both := s.services.shop("db1", "db2")
	other := map[model.EndpointID]model.EndpointID{"db1": "db2", "db2": "db1"}
	for _, x := range []struct {
		name     string
		then     func(id model.EndpointID) desired.Service
		tcp, udp bool // go on
	}{
		{"draining", func(id model.EndpointID) desired.Service {
			return s.services.inState(both, id, desired.BackendDraining)
		}, true, true},
		{"unhealthy", func(id model.EndpointID) desired.Service {
			return s.services.inState(both, id, desired.BackendUnhealthy)
		}, true, false},
		{"no backend any more", func(id model.EndpointID) desired.Service { return s.services.shop(other[id]) }, true, false},
	} {
		for _, v6 := range ipv4and6 {
			s.services.applyServices(both)
			for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				what := fmt.Sprintf("%s %s %s", x.name, ipText(v6), proto)
				p := s.services.ask(client, proto, v6)
				id := s.services.reached(what, p, "db1", "db2").Key.ID
				s.services.answered(what, client, p, s.services.replyOf(p, s.services.at(id)))
				s.services.applyServices(x.then(id))
				goesOn := x.tcp
				if proto == model.ProtoUDP {
					goesOn = x.udp
				}
				if goesOn {
					s.services.reached(what+": goes on", laterPacket(p), id)
					s.services.answered(what+": goes on", client, p, s.services.replyOf(laterPacket(p), s.services.at(id)))
					s.services.reached(what+": goes on, by a way that is remembered", laterPacket(p), id)
				} else {
					s.services.reached(what+": is another one's", laterPacket(p), other[id])
				}
				if p.TCPFlags == reference.FlagSYN {
					s.services.reached(what+": asks again by the same port", p, other[id])
					s.services.answered(what+": asks again by the same port", client, p, s.services.replyOf(p, s.services.at(other[id])))
					s.services.reached(what+": goes on where it asked again", laterPacket(p), other[id])
					s.services.answered(what+": goes on where it asked again", client, p, s.services.replyOf(laterPacket(p), s.services.at(other[id])))
				}
				if x.name == "unhealthy" && !goesOn { // and back, by its own port
					s.services.applyServices(s.services.inState(both, other[id], desired.BackendUnhealthy))
					s.services.reached(what+": is the first one's again", p, id)
					s.services.applyServices(x.then(id))
				}
				for range 8 {
					s.services.reached(what+": a new one", s.services.ask(client, proto, v6), other[id])
				}
				s.services.applyServices(both)
			}
		}
	}
	s.services.applyServices(both)
	var ofDB2 []reference.Packet // endpoints go; others' connections stay
	var ofDB1 []reference.Packet
	for range 20 {
		p := s.services.ask(client, model.ProtoTCP, false)
		to := s.services.reached("before it goes", p, "db1", "db2")
		s.services.answered("before it goes", client, p, s.services.replyOf(p, to)) // a connection needs an answer to go on
		if to.Key.ID == "db2" {
			ofDB2 = append(ofDB2, p)
		} else {
			ofDB1 = append(ofDB1, p)
		}
	}
	gone := s.services.at("db2")
	if err := s.services.w.Change(func(c *compile.Compiler) { c.DeleteEndpoint(gone.Key) }); err != nil {
		s.t.Fatal(err)
	}
	s.services.applyServices(s.services.shop("db1"))
	for _, p := range append(ofDB2, ofDB1...) {
		s.services.reached("its backend's endpoint is gone, or another's", laterPacket(p), "db1")
	}
	if err := s.services.w.Change(func(c *compile.Compiler) { c.SetEndpoint(gone) }); err != nil {
		s.t.Fatal(err)
	}
	s.services.applyServices(both)
	p := ofDB1[0]
	s.services.applyServices()
	s.services.denied("the service is gone", laterPacket(p))
}

func (s *serviceCases) spread() {
	client := s.services.at("web1")
	draws := 600
	if s.services.Slow {
		draws = 150
	}
	s.services.applyServices(s.services.shop("db1", "db2", "solo1"))
	got := map[model.EndpointID]int{}
	for range draws {
		got[s.services.reached("spread", s.services.ask(client, model.ProtoUDP, false), "db1", "db2", "solo1").Key.ID]++
	}
	chi, _ := ChiSquare(draws, float64(got["db1"]), float64(got["db2"]), float64(got["solo1"]))
	if chi > 13.8 { // once in a thousand, with two degrees of freedom
		s.t.Errorf("%d connections were spread as %v: chi-square %.1f", draws, got, chi)
	}
}

func (s *serviceCases) fragments() {
	client := s.services.at("web1")
	id := uint32(4000)
	for _, backend := range []model.EndpointID{"db1", "db2"} {
		s.services.applyServices(s.services.shop(backend))
		for _, v6 := range ipv4and6 {
			what := fmt.Sprintf("%s %s", backend, ipText(v6))
			id++
			first, last, stray := inParts(s.services.ask(client, model.ProtoUDP, v6), id)
			if s.services.SkipPacket != nil {
				if why := s.services.SkipPacket(first); why != "" {
					s.t.Skip(why)
				}
			}
			s.services.denied(what+": without its first", stray)
			s.services.reached(what+": first", first, backend)
			v := s.services.Send(s.t, last)
			if e := s.services.receiverOf(what+": last", v); e.Key.ID != backend || v.Sent.Src != client.IPv4 && v.Sent.Src != client.IPv6 {
				s.t.Errorf("%s: last came to %s from %s", what, e.Key, v.Sent.Src)
			}
			r := s.services.replyOf(first, s.services.at(backend))
			rest := r
			r.Frag = &reference.Fragment{ID: id, More: true}
			rest.SrcPort, rest.DstPort, rest.Frag = 0, 0, &reference.Fragment{ID: id, Offset: 1400}
			s.services.answered(what+": first back", client, first, r)
			s.services.answered(what+": last back", client, first, rest)
		}
	}
}

// ClientsErrors is the part of Services' Errors in which the client tells of what it
// got from the service.
const ClientsErrors = "a client's ICMP errors"

// QuotedTCP is the part of Services' Errors in which an ICMPv6 error is about TCP.
const QuotedTCP = "ICMPv6 errors about TCP"

// errors: ICMP errors both ways, of the path MTU and of closed ports.
func (s *serviceCases) errors() {
	client := s.services.at("web1")
	for _, id := range []model.EndpointID{"db1", "db2"} {
		s.services.applyServices(s.services.shop(id))
		for _, v6 := range ipv4and6 {
			for _, about := range portProtocols {
				what := fmt.Sprintf("%s %s %s", id, ipText(v6), about)
				if why := s.services.Differs[QuotedTCP]; why != "" && v6 && about == model.ProtoTCP {
					s.t.Logf("%s: %s", QuotedTCP, why)
					continue
				}
				s.services.errorsAbout(what, client, id, s.services.ask(client, about, v6))
			}
		}
	}
}

// portProtocols are the protocols that services have on every driver.
var portProtocols = []model.Protocol{model.ProtoUDP, model.ProtoTCP}

// errorsAbout is errors about a connection that p begins.
func (s *services) errorsAbout(what string, client model.Endpoint, id model.EndpointID, p reference.Packet) {
	s.t.Helper()
	sent := s.Send(s.t, p).Sent
	if sent == nil {
		s.t.Fatalf("%s: nothing was sent", what)
	}
	s.answered(what, client, p, s.replyOf(p, s.at(id)))
	proto, unreachable := model.ProtoICMP, uint8(3)
	if p.Src.Is6() {
		proto, unreachable = model.ProtoICMPv6, 1
	}
	quoted := reference.Packet{Src: sent.Src, Dst: sent.Dst, Proto: sent.Proto, SrcPort: sent.SrcPort, DstPort: sent.DstPort}
	back := s.replyOf(p, s.at(id))
	back.Proto, back.SrcPort, back.DstPort, back.TCPFlags, back.ICMPType, back.ICMPCode, back.Inner = proto, 0, 0, 0, unreachable, 4, &quoted
	got := s.answered(what+": of the backend", client, p, back)
	if q := got.Inner; q == nil || q.Src != p.Src || q.Dst != p.Dst || q.SrcPort != p.SrcPort || q.DstPort != p.DstPort {
		s.t.Errorf("%s: of the backend: quotes %+v, want what the client sent", what, q)
	}
	if why := s.Differs[ClientsErrors]; why != "" {
		s.t.Logf("%s: %s", ClientsErrors, why)
		return
	}
	// The client reports that a packet from the service was too big, or unreachable.
	mine := p
	mine.Proto, mine.SrcPort, mine.DstPort, mine.TCPFlags, mine.ICMPType, mine.ICMPCode = proto, 0, 0, 0, unreachable, 4
	mine.Inner = &reference.Packet{Src: p.Dst, Dst: p.Src, Proto: p.Proto, SrcPort: p.DstPort, DstPort: p.SrcPort}
	kinds := []uint8{3, 11}
	if p.Src.Is6() {
		kinds = []uint8{1, 2, 3}
	}
	for _, mine.ICMPType = range kinds {
		v := s.Send(s.t, mine)
		e := s.receiverOf(what+": of the client", v)
		if q := v.Sent.Inner; e.Key.ID != id || v.Sent.ICMPType != mine.ICMPType || q == nil || q.Src != sent.Dst || q.SrcPort != sent.DstPort || q.Dst != p.Src || q.DstPort != p.SrcPort {
			s.t.Errorf("%s: of the client: %s got %d about %+v", what, e.Key, v.Sent.ICMPType, q)
		}
	}
	if mine.Inner.Dst = s.at("solo1").IPv4; p.Src.Is6() {
		mine.Inner.Dst = s.at("solo1").IPv6
	}
	s.denied(what+": about what another one got", mine)
	mine.Inner.Dst = p.Src
	mine.Inner.DstPort++
	s.denied(what+": about nothing that is known", mine)
}

func (s *serviceCases) itself() {
	client := s.services.at("web1")
	if err := s.services.w.Switch(Case{ // web may neither ask nor be asked
		Policies: []model.ContivPolicy{{Key: model.PolicyKey{Tenant: "blue", Name: "p1"}}},
		Attach:   map[model.GroupKey][]model.PolicyName{{Tenant: "blue", Name: "web"}: {"p1"}},
		Rules: []model.Rule{
			{Key: model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "1"}, Direction: model.In, Priority: 10, Action: model.Deny, Protocol: model.AnyProtocol},
			{Key: model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "2"}, Direction: model.Out, Priority: 10, Action: model.Deny, Protocol: model.AnyProtocol},
		},
	}); err != nil {
		s.t.Fatal(err)
	}
	s.services.applyServices(s.services.shop("web1"))
	for _, v6 := range ipv4and6 {
		seen := desired.ServiceAddr
		if v6 {
			seen = desired.ServiceAddr6
		}
		for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
			what := fmt.Sprintf("%s %s", ipText(v6), proto)
			p := s.services.ask(client, proto, v6)
			v := s.services.Send(s.t, p)
			if e := s.services.receiverOf(what, v); e.Key != client.Key || v.Sent.Src != seen || v.Sent.SrcPort != p.SrcPort || v.Sent.SrcMAC != desired.RouterMAC {
				s.t.Fatalf("%s: %s got %s:%d (%s), want it from %s:%d by the router", what, e.Key, v.Sent.Src, v.Sent.SrcPort, v.Sent.SrcMAC, seen, p.SrcPort)
			}
			r := s.services.replyOf(p, client)
			r.Dst, r.DstMAC = seen, desired.RouterMAC
			s.services.answered(what, client, p, r)
			r.DstMAC = model.MAC{2, 9, 9, 9, 9, 9}
			s.services.answered(what+": by another gateway", client, p, r)
			if r.DstMAC = desired.RouterMAC; v6 {
				r.Src = client.MAC.LinkLocal()
				s.services.answered(what+": by the link-local address", client, p, r)
			}
			late := r
			late.Damage = reference.NoHopsLeft
			s.services.denied(what+": with no hop left", late)
			r.DstPort++
			s.services.denied(what+": answer to nothing", r)
		}
	}
}

// inParts makes a datagram two fragments, and a later one of another datagram.
func inParts(p reference.Packet, id uint32) (first, last, stray reference.Packet) {
	first, last = p, p
	first.Frag = &reference.Fragment{ID: id, More: true}
	last.SrcPort, last.DstPort, last.Frag = 0, 0, &reference.Fragment{ID: id, Offset: 1400}
	stray = last
	stray.Frag = &reference.Fragment{ID: id + 1000, Offset: 1400}
	return first, last, stray
}
