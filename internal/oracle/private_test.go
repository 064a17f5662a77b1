package oracle

import (
	"context"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestWayOut pins what the reference itself says of the way out.
func TestWayOut(t *testing.T) {
	addr := netip.MustParseAddr
	way := desired.NewPrivate(netip.MustParsePrefix("172.19.0.0/16"))
	if way.Addr != addr("172.19.255.254") {
		t.Fatalf("host's address = %s", way.Addr)
	}
	set := &desired.PolicySet{ID: 1, Out: []desired.Tier{{Default: model.Pass, Rules: desired.RulesOf(desired.Rule{
		ID: "no-web", Action: model.Deny, AnyPeer: true, Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: 80, Hi: 80}},
	})}}, In: []desired.Tier{{Default: model.Pass, Rules: desired.RulesOf(desired.Rule{
		ID: "not-from-outside", Action: model.Deny, Identities: desired.IdentitiesOf(model.IdentityExternal), Ports: []model.PortMatch{{Protocol: model.ProtoUDP, Lo: 1, Hi: 65535}},
	})}}}
	h := desired.Host{Name: "h1", Revision: 1, VTEP: addr("192.168.0.1"), ArpMode: model.ArpProxy, Private: way}
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
