package reference

import (
	"context"
	"errors"
	"flag"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

var update = flag.Bool("update", false, "rewrite testdata")

var (
	vtep1 = netip.MustParseAddr("192.168.0.1")
	vtep2 = netip.MustParseAddr("192.168.0.2")
	macA  = model.MAC{2, 2, 10, 0, 0, 1}
	macB  = model.MAC{2, 2, 10, 0, 0, 2}
	macR  = model.MAC{2, 2, 10, 0, 0, 3}
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

// pair is a desired state with two local ports a (policy 5) and b on a VXLAN network
// and one remote endpoint; edit changes it.
func pair(edit func(*desired.Host)) desired.Host {
	h := desired.Host{Name: "h1", Revision: 3, VTEP: vtep1, FwdMode: model.FwdBridge, ArpMode: model.ArpProxy}
	h.Networks = h.Networks.Set(1, &desired.Network{
		ID: 1, Key: model.NetworkKey{Tenant: "blue", Name: "n1"}, Encap: model.EncapVXLAN, Tag: 7,
		Subnet: netip.MustParsePrefix("10.0.0.0/24"), VTEPs: []netip.Addr{vtep2},
	})
	h.Ports = h.Ports.Set("a", &desired.Port{IfName: "a", Network: 1, MAC: macA, IPv4: ip("10.0.0.1"), IPv6: ip("fd00::1"), Identity: 300, Policies: 5})
	h.Ports = h.Ports.Set("b", &desired.Port{IfName: "b", Network: 1, MAC: macB, IPv4: ip("10.0.0.2"), IPv6: ip("fd00::2"), Identity: 301})
	h.Remotes = h.Remotes.Set(desired.RemoteKey{Network: 1, MAC: macR}, &desired.Remote{Network: 1, MAC: macR, IPv4: ip("10.0.0.3"), Identity: 302, VTEP: vtep2})
	h.PolicySets = h.PolicySets.Set(5, &desired.PolicySet{ID: 5, Name: "blue:g1/p1", In: []desired.Tier{{
		Tier: model.TierContiv, Default: model.Pass, Rules: desired.RulesOf(
			desired.Rule{ID: "blue:p1:1", Priority: 9, Action: model.Allow, Identities: desired.IdentitiesOf(301), Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: 80, Hi: 80}}},
			desired.Rule{ID: "blue:p1:2", Priority: 1, Action: model.Deny, CIDRs: []desired.CIDR{{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Network: 1}}},
		),
	}}})
	if edit != nil {
		edit(&h)
	}
	return h
}

func mustApply(t *testing.T, f *Driver, h desired.Host) driver.Report {
	t.Helper()
	r, err := f.Apply(context.Background(), h)
	if err != nil {
		t.Fatalf("Apply() = %v", err)
	}
	return r
}

