package conformance

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

func (s *externalBackends) translated() {
	s.everywhere(func(what string, to backendPlace, v6 bool, proto model.Protocol) {
		p := s.services.ask(s.client, proto, v6)
		for range 3 { // no answer yet
			s.led(what, p, to)
		}
		s.services.answered(what, s.client, p, s.answerOf(p, to))
		for range 2 {
			s.converse(what+", later", laterPacket(p), to)
		}
	})
}

// mixed: endpoints and others share a service's connections, and its client stays with
// whom it got.
func (s *externalBackends) mixed() {
	for _, v6 := range s.families() {
		for _, affinity := range []bool{false, true} {
			of := s.with(s.services.shop("db1", "db2"), s.places()...)
			if affinity {
				of.Affinity = desired.MaxAffinity
			}
			s.applyServices(of)
			got := map[netip.Addr]int{}
			for range 150 {
				p := s.services.ask(s.client, model.ProtoTCP, v6)
				v := s.services.Send(s.t, p)
				if nowhere(v) || v.Sent == nil {
					s.t.Fatalf("%s: %s (%+v), want it at a backend", ipText(v6), v, v.Sent)
				}
				got[v.Sent.Dst]++
				i := slices.IndexFunc(s.places(), func(p backendPlace) bool { return p.addr(v6) == v.Sent.Dst })
				if i >= 0 {
					s.services.answered(ipText(v6), s.client, p, s.answerOf(p, s.places()[i]))
				}
			}
			want := of.Backends.Len()
			if affinity {
				want = 1
			}
			if len(got) != want {
				s.t.Errorf("%s, affinity %v: %v got some, want %d of them", ipText(v6), affinity, got, want)
			}
		}
	}
}

// externalFrontend: a service as kubernetes.default is: one address, and a port that leads to a
// machine's.
func (s *externalBackends) externalFrontend() {
	if !s.services.drv.Capabilities().Frontends {
		s.t.Skip("the driver makes no frontends")
	}
	f := newFrontends(&externalTest{s.services, s.t})
	for _, to := range s.places() {
		for _, v6 := range s.families() {
			for _, at := range []netip.Addr{frontendAddr(1, v6), node(v6)} {
				of := s.with(f.withFrontends(append(both(1), nodes...)), to)
				s.applyServices(of)
				p := f.askAt(s.client, model.ProtoTCP, at)
				s.converse(to.name+" at "+at.String(), p, to)
				s.converse(to.name+" at "+at.String()+", later", laterPacket(p), to)
			}
		}
	}
}

// local: a backend that is no endpoint is here if the desired state says so.
func (s *externalBackends) local() {
	all := s.places()
	of := s.with(s.services.shop(), all...)
	of.InternalPolicy = desired.TrafficLocal
	s.applyServices(of)
	for range 8 {
		p := s.services.ask(s.client, model.ProtoTCP, false)
		if s.isNative() {
			s.converse("one is here", p, all[1])
		} else if v := s.services.Send(s.t, p); !nowhere(v) || v.Answer == nil {
			s.t.Errorf("none is here: %s, want a reset", v)
		}
	}
	of.InternalPolicy = desired.TrafficCluster
	for _, state := range []desired.BackendState{desired.BackendUnhealthy, desired.BackendLeaving} {
		x := s.with(s.services.shop(), all[0])
		b, _ := x.Backends.Get(all[0].key())
		other := *b
		other.State, other.Port = state, 8080
		x.Ports = slices.Clone(x.Ports)
		x.Ports[0].Backend = 9999
		x.Backends = x.Backends.Set(all[0].key(), &other)
		s.applyServices(x)
		p := s.services.ask(s.client, model.ProtoTCP, false)
		if state == desired.BackendLeaving {
			s.converse("it leaves, and has a port of its own", p, all[0])
		} else if v := s.services.Send(s.t, p); !nowhere(v) || v.Answer == nil {
			s.t.Errorf("it is unhealthy: %s, want a reset", v)
		}
	}
}

