package conformance

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// groupMAC is where a group's packets go (RFC 1112 section 6.4, RFC 2464 section 7).
func groupMAC(a netip.Addr) model.MAC {
	if a.Is4() {
		b := a.As4()
		return model.MAC{1, 0, 0x5e, b[1] & 0x7f, b[2], b[3]}
	}
	b := a.As16()
	return model.MAC{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

// members puts groups into a desired state, with endpoints of blue and red on h1 as members.
func members(pic desired.Host, top Topology, of map[string][]model.EndpointKey) desired.Host {
	pic.Groups = desired.Map[desired.GroupKey, *desired.Group]{}
	for group, keys := range of {
		ports := map[model.NetworkID][]string{}
		for _, key := range keys {
			id := top.Network(key.Network).ID
			ports[id] = append(ports[id], compile.IfName(key))
		}
		for id, names := range ports {
			slices.Sort(names)
			pic.Groups = pic.Groups.Set(desired.GroupKey{Network: id, Addr: netip.MustParseAddr(group)}, &desired.Group{Ports: names})
		}
	}
	return pic
}

// testMulticast: what is sent to a group goes to its members here that may have it, and
// to all hosts of the network or the uplink; in proxy and in flood mode, and at once when
// members come and go.
func testMulticast(t *testing.T, h Harness) {
	t.Helper()
	if h.Send == nil {
		t.Skip("the harness has no Send")
	}
	at := func(tenant model.TenantName, network model.NetworkName, id model.EndpointID) model.EndpointKey {
		return model.EndpointKey{Network: model.NetworkKey{Tenant: tenant, Name: network}, ID: id}
	}
	web1, db1, solo1 := at("blue", "vx", "web1"), at("blue", "vx", "db1"), at("blue", "vx", "solo1")
	lan1, lonely1, red1 := at("blue", "vl", "lan1"), at("blue", "vl", "lonely1"), at("red", "vx", "db1")
	all := map[string][]model.EndpointKey{
		"239.1.1.1": {web1, db1, lan1, red1}, "239.1.1.2": {solo1, lonely1}, "ff05::1": {db1, lan1}, "ff0e::1:3": {web1},
		"224.0.0.251": {web1}, "ff02::fb": {web1}, // of the link: no driver heeds these
	}
	fewer := map[string][]model.EndpointKey{"239.1.1.1": {solo1, db1}, "ff05::1": {lan1}}
	senders := []model.EndpointKey{web1, solo1, at("blue", "vx", "db2"), lan1, at("blue", "vl", "lan2"), at("red", "vx", "web1")}
	groups := []string{"239.1.1.1", "239.1.1.2", "239.9.9.9", "224.0.0.251", "224.0.1.1", "ff05::1", "ff0e::1:3", "ff05::9", "ff02::fb"}
	sport := uint16(40000)
	deny := func(direction model.Direction, to model.GroupName, with model.Rule) Case {
		with.Key, with.Direction, with.Priority, with.Action = model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "1"}, direction, 10, model.Deny
		return Case{
			Policies: []model.ContivPolicy{{Key: model.PolicyKey{Tenant: "blue", Name: "p1"}}}, Rules: []model.Rule{with},
			Attach: map[model.GroupKey][]model.PolicyName{{Tenant: "blue", Name: to}: {"p1"}},
		}
	}
	cases := map[string]Case{
		"":                  {},
		"no UDP to db":      deny(model.In, "db", model.Rule{Protocol: model.ProtoUDP}),
		"no UDP from web":   deny(model.Out, "web", model.Rule{Protocol: model.ProtoUDP, Port: 5000}),
		"none from web":     deny(model.In, "db", model.Rule{Protocol: model.AnyProtocol, Group: "web"}),
		"none from lan":     deny(model.In, "lan", model.Rule{Protocol: model.AnyProtocol, Group: "lan"}),
		"none to the group": deny(model.Out, "web", model.Rule{Protocol: model.ProtoUDP, Addr: netip.MustParsePrefix("239.1.1.0/30")}),
	}
	for _, mode := range []model.ArpMode{model.ArpProxy, model.ArpFlood} {
		top := StandardTopology()
		top.Global.ArpMode = mode
		b := open(t, h)
		w, err := NewWorld(top, Case{})
		if err != nil {
			t.Fatal(err)
		}
		if mode == model.ArpProxy {
			b.interfaces(t, w.Desired["h1"])
		}
		for name, c := range cases {
			if name != "" && mode == model.ArpFlood {
				continue
			}
			if err := w.Switch(c); err != nil {
				t.Fatal(err)
			}
			for step, of := range []map[string][]model.EndpointKey{all, fewer} {
				if name != "" && step > 0 {
					continue
				}
				b.apply(t, members(w.Desired["h1"], top, of))
				for _, from := range senders {
					for _, group := range groups {
						a := netip.MustParseAddr(group)
						e := top.Endpoint(from)
						sport++
						p := between(top, e, e, model.ProtoUDP, a.Is6(), sport, 5000)
						p.DstMAC, p.Dst = groupMAC(a), a
						b.compare(t, fmt.Sprintf("%s, %s, members %d: %s to %s", mode, name, step, from.ID, group), p)
					}
				}
			}
		}
		pic := members(w.Desired["h1"], top, all)
		b.apply(t, pic)
		b.restart(t)
		b.apply(t, pic)
		if r := b.apply(t, pic); r.Changes != 0 {
			t.Errorf("the second Apply after a restart made %d changes", r.Changes)
		}
		b.apply(t, members(pic, top, nil))
		b.compare(t, "nobody is a member", reference.Packet{
			Port: compile.IfName(solo1), SrcMAC: top.Endpoint(solo1).MAC, DstMAC: groupMAC(netip.MustParseAddr("239.1.1.1")), Src: top.Endpoint(solo1).IPv4,
			Dst: netip.MustParseAddr("239.1.1.1"), Proto: model.ProtoUDP, SrcPort: 1, DstPort: 5000,
		})
		b.close(t)
	}
}
