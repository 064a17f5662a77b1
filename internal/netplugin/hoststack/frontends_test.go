package hoststack

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// served is a site whose containers are backends, and Frontends of its host.
type served struct {
	*site
	frontends *Frontends
	pods      [2]netip.Addr
	far       netip.Addr
	near      netip.Addr
	vip       netip.Addr
}

// eachServed runs a test for both families.
func eachServed(t *testing.T, test func(*testing.T, *served)) {
	t.Helper()
	for _, six := range []bool{false, true} {
		t.Run(map[bool]string{false: "IPv4", true: "IPv6"}[six], func(t *testing.T) {
			s := &served{site: newSite6(t), frontends: NewFrontends(slog.New(slog.DiscardHandler), NoRepairs)}
			s.pods, s.far, s.near, s.vip = [2]netip.Addr{netip.MustParseAddr("10.244.0.5"), netip.MustParseAddr("10.244.0.6")}, far, near, netip.MustParseAddr("10.96.0.10")
			if six {
				s.pods, s.far, s.near, s.vip = [2]netip.Addr{netip.MustParseAddr("fd00:244::5"), netip.MustParseAddr("fd00:244::6")}, far6, near6, netip.MustParseAddr("fd00:96::10")
			}
			for _, p := range s.pods {
				run(t, "ip", "-n", s.conts, "addr", "add", fmt.Sprint(p, "/", p.BitLen()), "dev", "c0", "nodad")
			}
			run(t, "ip", "-n", s.beyond, "route", "add", s.vip.String(), "via", s.near.String())
			s.want.Routed = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/64")}
			s.want.Ranges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/108")}
			s.want.Source, s.want.ServiceMTU = near, 1400
			run(t, "ip", "-n", s.host, "-6", "route", "add", "default", "via", far6.String())
			s.good()
			s.frontends.SetNode(s.near, true)
			test(t, s)
		})
	}
}

func (s *served) lead() {
	s.t.Helper()
	s.leadLooking(false)
}