// TestApplyReportsTheRefusedObject checks that Apply refuses what a kernel would refuse, says so
// of the right object and programs the rest.
func TestApplyReportsTheRefusedObject(t *testing.T) {
	port := func(name string, edit func(*desired.Port)) func(*desired.Host) {
		return func(h *desired.Host) {
			p := desired.Port{IfName: name, Network: 1, MAC: model.MAC{2, 9}, IPv4: ip("10.0.0.9"), Identity: 300}
			edit(&p)
			h.Ports = h.Ports.Set(name, &p)
		}
	}
	network := func(edit func(*desired.Network)) func(*desired.Host) {
		return func(h *desired.Host) {
			n := desired.Network{ID: 2, Encap: model.EncapVXLAN, Tag: 8}
			edit(&n)
			h.Networks = h.Networks.Set(2, &n)
		}
	}
	remote := func(edit func(*desired.Remote)) func(*desired.Host) {
		return func(h *desired.Host) {
			r := desired.Remote{Network: 1, MAC: model.MAC{2, 9}, IPv4: ip("10.0.0.9"), Identity: 300, VTEP: vtep2}
			edit(&r)
			h.Remotes = h.Remotes.Set(desired.RemoteKey{Network: r.Network, MAC: r.MAC}, &r)
		}
	}
	for _, test := range []struct {
		name   string
		edit   func(*desired.Host)
		object string
		kind   error
	}{
		{"long interface name", port("sixteencharacter", func(*desired.Port) {}), "port sixteencharacter", model.ErrInvalid},
		{"name with a slash", port("x/y", func(*desired.Port) {}), "port x/y", model.ErrInvalid},
		{"duplicate MAC", port("x", func(p *desired.Port) { p.MAC = macA }), "port x", model.ErrExists},
		{"duplicate address", port("x", func(p *desired.Port) { p.IPv4 = ip("10.0.0.1") }), "port x", model.ErrExists},
		{"multicast MAC", port("x", func(p *desired.Port) { p.MAC = model.MAC{1} }), "port x", model.ErrInvalid},
		{"no MAC", port("x", func(p *desired.Port) { p.MAC = model.MAC{} }), "port x", model.ErrInvalid},
		{"unknown network", port("x", func(p *desired.Port) { p.Network = 9 }), "port x", model.ErrNotFound},
		{"unknown policy set", port("x", func(p *desired.Port) { p.Policies = 9 }), "port x", model.ErrNotFound},
		{"wrong family", port("x", func(p *desired.Port) { p.IPv4 = ip("fd00::9") }), "port x", model.ErrInvalid},
		{"no interface", port("missing", func(*desired.Port) {}), "port missing", model.ErrNotFound},
		{"same tag", network(func(n *desired.Network) { n.Tag = 7 }), "network 2", model.ErrExists},
		{"tag zero", network(func(n *desired.Network) { n.Tag = 0 }), "network 2", model.ErrInvalid},
		{"VLAN 4095", network(func(n *desired.Network) { n.Encap, n.Tag = model.EncapVLAN, 4095 }), "network 2", model.ErrInvalid},
		{"unknown encapsulation", network(func(n *desired.Network) { n.Encap = "gre" }), "network 2", model.ErrInvalid},
		{"tunnel to nowhere", remote(func(r *desired.Remote) { r.VTEP = netip.Addr{} }), "remote 1/02:09:00:00:00:00", model.ErrInvalid},
		{"remote with a local address", remote(func(r *desired.Remote) { r.IPv4 = ip("10.0.0.1") }), "remote 1/02:09:00:00:00:00", model.ErrExists},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := New()
			f.Interfaces(func(name string) bool { return name != "missing" })
			r := mustApply(t, f, pair(test.edit))
			var found error
			for name, p := range r.Ports.All() {
				if p.Err != nil && portName(name) != test.object {
					t.Errorf("port %s: %v", name, p.Err)
				} else if p.Err != nil {
					found = p.Err
				}
			}
			for _, p := range r.Problems {
				if p.Object != test.object {
					t.Errorf("%s: %v", p.Object, p.Err)
				} else {
					found = p.Err
				}
			}
			if !errors.Is(found, test.kind) {
				t.Errorf("%s: %v, want %v", test.object, found, test.kind)
			}
			if v := f.Send(udp("a", macA, macB, "10.0.0.1", "10.0.0.2", 1, 53)); !v.Passed() {
				t.Errorf("the others do not work: %s", v)
			}
		})
	}
}

func udp(port string, from, to model.MAC, src, dst string, sport, dport uint16) Packet {
	return Packet{Port: port, SrcMAC: from, DstMAC: to, Src: ip(src), Dst: ip(dst), Proto: model.ProtoUDP, SrcPort: sport, DstPort: dport}
}

// TestInspectShowsTheState checks the text of the state.
func TestInspectShowsTheState(t *testing.T) {
	f := New()
	mustApply(t, f, pair(nil))
	got, err := f.Inspect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/inspect.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("Inspect() (-want +got):\n%s", diff)
	}
}

// TestVerdictsHaveReasons checks reasons, deciding rules and counters.
func TestVerdictsHaveReasons(t *testing.T) {
	f := New()
	mustApply(t, f, pair(nil))
	tcp := udp("b", macB, macA, "10.0.0.2", "10.0.0.1", 1000, 80)
	tcp.Proto, tcp.TCPFlags = model.ProtoTCP, FlagSYN
	tunnel := udp("", macR, macA, "10.0.0.3", "10.0.0.1", 1, 2)
	tunnel.VTEP, tunnel.Network = vtep2, 1
	stranger := tunnel
	stranger.Src = ip("10.0.0.77")
	for _, test := range []struct {
		name string
		p    Packet
		want string
	}{
		{"allowed", tcp, "delivered to a by blue:p1:1"},
		{"denied", udp("b", macB, macA, "10.0.0.2", "10.0.0.1", 1000, 80), "dropped (policy) by blue:p1:2"},
		{"no rule", udp("a", macA, macB, "10.0.0.1", "10.0.0.2", 1, 2), "delivered to b"},
		{"answer to it, whatever the rules for new ones say", udp("b", macB, macA, "10.0.0.2", "10.0.0.1", 2, 1), "delivered to a"},
		{"to the tunnel", udp("a", macA, macR, "10.0.0.1", "10.0.0.3", 1, 2), "delivered to vtep 192.168.0.2"},
		{"from the tunnel", tunnel, "dropped (policy) by blue:p1:2"},
		{"stranger in the tunnel", stranger, "dropped (unknown-source)"},
		{"spoofed", udp("a", macA, macB, "10.0.0.3", "10.0.0.2", 1, 2), "dropped (spoof)"},
		{"no such port", udp("z", macA, macB, "10.0.0.1", "10.0.0.2", 1, 2), "dropped (unknown-port)"},
		{"to nobody", udp("a", macA, model.MAC{2, 9}, "10.0.0.1", "10.0.0.9", 1, 2), "dropped (unknown-destination)"},
	} {
		if got := f.Send(test.p).String(); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	s, err := f.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]uint64{driver.DropPolicy: 2, driver.DropUnknownSource: 1, driver.DropSpoof: 1, driver.DropNoPort: 1, driver.DropUnknownDest: 1}, s.Drops); diff != "" {
		t.Errorf("drops (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]driver.RuleStats{"blue:p1:1": {Packets: 1, Bytes: 64}, "blue:p1:2": {Packets: 2, Bytes: 128}}, s.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if got := s.Ports["a"]; got.RxPackets != 2 || got.TxPackets != 4 {
		t.Errorf("port a: %+v", got)
	}
}

