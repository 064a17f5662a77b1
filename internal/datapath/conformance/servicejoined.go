package conformance

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// joined: when networks are joined or parted, the virtual address is another domain's,
// so connections to it end: what a backend still sends comes in its own name or not at
// all, the tuple is free, and the client's next packet begins a connection with its own
// port. client and backend are on the network of the service, or the same.
func (s *services) joined(client model.Endpoint, id model.EndpointID) {
	s.t.Helper()
	for i, mode := range []model.FwdMode{model.FwdBridge, model.FwdRouting} {
		for _, v6 := range ipv4and6 {
			what := fmt.Sprintf("%s, %s, then mode %s", id, ipText(v6), mode)
			itself := id == client.Key.ID
			former := []model.FwdMode{model.FwdRouting, model.FwdBridge}[i]
			s.inMode(former)
			s.applyServices(s.shop(id))
			p := s.ask(client, model.ProtoTCP, v6)
			back := s.replyOf(p, s.at(id))
			if itself {
				if back.Dst, back.DstMAC = desired.ServiceAddr, desired.RouterMAC; v6 {
					back.Dst = desired.ServiceAddr6
				}
			}
			s.receiverOf(what, s.Send(s.t, p))
			s.answered(what, client, p, back)
			s.receiverOf(what, s.Send(s.t, laterPacket(p)))
			s.inMode(mode)
			s.applyServices(s.shop(id))
			back.TCPFlags = reference.FlagACK
			if v := s.Send(s.t, back); v.Sent != nil && v.Sent.Src == p.Dst || itself && !nowhere(v) {
				s.t.Errorf("%s: the backend answers: %s (%+v), want it in its own name, or to itself nowhere", what, v, v.Sent)
			}
			if !itself {
				s.passesAsIs(what+": the client asks the backend", between(s.top, client, s.at(id), model.ProtoTCP, v6, p.SrcPort, 8080), s.at(id))
				continue
			}
			v := s.Send(s.t, laterPacket(p))
			if s.receiverOf(what+": goes on", v); v.Sent.SrcPort != p.SrcPort {
				s.t.Errorf("%s: goes on from port %d, want %d", what, v.Sent.SrcPort, p.SrcPort)
			}
		}
	}
}

// inMode switches the forwarding mode.
func (s *services) inMode(mode model.FwdMode) {
	s.t.Helper()
	g := s.top.Global
	g.FwdMode = mode
	if err := s.w.Change(func(c *compile.Compiler) { c.SetGlobal(g) }); err != nil {
		s.t.Fatal(err)
	}
}