func (s *served) leadLooking(look bool) {
	s.t.Helper()
	if err := in(s.t, s.host, func() error {
		return s.frontends.Apply(context.Background(), InterfaceConfig{desired.HostInterface, [2]netip.Addr{near, near6}}, look)
	}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *served) pod(i int) Target {
	return Target{AddrPort: netip.AddrPortFrom(s.pods[i], 80)}
}

func (s *served) at(port uint16) string { return netip.AddrPortFrom(s.vip, port).String() }

// frontendOf is a front with the same targets for all.
func frontendOf(targets ...Target) *Frontend {
	f := &Frontend{Own: Choice{Targets: targets}, Outside: Choice{Targets: targets}}
	for _, t := range targets {
		f.Keep = append(f.Keep, t.AddrPort)
	}
	return f
}

// TestClientsReachBackendsByFrontends: processes of this host and external clients reach backends by addresses of
// services and by ports of the host, each its own; without any they are refused or dropped.
func TestClientsReachBackendsByFrontends(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		for _, network := range []string{"tcp", "udp"} {
			s.serve(s.conts, network, s.pod(0).String())
			s.serve(s.beyond, network, netip.AddrPortFrom(s.far, 99).String())
		}
		beyond := Target{netip.AddrPortFrom(s.far, 99), External}
		node := desired.AnyNode(s.vip)
		for _, p := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
			s.frontends.Set(FrontendAddr{s.vip, p, 80}, frontendOf(s.pod(0)))
			s.frontends.Set(FrontendAddr{s.vip, p, 81}, frontendOf(beyond))
			s.frontends.Set(FrontendAddr{s.vip, p, 82}, frontendOf())
			s.frontends.Set(FrontendAddr{s.vip, p, 83}, &Frontend{Own: Choice{Targets: []Target{s.pod(0)}}, Outside: Choice{Drop: true}})
			s.frontends.Set(FrontendAddr{node, p, 30080}, frontendOf(s.pod(0)))
			s.frontends.Set(FrontendAddr{node, p, 30082}, frontendOf())
			for i, sources := range [][]string{{"198.51.100.7/32", "2001:db8:7::7/128"}, {"198.51.0.0/18", "198.51.96.0/20", "198.51.112.0/20", "2001:db8:7::/126", "2001:db8:7::4/126"}, {"198.51.100.0/30", "2001:db8:7::8/125"}, {"0.0.0.0/0", "::/0"}, {"255.0.0.0/8"}} {
				f := frontendOf(s.pod(0))
				for _, x := range sources {
					f.Sources = append(f.Sources, netip.MustParsePrefix(x))
				}
				s.frontends.Set(FrontendAddr{s.vip, p, uint16(90 + i)}, f)
			}
		}
		s.lead()
		port := func(p uint16) string { return netip.AddrPortFrom(s.near, p).String() }
		for _, x := range []struct{ name, ns, to, seen string }{
			{"the host", s.host, s.at(80), s.near.String()},
			{"outside", s.beyond, s.at(80), s.far.String()},
			{"the host by its port", s.host, port(30080), s.near.String()},
			{"outside by a port", s.beyond, port(30080), s.far.String()},
			{"the host to somebody beyond", s.host, s.at(81), s.near.String()},
			{"outside to somebody beyond", s.beyond, s.at(81), s.near.String()},
			{"the host where outside has nobody", s.host, s.at(83), s.near.String()},
			{"a source", s.beyond, s.at(90), s.far.String()},
			{"a source in ranges beside each other", s.beyond, s.at(91), s.far.String()},
			{"everybody a source", s.beyond, s.at(93), s.far.String()},
		} {
			for _, network := range []string{"tcp", "udp"} {
				if seen := s.ask(x.ns, network, "", x.to); seen != x.seen {
					t.Errorf("%s: %s to %s was seen as %q, want %q", x.name, network, x.to, seen, x.seen)
				}
			}
		}
		var silent sync.WaitGroup
		for _, x := range []struct {
			to      string
			refused bool
		}{{s.at(82), true}, {s.at(84), true}, {port(30082), true}, {s.at(83), false}, {s.at(92), false}, {s.at(94), false}} {
			for _, network := range []string{"tcp", "udp"} {
				check := func() {
					if refused := s.refuses(s.beyond, network, x.to, x.refused); refused != x.refused {
						t.Errorf("%s at %s refuses: %v, want %v", network, x.to, refused, x.refused)
					}
				}
				if x.refused {
					check()
				} else {
					silent.Go(check) // each waits
				}
			}
		}
		silent.Wait()
		if !s.refuses(s.host, "tcp", s.at(82), true) || !s.refuses(s.host, "udp", s.at(84), true) || !s.refuses(s.host, "tcp", port(30082), true) {
			t.Error("the host is not refused where nobody is")
		}
		// Another machine of the cluster is not believed by this host's tunnel.
		elsewhere := s.pod(1)
		s.serve(s.conts, "tcp", elsewhere.String())
		elsewhere.Location = OtherHost
		s.frontends.Set(FrontendAddr{s.vip, model.ProtoTCP, 95}, frontendOf(elsewhere))
		s.lead()
		if seen := s.ask(s.beyond, "tcp", "", s.at(95)); seen != s.far.String() {
			t.Errorf("a client of a container elsewhere was seen as %q", seen)
		}
		s.frontends.SetMachine(s.far, true)
		s.lead()
		for at, want := range map[uint16]netip.Addr{95: s.near, 80: s.far} {
			if seen := s.ask(s.beyond, "tcp", "", s.at(at)); seen != want.String() {
				t.Errorf("another machine at port %d was seen as %q, want %v", at, seen, want)
			}
		}
		// What is there is not written again, and what somebody takes away comes back.
		made := s.handles()
		s.leadLooking(true)
		again := NewFrontends(slog.New(slog.DiscardHandler), NoRepairs)
		for at, f := range s.frontends.frontends {
			again.Set(at, f)
		}
		again.SetNode(s.near, true)
		again.SetMachine(s.far, true)
		s.frontends = again
		s.lead()
		if got := s.handles(); !slices.Equal(got, made) {
			t.Errorf("what was there was written again:\n%v\nbefore:\n%v", got, made)
		}
		nft := func(args ...string) {
			run(t, append([]string{"ip", "netns", "exec", s.host, "nft"}, args...)...)
		}
		family := family(s.vip)
		for _, harm := range [][]string{{"delete", "table", family, ServicesTable}, {"flush", "map", family, ServicesTable, "own-1"}, {"flush", "chain", family, ServicesTable, "prerouting"}} {
			nft(harm...)
			if seen := s.askFor(unanswered, s.beyond, "tcp", "", s.at(80)); seen != "" {
				t.Fatalf("%v: still reached", harm)
			}
			s.leadLooking(true)
			if seen := s.ask(s.beyond, "tcp", "", s.at(80)); seen != s.far.String() {
				t.Errorf("after %v was put right: seen as %q", harm, seen)
			}
		}
		for at := range s.frontends.frontends {
			s.frontends.Set(at, nil)
		}
		s.lead()
		if all := run(t, "ip", "netns", "exec", s.host, "nft", "list", "tables"); strings.Contains(all, ServicesTable) {
			t.Errorf("tables of fronts that are gone:\n%s", all)
		}
		s.frontends.Set(FrontendAddr{s.vip, model.ProtoTCP, 80}, frontendOf(s.pod(0)))
		s.lead()
		if all, other := run(t, "ip", "netns", "exec", s.host, "nft", "list", "tables"), map[string]string{"ip": "ip6 ", "ip6": "ip "}[family]+ServicesTable; strings.Contains(all, other) || !strings.Contains(all, ServicesTable) {
			t.Errorf("tables with one front of %s:\n%s", family, all)
		}
		if err := in(t, s.host, func() error { return s.frontends.Apply(context.Background(), InterfaceConfig{}, false) }); err != nil {
			t.Fatal(err)
		}
		if all := run(t, "ip", "netns", "exec", s.host, "nft", "list", "tables"); strings.Contains(all, ServicesTable) {
			t.Errorf("tables that nobody wants:\n%s", all)
		}
	})
}

