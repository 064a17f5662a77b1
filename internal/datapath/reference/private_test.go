package reference

import (
	"context"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestEgressTranslatesAddresses pins what the reference itself says of egress.
func TestEgressTranslatesAddresses(t *testing.T) {
	addr := netip.MustParseAddr
	way := desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16"))
	if way.Addr != addr("172.19.255.254") {
		t.Fatalf("host's address = %s", way.Addr)
	}
	set := &desired.PolicySet{ID: 1, Out: []desired.Tier{{Default: model.Pass, Rules: desired.RulesOf(desired.Rule{
		ID: "no-web", Action: model.Deny, AnyPeer: true, Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: 80, Hi: 80}},
	})}}, In: []desired.Tier{{Default: model.Pass, Rules: desired.RulesOf(desired.Rule{
		ID: "not-from-outside", Action: model.Deny, Identities: desired.IdentitiesOf(model.IdentityExternal), Ports: []model.PortMatch{{Protocol: model.ProtoUDP, Lo: 1, Hi: 65535}},
	})}}}
	h := desired.Host{Name: "h1", Revision: 1, VTEP: addr("192.168.0.1"), ArpMode: model.ArpProxy, HostNAT: way}
	h.PolicySets = h.PolicySets.Set(1, set)
	for i, tenant := range []model.TenantName{"blue", "red"} { // equal addresses
		id := model.NetworkID(i + 1)
		h.Networks = h.Networks.Set(id, &desired.Network{
			ID: id, Key: model.NetworkKey{Tenant: tenant, Name: "n"}, Encap: model.EncapVXLAN, Tag: uint32(id), Subnet: netip.MustParsePrefix("10.0.0.0/24"),
		})
		h.Ports = h.Ports.Set(string(tenant), &desired.Port{
			IfName: string(tenant), Network: id, MAC: model.MAC{2, 2, 10, 0, 0, 1}, IPv4: addr("10.0.0.1"),
			Identity: model.IdentityFirst + model.Identity(i), Policies: 1, Private: addr([]string{"172.19.0.1", "172.19.0.2"}[i]),
		})
	}
	f := New()
	if _, err := f.Apply(context.Background(), h); err != nil {
		t.Fatal(err)
	}
	out := Packet{
		Port: "red", SrcMAC: model.MAC{2, 2, 10, 0, 0, 1}, DstMAC: desired.RouterMAC, Src: addr("10.0.0.1"), Dst: addr("198.51.100.7"),
		Proto: model.ProtoTCP, SrcPort: 4000, DstPort: 443, TCPFlags: FlagSYN,
	}
	v := f.Send(out)
	if !v.Host || v.Sent == nil || v.Sent.Src != addr("172.19.0.2") || v.Sent.Dst != out.Dst {
		t.Errorf("out: %s", v)
	}
	back := Packet{Host: true, Src: out.Dst, Dst: addr("172.19.0.2"), Proto: model.ProtoTCP, SrcPort: 443, DstPort: 4000, TCPFlags: FlagSYN | FlagACK}
	if v := f.Send(back); len(v.Ports) != 1 || v.Ports[0] != "red" || v.Sent.Dst != addr("10.0.0.1") || v.Sent.DstMAC != out.SrcMAC {
		t.Errorf("back: %s", v)
	}
	back.Dst = addr("172.19.0.1") // the other tenant's asked for nothing
	if v := f.Send(back); v.Drop != driver.DropInvalid {
		t.Errorf("answer to the other tenant: %s", v)
	}
	out.DstPort = 80
	if v := f.Send(out); v.Drop != driver.DropPolicy || len(v.Rules) != 1 || v.Rules[0] != "no-web" {
		t.Errorf("denied out: %s", v)
	}
	in := Packet{Host: true, Src: way.Addr, Dst: addr("172.19.0.1"), Proto: model.ProtoUDP, SrcPort: 9, DstPort: 9}
	if v := f.Send(in); v.Drop != driver.DropPolicy {
		t.Errorf("denied in: %s", v)
	}
	in.Proto, in.TCPFlags = model.ProtoTCP, FlagSYN
	if v := f.Send(in); len(v.Ports) != 1 || v.Ports[0] != "blue" {
		t.Errorf("in: %s", v)
	}
	for to, why := range map[string]string{"10.0.0.9": driver.DropUnknownDest, "172.19.0.1": driver.DropUnknownDest, "127.0.0.1": driver.DropUnknownDest} {
		out.Dst, out.DstPort = addr(to), 443
		if v := f.Send(out); v.Drop != why {
			t.Errorf("to %s: %s", to, v)
		}
	}
	ask := Packet{Port: "red", SrcMAC: out.SrcMAC, DstMAC: Broadcast, ARP: &ARP{Op: ARPRequest, SenderMAC: out.SrcMAC, SenderIP: out.Src, TargetIP: desired.RouterAddr}}
	if v := f.Send(ask); v.Answer == nil || v.Answer.SrcMAC != desired.RouterMAC {
		t.Errorf("ARP for the router: %s", v)
	}
}