// policy: the peer is the backend's address, as external.
func (s *externalBackends) policy() {
	one := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
	for _, to := range s.places() {
		for _, v6 := range s.families() {
			for _, x := range []struct {
				name string
				rule model.Rule
				deny bool
			}{
				{"anybody", model.Rule{}, true},
				{"the backend's address", model.Rule{Addr: one(to.addr(v6))}, true},
				{"the backend's port", model.Rule{Addr: one(to.addr(v6)), Protocol: model.ProtoTCP, Port: 8080}, true},
				{"the service's port", model.Rule{Addr: one(to.addr(v6)), Protocol: model.ProtoTCP, Port: 80}, false},
				{"the service's address", model.Rule{Addr: one(vipOf(s.services.top.Network(s.services.key), v6))}, false},
				{"another address", model.Rule{Addr: one(to.addr(v6).Next())}, false},
				{"a group", model.Rule{Group: "web"}, false},
				{"the network", model.Rule{Network: "vx"}, false},
			} {
				what := to.name + " " + ipText(v6) + ", " + x.name
				s.turn(Case{})
				s.applyServices(s.with(s.services.shop(), to))
				lives := s.services.ask(s.client, model.ProtoTCP, v6)
				s.converse(what+": before", lives, to)
				c := denyAll(model.Out)
				x.rule.Key, x.rule.Direction, x.rule.Priority, x.rule.Action = c.Rules[0].Key, model.Out, 10, model.Deny
				if x.rule.Protocol == 0 {
					x.rule.Protocol = model.AnyProtocol
				}
				c.Rules[0] = x.rule
				s.turn(c)
				s.applyServices(s.with(s.services.shop(), to))
				p := s.services.ask(s.client, model.ProtoTCP, v6)
				if !x.deny {
					s.converse(what, p, to)
					s.converse(what+": a living one", laterPacket(lives), to)
					continue
				}
				s.services.denied(what, p)
				s.services.denied(what+": its answer", s.answerOf(p, to))
				s.services.denied(what+": a living one", laterPacket(lives))
				s.services.denied(what+": a living one's answer", s.answerOf(laterPacket(lives), to))
			}
			s.turn(denyAll(model.In))
			s.applyServices(s.with(s.services.shop(), to))
			s.converse(to.name+": nobody gets in but answers", s.services.ask(s.client, model.ProtoTCP, v6), to)
		}
	}
}

// nowhere: a service leads a client neither to an address that the client could not reach
// itself, nor to an endpoint that is not the backend.
func (s *externalBackends) nowhere() {
	way := s.services.w.Desired["h1"].HostNAT
	for _, v6 := range s.families() {
		n := s.services.top.Network(s.services.key)
		bad := map[string]netip.Addr{
			"an endpoint's": addrOf(s.services.at("db1"), v6), "an endpoint's elsewhere": addrOf(s.services.at("db2"), v6), "its own": addrOf(s.client, v6), "nobody's of the network": s.native.unusedAddr(v6),
			"another private one": way.Addr.Prev(), "loopback": netip.MustParseAddr("127.0.0.1"), "the virtual one": vipOf(n, v6),
		}
		if v6 {
			bad["another private one"], bad["loopback"] = way.Addr6.Prev(), netip.MustParseAddr("::1")
		}
		if s.isNative() {
			bad["another native network's"] = addrOf(s.native.other("app2"), v6)
		}
		for name, a := range bad {
			to := backendPlace{name: name, v4: a, v6: a}
			s.applyServices(s.with(s.services.shop(), to))
			for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				p := s.services.ask(s.client, proto, v6)
				s.services.denied("to an address that is "+name, p)
				s.services.denied("to an address that is "+name+", again", p)
			}
		}
	}
	of := s.with(s.services.shop(), s.places()...)
	of.Ports = slices.Clone(of.Ports)
	for i := range of.Ports {
		of.Ports[i].Backend = TunnelPort
	}
	s.applyServices(of)
	s.services.denied("to a tunnel's port", s.services.ask(s.client, model.ProtoUDP, false))
	s.applyServices(s.with(s.services.shop(), s.places()[0]))
	p := s.services.ask(s.client, model.ProtoTCP, false)
	s.converse("before there is an endpoint", p, s.places()[0])
	pic := s.services.w.Desired["h1"]
	pic.HostNAT = nil
	x := s.with(s.services.shop(), s.places()[0])
	pic.Services = pic.Services.Set(x.Key, &x)
	s.services.apply(s.t, pic)
	s.services.denied("without egress", laterPacket(p))
}