// refuses reports whether somebody is refused at once; more than once where he should be,
// since kernels answer with few errors of ICMP a second.
func (s *served) refuses(ns, network, to string, should bool) (refused bool) {
	s.t.Helper()
	for range 10 {
		if refused = s.refusesOnce(ns, network, to); refused || !should {
			break
		}
	}
	return refused
}

func (s *served) refusesOnce(ns, network, to string) (refused bool) {
	s.t.Helper()
	if err := in(s.t, ns, func() error {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(s.t.Context(), network, to)
		if err == nil {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = c.Write([]byte("?"))
			_, err = c.Read(make([]byte, 1))
		}
		refused = err != nil && strings.Contains(err.Error(), "connection refused")
		return nil
	}); err != nil {
		s.t.Error(err)
	}
	return refused
}

// named answers with a name, so that it is known who was asked.
func (s *served) named(to Target, name string) {
	s.t.Helper()
	if err := in(s.t, s.conts, func() error {
		l, err := new(net.ListenConfig).Listen(s.t.Context(), "tcp", to.String())
		if err != nil {
			return err
		}
		s.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte(name))
				c.Close()
			}
		}()
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *served) asked(n int) map[string]int {
	s.t.Helper()
	out := map[string]int{}
	for range n {
		out[s.ask(s.beyond, "tcp", "", s.at(80))]++
	}
	return out
}

// TestFrontendsSpreadConnectionsAndKeepAffinity: connections are spread; with affinity a client stays with its
// backend, as long as that is one, also past a restart; and then with another one.
func TestFrontendsSpreadConnectionsAndKeepAffinity(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		s.named(s.pod(0), "a")
		s.named(s.pod(1), "b")
		at := FrontendAddr{s.vip, model.ProtoTCP, 80}
		s.frontends.Set(at, frontendOf(s.pod(0), s.pod(1)))
		s.lead()
		if got := s.asked(40); len(got) != 2 || got["a"]+got["b"] != 40 {
			t.Errorf("40 connections went to %v", got)
		}
		set := func(targets ...Target) {
			f := frontendOf(targets...)
			f.Affinity = time.Hour
			s.frontends.Set(at, f)
			s.lead()
		}
		set(s.pod(0), s.pod(1))
		stays := func(when string, other string) string {
			t.Helper()
			got := s.asked(10)
			for name := range got {
				if len(got) == 1 && name != "" && name != other {
					return name
				}
			}
			t.Fatalf("%s: connections went to %v", when, got)
			return ""
		}
		first := stays("with affinity", "")
		if first == "a" {
			set(s.pod(1))
		} else {
			set(s.pod(0))
		}
		second := stays("without the first", first)
		set(s.pod(0), s.pod(1))
		if again := stays("with both again", ""); again != second {
			t.Errorf("the client was with %s and is with %s", second, again)
		}
		former := s.frontends
		s.frontends = NewFrontends(slog.New(slog.DiscardHandler), NoRepairs)
		for at, f := range former.frontends {
			s.frontends.Set(at, f)
		}
		s.frontends.SetNode(s.near, true)
		s.lead()
		if again := stays("after a restart", ""); again != second {
			t.Errorf("the client was with %s, and after a restart with %s", second, again)
		}
		s.frontends.Set(at, frontendOf(s.pod(0), s.pod(1)))
		s.lead()
		if got := s.asked(40); len(got) != 2 {
			t.Errorf("without affinity again connections went to %v", got)
		}
		if all := run(t, "ip", "netns", "exec", s.host, "nft", "list", "sets"); strings.Contains(all, ofTime) {
			t.Errorf("left of times:\n%s", all)
		}
		if all := s.clients(); len(all) > 0 {
			t.Errorf("left of clients: %v", all)
		}
	})
}

// clients are the remembered clients, by their maps.
func (s *served) clients() map[string][]nftables.SetElement {
	s.t.Helper()
	out := map[string][]nftables.SetElement{}
	for _, name := range clientMaps {
		if all := s.elements(name); len(all) > 0 {
			out[name] = all
		}
	}
	return out
}