// TestIPv6EgressTranslatesAddresses pins the same for IPv6.
func TestIPv6EgressTranslatesAddresses(t *testing.T) {
	addr := netip.MustParseAddr
	way := desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16")).WithIPv6()
	if way.Addr6 != addr("fd6d:809b:d5b4::ac13:fffe") {
		t.Fatalf("host's address = %s", way.Addr6)
	}
	h := desired.Host{Name: "h1", Revision: 1, VTEP: addr("192.168.0.1"), ArpMode: model.ArpProxy, HostNAT: way}
	mac := model.MAC{2, 2, 10, 0, 0, 1}
	for i, tenant := range []model.TenantName{"blue", "red"} { // equal addresses; IPv6 only
		id := model.NetworkID(i + 1)
		h.Networks = h.Networks.Set(id, &desired.Network{
			ID: id, Key: model.NetworkKey{Tenant: tenant, Name: "n"}, Encap: model.EncapVXLAN, Tag: uint32(id), Subnet6: netip.MustParsePrefix("2001:db8:9::/64"),
		})
		h.Ports = h.Ports.Set(string(tenant), &desired.Port{
			IfName: string(tenant), Network: id, MAC: mac, IPv6: addr("2001:db8:9::1"),
			Identity: model.IdentityFirst + model.Identity(i), Private6: way.Private6(addr([]string{"172.19.0.1", "172.19.0.2"}[i])),
		})
	}
	f := New()
	if r, err := f.Apply(context.Background(), h); err != nil || len(r.Problems) > 0 {
		t.Fatal(err, r.Problems)
	}
	private := addr("fd6d:809b:d5b4::ac13:2")
	out := Packet{
		Port: "red", SrcMAC: mac, DstMAC: desired.RouterMAC, Src: addr("2001:db8:9::1"), Dst: addr("2001:db8::7"),
		Proto: model.ProtoTCP, SrcPort: 4000, DstPort: 443, TCPFlags: FlagSYN,
	}
	if v := f.Send(out); !v.Host || v.Sent == nil || v.Sent.Src != private || v.Sent.Dst != out.Dst {
		t.Errorf("out: %s", v)
	}
	back := Packet{Host: true, Src: out.Dst, Dst: private, Proto: model.ProtoTCP, SrcPort: 443, DstPort: 4000, TCPFlags: FlagSYN | FlagACK}
	if v := f.Send(back); len(v.Ports) != 1 || v.Ports[0] != "red" || v.Sent.Dst != out.Src || v.Sent.DstMAC != mac {
		t.Errorf("back: %s", v)
	}
	seen := out
	seen.Src = private
	big := Packet{Host: true, Src: addr("2001:db8:1::1"), Dst: private, Proto: model.ProtoICMPv6, ICMPType: 2, Inner: &seen}
	if v := f.Send(big); len(v.Ports) != 1 || v.Sent.Inner == nil || v.Sent.Inner.Src != out.Src {
		t.Errorf("packet too big: %s", v)
	}
	back.Dst = addr("fd6d:809b:d5b4::ac13:1")
	if v := f.Send(back); v.Drop != driver.DropInvalid {
		t.Errorf("answer to the other tenant: %s", v)
	}
	in := Packet{Host: true, Src: way.Addr6, Dst: private, Proto: model.ProtoTCP, SrcPort: 9, DstPort: 9, TCPFlags: FlagSYN}
	if v := f.Send(in); len(v.Ports) != 1 || v.Ports[0] != "red" {
		t.Errorf("in: %s", v)
	}
	for _, from := range []netip.Addr{addr("2001:db8:9::2"), desired.RouterMAC.LinkLocal()} {
		if in.Src = from; f.Send(in).Drop != driver.DropSpoof {
			t.Errorf("in from %s: %s", from, f.Send(in))
		}
	}
	for _, to := range []string{"2001:db8:9::9", "fd6d:809b:d5b4::ac13:1", "::1", "::ffff:198.51.100.7", "fe80::1", "ff05::1"} {
		if out.Dst = addr(to); f.Send(out).Drop != driver.DropUnknownDest {
			t.Errorf("to %s: %s", to, f.Send(out))
		}
	}
	for _, router := range []netip.Addr{addr("fe80::1:ff:fe00:1"), addr("2001:db8:9::fe")} {
		ask := Packet{
			Port: "red", SrcMAC: mac, DstMAC: model.MAC{0x33, 0x33, 0xff, 0, 0, 1}, Src: addr("2001:db8:9::1"), Dst: addr("ff02::1:ff00:1"),
			Proto: model.ProtoICMPv6, ICMPType: NDNeighborSolicit, ND: &ND{Target: router, LinkAddr: mac, HasLink: true},
		}
		v := f.Send(ask)
		if router.IsLinkLocalUnicast() && (v.Answer == nil || v.Answer.SrcMAC != desired.RouterMAC || v.Answer.ND.Target != router) {
			t.Errorf("neighbour discovery for the router %s: %s", router, v)
		} else if !router.IsLinkLocalUnicast() && v.Answer != nil {
			t.Errorf("neighbour discovery for nobody's %s: %s", router, v)
		}
	}
}
