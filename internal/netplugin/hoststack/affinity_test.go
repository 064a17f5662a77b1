package hoststack

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestClientsStayForTheAffinityTimeout: every client of a service is remembered for the service's affinity
// timeout, wherever the backend is. Timeouts come and go, and existing ones are not written
// again.
func TestClientsStayForTheAffinityTimeout(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		s.serve(s.conts, "tcp", s.pod(0).String())
		here := Target{netip.AddrPortFrom(s.near, 99), External}
		s.serve(s.host, "tcp", here.String())
		front := func(affinity time.Duration, to Target) *Frontend {
			f := frontendOf(to)
			f.Affinity = affinity
			return f
		}
		node := desired.AnyNode(s.vip)
		addr := func(port uint16) FrontendAddr { return FrontendAddr{s.vip, model.ProtoTCP, port} }
		s.frontends.Set(addr(80), front(time.Hour, s.pod(0)))
		s.frontends.Set(addr(81), front(10*time.Minute, s.pod(0)))
		s.frontends.Set(addr(82), front(time.Hour, here))
		s.frontends.Set(addr(83), front(0, s.pod(0)))
		s.frontends.Set(FrontendAddr{node, model.ProtoTCP, 30080}, front(20*time.Minute, s.pod(0)))
		s.lead()
		for _, ns := range []string{s.host, s.beyond} {
			for _, to := range []string{s.at(80), s.at(81), s.at(82), s.at(83), netip.AddrPortFrom(s.near, 30080).String()} {
				if s.ask(ns, "tcp", "", to) == "" {
					t.Fatalf("%s is not reached from %s", to, ns)
				}
			}
		}
		wanted := map[FrontendAddr]time.Duration{addr(80): time.Hour, addr(81): 10 * time.Minute, addr(82): time.Hour, {node, model.ProtoTCP, 30080}: 20 * time.Minute}
		check := func(when string) {
			t.Helper()
			found := 0
			for in, all := range s.clients() {
				side, _, _ := strings.Cut(in, "-")
				for _, e := range all {
					at, ok := s.frontends.tableOf(s.vip).placeOf(in, string(e.Key))
					d := wanted[at]
					if !ok || d == 0 || e.Timeout != d || e.Expires > d || in != clientsOf(side+kindOf(at), shardOf(at)) {
						t.Errorf("%s: in %s at %v a client is remembered for %v of %v, want %v", when, in, at, e.Expires, e.Timeout, d)
					}
					if client := string(e.Key[len(e.Key)-s.vip.BitLen()/8:]); (client == string(s.far.AsSlice())) != (side == sideOutside) {
						t.Errorf("%s: in %s is client %x", when, in, client)
					}
					found++
				}
			}
			if found != 2*len(wanted) {
				t.Errorf("%s: %d clients are remembered, want %d", when, found, 2*len(wanted))
			}
			made := s.handles()
			s.leadLooking(true)
			if got := s.handles(); !slices.Equal(got, made) {
				t.Errorf("%s: what was there was written again:\n%v\nbefore:\n%v", when, got, made)
			}
		}
		check("at first")
		delete(wanted, addr(81))
		s.frontends.Set(addr(81), nil)
		s.lead()
		check("without one")
		delete(wanted, FrontendAddr{node, model.ProtoTCP, 30080})
		s.frontends.Set(FrontendAddr{node, model.ProtoTCP, 30080}, front(0, s.pod(0)))
		s.lead()
		check("without affinity at the node")
		if all := run(t, "ip", "netns", "exec", s.host, "nft", "list", "sets"); strings.Contains(all, timeOf("", 10*time.Minute)) || strings.Contains(all, timeOf("", 20*time.Minute)) || !strings.Contains(all, timeOf(sideOwn, time.Hour)) {
			t.Errorf("times that are there:\n%s", all)
		}
		// Who is with a former target of one side is forgotten, others are not.
		only := front(time.Hour, s.pod(0))
		only.Outside = Choice{Targets: []Target{s.pod(1)}}
		s.frontends.Set(addr(80), only)
		s.lead()
		for in, all := range s.clients() {
			for _, e := range all {
				if at, _ := s.frontends.tableOf(s.vip).placeOf(in, string(e.Key)); at == addr(80) && strings.HasPrefix(in, sideOutside) {
					t.Errorf("in %s a client is with a target of the other side", in)
				}
			}
		}
		if n := len(s.clients()[clientsOf(sideOwn, shardOf(addr(80)))]); n != 2 {
			t.Errorf("%d of this host's own are remembered, want 2", n)
		}
	})
}

// TestClientsWithoutAffinityEntryAreSpreadByAddress: a client that is not remembered, as where there are too many, is
// led by its address, each time to the same backend.
func TestClientsWithoutAffinityEntryAreSpreadByAddress(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		s.named(s.pod(0), "a")
		s.named(s.pod(1), "b")
		f := frontendOf(s.pod(0), s.pod(1))
		f.Affinity = time.Hour
		at := FrontendAddr{s.vip, model.ProtoTCP, 80}
		s.frontends.Set(at, f)
		s.lead()
		got := map[string]int{}
		for range 12 {
			got[s.ask(s.beyond, "tcp", "", s.at(80))]++
			run(t, "ip", "netns", "exec", s.host, "nft", "flush", "map", family(s.vip), ServicesTable, clientsOf(sideOutside, shardOf(at)))
		}
		if len(got) != 1 || got[""] > 0 {
			t.Errorf("connections went to %v", got)
		}
	})
}