// elements are those of a map.
func (s *served) elements(name string) (all []nftables.SetElement) {
	s.t.Helper()
	if err := in(s.t, s.host, func() error {
		table := s.frontends.tableOf(s.vip)
		c, err := table.conn()
		if err != nil {
			return err
		}
		all, err = c.GetSetElements(table.setOf(name))
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	return all
}

// TestUDPClientMovesOnceItsBackendIsGone: a client of UDP stays with a backend that is kept for it, and moves to
// another one as soon as it is not. TCP goes on; connections to a gone frontend end.
func TestUDPClientMovesOnceItsBackendIsGone(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		at := FrontendAddr{s.vip, model.ProtoUDP, 80}
		a, b := s.listenUDP(s.conts, s.pod(0).AddrPort), s.listenUDP(s.conts, s.pod(1).AddrPort)
		defer a.Close()
		defer b.Close()
		var client net.Conn
		if err := in(t, s.beyond, func() (err error) {
			client, err = new(net.Dialer).DialContext(t.Context(), "udp", s.at(80))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		arrives := func(when string, to *net.UDPConn) {
			t.Helper()
			if _, err := client.Write([]byte(when)); err != nil {
				t.Fatal(err)
			}
			said := make([]byte, 100)
			_ = to.SetReadDeadline(time.Now().Add(time.Minute))
			if n, err := to.Read(said); err != nil || string(said[:n]) != when {
				t.Fatalf("%s: %q, %v", when, said[:n], err)
			}
		}
		s.frontends.Set(at, frontendOf(s.pod(0)))
		s.lead()
		arrives("first", a)
		kept := frontendOf(s.pod(1))
		kept.Keep = []netip.AddrPort{s.pod(0).AddrPort, s.pod(1).AddrPort}
		s.frontends.Set(at, kept)
		s.lead()
		arrives("kept", a)
		s.frontends.Set(at, frontendOf(s.pod(1)))
		s.lead()
		arrives("gone", b)
		s.frontends.Set(at, nil)
		s.lead()
		if n := s.translated(); n > 0 {
			t.Errorf("%d connections of a front that is gone, the last of all, are there", n)
		}
		_, _ = client.Write([]byte("nobody"))
		s.frontends.Set(at, frontendOf(s.pod(0)))
		s.lead()
		arrives("back", a)
		// The frontend goes while no stack runs that could see it, with others or alone.
		for _, others := range []bool{true, false} {
			s.frontends = NewFrontends(slog.New(slog.DiscardHandler), NoRepairs)
			if others {
				s.frontends.Set(FrontendAddr{s.vip, model.ProtoUDP, 81}, frontendOf(s.pod(0)))
			}
			s.lead()
			if n := s.translated(); n > 0 {
				t.Errorf("others %v: %d connections are there of a front that had gone before the start", others, n)
			}
			s.frontends.Set(at, frontendOf(s.pod(0)))
			s.lead()
			arrives("again", a)
			if s.translated() == 0 {
				t.Error("a connection that is led is not seen")
			}
		}
	})
}

// translated counts connections to the service that are led somewhere.
func (s *served) translated() (n int) {
	s.t.Helper()
	if err := in(s.t, s.host, func() error {
		return eachTracked(func(t trackedConnection) bool {
			if t.routed && t.to.addr == s.vip {
				n++
			}
			return true
		})
	}); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// TestTargetsHaveEqualShares: each target has as many places as every other, and at least half of all
// places of a map that is looked in, and its whole first quarter, have somebody.
func TestTargetsHaveEqualShares(t *testing.T) {
	for n := 1; n <= desired.MaxBackends; n += 1 + n/7 {
		f := &Frontend{}
		for i := range n {
			f.Own.Targets = append(f.Own.Targets, Target{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)})
		}
		f.Outside = f.Own
		table := newFrontendTable(nftables.TableFamilyIPv4)
		at := FrontendAddr{netip.MustParseAddr("10.96.0.1"), model.ProtoTCP, 80}
		table.contribute(at, f, 1)
		size := placesFor(n)
		has, places := map[string]int{}, 0
		for e, h := range table.wanted {
			if e.in == mapOf(sideOwn, size) {
				has[h.to]++
				places++
			}
		}
		for to, k := range has {
			if k*n != places {
				t.Fatalf("%d targets: one (%q) has %d of %d places", n, to, k, places)
			}
		}
		if len(has) != n || 2*places < size {
			t.Errorf("%d targets: %d have %d places of %d", n, len(has), places, size)
		}
		for i := range max(size/4, 1) {
			if table.wanted[element{mapOf(sideOwn, size), keyOf(at) + index(i)}].by == 0 {
				t.Errorf("%d targets: place %d has nobody", n, i)
			}
		}
		table.contribute(at, f, -1)
		if len(table.wanted) > 0 {
			t.Errorf("%d targets: left %v", n, table.wanted)
		}
	}
}