func (s *externalBackends) fragments() {
	id := uint32(9500)
	for _, to := range s.places() {
		for _, v6 := range s.families() {
			what := to.name + " " + ipText(v6)
			s.applyServices(s.with(s.services.shop(), to))
			id += 10
			p := s.services.ask(s.client, model.ProtoUDP, v6)
			first, rest, stray := inParts(p, id)
			if s.services.SkipPacket != nil {
				if why := s.services.SkipPacket(first); why != "" {
					s.t.Skip(why)
				}
			}
			s.services.denied(what+": without its first", stray)
			s.led(what+": first", first, to)
			s.led(what+": last", rest, to)
			id += 10
			back, last, _ := inParts(s.answerOf(p, to), id)
			s.services.answered(what+": first back", s.client, p, back)
			s.services.answered(what+": last back", s.client, p, last)
		}
	}
}

// errors: about what the client sent, of the backend and of a router on the way; and the
// client's own, about an answer.
func (s *externalBackends) errors() {
	for _, to := range s.places() {
		for _, v6 := range s.families() {
			what := to.name + " " + ipText(v6)
			s.applyServices(s.with(s.services.shop(), to))
			p := s.services.ask(s.client, model.ProtoUDP, v6)
			sent := s.led(what, p, to)
			e := s.native.about(*sent)
			for name, src := range map[string]netip.Addr{"the backend": e.Src, "a router": clientOutside(v6).Next()} {
				x := e
				x.Src = src
				v := s.services.Send(s.t, s.came(x, to))
				got := v.Sent
				if !slices.Equal(v.Ports, []string{compile.IfName(s.client.Key)}) || got == nil || got.Inner == nil {
					s.t.Fatalf("%s: error of %s: %s (%+v), want it at the client", what, name, v, got)
				}
				want := src
				if src == e.Src || s.services.Differs[Tracked] != "" {
					want = p.Dst
				}
				if got.Src != want || got.Dst != p.Src || got.Inner.Src != p.Src || got.Inner.Dst != p.Dst || got.Inner.SrcPort != p.SrcPort || got.Inner.DstPort != p.DstPort {
					s.t.Errorf("%s: error of %s came as %s > %s about %+v", what, name, got.Src, got.Dst, got.Inner)
				}
			}
			r := s.services.answered(what, s.client, p, s.answerOf(p, to))
			if why := s.services.Differs[ClientsErrors]; why != "" {
				s.t.Logf("%s: %s", ClientsErrors, why)
			} else {
				got := s.led(what+": the client's error", byPod(s.client, s.native.about(*r)), to)
				if in := got.Inner; in == nil || in.Src != to.addr(v6) || in.Dst != s.own(v6) || in.SrcPort != backendPort(p.Proto) || in.DstPort != p.SrcPort {
					s.t.Errorf("%s: the client's error went as %+v about %+v", what, got, in)
				}
			}
			stray := *sent
			stray.SrcPort += 7
			s.services.denied(what+": error about nothing", s.came(s.native.about(stray), to))
		}
	}
}

// owner: the tuple of an established translation is in use by that translation only.
func (s *externalBackends) owner() {
	for _, to := range s.places() {
		for _, v6 := range s.families() {
			what := to.name + " " + ipText(v6)
			s.applyServices(s.with(s.services.shop(), to))
			p := s.services.ask(s.client, model.ProtoTCP, v6)
			s.converse(what, p, to)
			direct := laterPacket(p)
			direct.Dst, direct.DstPort = to.addr(v6), 8080
			s.services.denied(what+": the client, by the same tuple", direct)
			request := s.answerOf(p, to)
			request.TCPFlags = reference.FlagSYN
			s.services.denied(what+": the backend asks by the same tuple", request)
			end := laterPacket(p)
			end.TCPFlags |= reference.FlagRST
			s.led(what+": reset", end, to)
			direct.TCPFlags = reference.FlagSYN
			if v := s.services.Send(s.t, direct); nowhere(v) || v.Sent == nil || v.Sent.Dst != direct.Dst {
				s.t.Errorf("%s: the client asks there itself, once the connection is closed: %s (%+v)", what, v, v.Sent)
			}
			q := s.services.ask(s.client, model.ProtoTCP, v6) // the tuple is another connection's: another port
			taken := q
			taken.Dst, taken.DstPort = to.addr(v6), 8080
			s.services.Send(s.t, taken)
			v := s.services.Send(s.t, q)
			if s.services.Differs[Tracked] != "" && nowhere(v) {
				continue
			}
			if v.Sent == nil || v.Sent.Dst != to.addr(v6) || v.Sent.SrcPort == q.SrcPort {
				s.t.Errorf("%s: beside a connection of the client's own to the backend: %s (%+v), want another port", what, v, v.Sent)
			}
		}
	}
	if s.isNative() { // by another host than the backend's
		to := s.places()[2]
		s.applyServices(s.with(s.services.shop(), to))
		p := s.services.ask(s.client, model.ProtoTCP, false)
		s.led("another host", p, to)
		r := s.answerOf(p, to)
		r.VTEP = ThirdVTEP
		s.services.denied("its answer, by a third host", r)
	}
}