// TestNextEndpointInheritsNoConnections checks that the connections of an endpoint do not pass to the
// next one with its address, and that a lost data plane says so.
func TestNextEndpointInheritsNoConnections(t *testing.T) {
	f := New()
	mustApply(t, f, pair(nil))
	there, back := udp("a", macA, macB, "10.0.0.1", "10.0.0.2", 1, 2), udp("b", macB, macA, "10.0.0.2", "10.0.0.1", 2, 1)
	answered := func(want bool) {
		t.Helper()
		if v := f.Send(back); v.Passed() != want {
			t.Errorf("answer: %s", v)
		}
	}
	answered(false)
	f.Send(there)
	answered(true)
	mustApply(t, f, pair(func(h *desired.Host) { h.Ports = h.Ports.Delete("b") }))
	mustApply(t, f, pair(nil))
	answered(false)
	f.Send(there)
	f.Reset("switch died")
	if e := <-f.Events(); e.Reason != "switch died" {
		t.Errorf("event %+v", e)
	}
	if v := f.Send(there); v.Drop != driver.DropNoPort {
		t.Errorf("with a lost data plane: %s", v)
	}
	mustApply(t, f, pair(nil))
	answered(false)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, open := <-f.Events(); open {
		t.Error("events are open after Close")
	}
	if _, err := f.Apply(context.Background(), pair(nil)); err == nil {
		t.Error("Apply() after Close = nil")
	}
}

// TestRefusedPortIsReported checks that a port refused by the data plane is reported
// as such, keeps nothing open, and works later.
func TestRefusedPortIsReported(t *testing.T) {
	f := New()
	boom := errors.New("boom")
	f.Refuse(func(object string) error {
		if object == "port a" {
			return boom
		}
		return nil
	})
	r := mustApply(t, f, pair(nil))
	if !errors.Is(r.Ports.Err("a"), boom) || r.Ports.Err("b") != nil {
		t.Errorf("report %+v", r.Ports)
	}
	f.Refuse(nil)
	if r := mustApply(t, f, pair(nil)); r.Ports.Err("a") != nil || r.Changes != 1 {
		t.Errorf("report %+v", r)
	}
}

// TestFloodedBroadcastReachesAllPortsOnce checks a broadcast in flood mode: to all ports of the
// network on both hosts, once, not back to its sender.
func TestFloodedBroadcastReachesAllPortsOnce(t *testing.T) {
	flood := func(h *desired.Host) { h.ArpMode = model.ArpFlood }
	one, two := New(), New()
	mustApply(t, one, pair(flood))
	mustApply(t, two, pair(func(h *desired.Host) {
		flood(h)
		h.Name, h.VTEP = "h2", vtep2
		n, _ := h.Networks.Get(1)
		other := *n
		other.VTEPs = []netip.Addr{vtep1}
		h.Networks = h.Networks.Set(1, &other)
		h.Ports = desired.Map[string, *desired.Port]{}.Set("r", &desired.Port{IfName: "r", Network: 1, MAC: macR, IPv4: ip("10.0.0.3"), Identity: 302})
		h.Remotes = desired.Map[desired.RemoteKey, *desired.Remote]{}
		for i, mac := range []model.MAC{macA, macB} {
			h.Remotes = h.Remotes.Set(desired.RemoteKey{Network: 1, MAC: mac}, &desired.Remote{
				Network: 1, MAC: mac, IPv4: ip([]string{"10.0.0.1", "10.0.0.2"}[i]), Identity: model.Identity(300 + i), VTEP: vtep1,
			})
		}
	}))
	var fabric Fabric
	fabric.Add("h1", one)
	fabric.Add("h2", two)
	got, hops := fabric.Send("h1", Packet{Port: "b", SrcMAC: macB, DstMAC: Broadcast, ARP: &ARP{
		Op: ARPRequest, SenderMAC: macB, SenderIP: ip("10.0.0.2"), TargetIP: ip("10.0.0.3"),
	}})
	want := []Arrival{{"h1", "a"}, {"h2", "r"}}
	if !slices.Equal(want, got) {
		var s []string
		for _, h := range hops {
			s = append(s, string(h.Host)+": "+h.Verdict.String())
		}
		t.Errorf("arrived at %v, want %v\n%s", got, want, strings.Join(s, "\n"))
	}
	ok, _ := fabric.Reach(Probe{FromHost: "h1", FromPort: "b", ToHost: "h2", ToPort: "r", Proto: model.ProtoTCP, SrcPort: 1000, DstPort: 80})
	if !ok {
		t.Error("b does not reach r")
	}
}