// connectionEnd: what becomes of connections when their backend, or the service, changes.
func (s *externalBackends) connectionEnd() {
	s.everywhere(func(what string, to backendPlace, v6 bool, proto model.Protocol) {
		only := s.with(s.services.shop(), to)
		unhealthy := only
		b, _ := only.Backends.Get(to.key())
		sick := *b
		sick.State = desired.BackendUnhealthy
		unhealthy.Backends = unhealthy.Backends.Set(to.key(), &sick)
		db := s.services.shop("db1").Backends
		e, _ := db.Get(s.services.at("db1").Key)
		unhealthy.Backends = unhealthy.Backends.Set(s.services.at("db1").Key, e)
		for name, then := range map[string]desired.Service{"unhealthy": unhealthy, "no backend any more": s.services.shop("db1")} {
			s.applyServices(only)
			p := s.services.ask(s.client, proto, v6)
			s.converse(what, p, to)
			s.applyServices(then)
			if proto == model.ProtoUDP {
				s.services.reached(what+": "+name, laterPacket(p), "db1")
				continue
			}
			s.converse(what+": "+name+": goes on", laterPacket(p), to)
			s.services.reached(what+": "+name+": a new one", s.services.ask(s.client, proto, v6), "db1")
		}
		s.applyServices(only)
		p := s.services.ask(s.client, proto, v6)
		s.converse(what, p, to)
		for _, others := range [][]model.EndpointID{{"db1", "db2"}, {"db2"}, nil} {
			s.applyServices(s.with(s.services.shop(others...), to))
			s.converse(fmt.Sprintf("%s: beside %v it goes on", what, others), laterPacket(p), to)
		}
		s.applyServices()
		s.services.denied(what+": the service is gone", laterPacket(p))
		s.applyServices(only)
	})
}

// restarted: a driver that restarts keeps the connections it finds.
func (s *externalBackends) restarted() {
	of := s.with(s.services.shop(), s.places()[0])
	s.applyServices(of)
	p := s.services.ask(s.client, model.ProtoTCP, false)
	s.converse("before", p, s.places()[0])
	s.services.restart(s.t)
	s.applyServices(of)
	if r := s.services.apply(s.t, newFrontends(&externalTest{s.services, s.t}).desiredState(of)); r.Changes != 0 {
		s.t.Errorf("the second Apply after a restart made %d changes", r.Changes)
	}
	s.converse("after a restart", laterPacket(p), s.places()[0])
	s.converse("after a restart, a new one", s.services.ask(s.client, model.ProtoTCP, false), s.places()[0])
}

// counts: a connection to such a backend is counted as to any other.
func (s *externalBackends) counts() {
	if !s.services.drv.Capabilities().ServiceStats {
		s.t.Skip("the driver does not count connections to services")
	}
	s.everywhere(func(what string, to backendPlace, v6 bool, proto model.Protocol) {
		port := uint16(80)
		if proto == model.ProtoUDP {
			port = 53
		}
		of := driver.ServiceOf{Service: s.services.shop().Key, Protocol: proto, Port: port, IPv6: v6, Backend: to.key()}
		before := s.services.counted(s.client, of)
		p := s.services.ask(s.client, proto, v6)
		s.converse(what, p, to)
		s.converse(what, laterPacket(p), to)
		var now driver.ServiceStats
		if !s.services.eventually(func() bool {
			now = s.services.counted(s.client, of)
			return now.Total == before.Total+1 && now.Connections == before.Connections+1 && now.PacketsOut == before.PacketsOut+2 && now.PacketsIn == before.PacketsIn+2
		}) {
			s.t.Errorf("%s: counted %+v after %+v, want one connection more, and two packets each way", what, now, before)
		}
	})
}
