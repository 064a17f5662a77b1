package conformance

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
)

// testTiers: rules in all tiers at once, the tier that guards the control plane
// included. For each two tiers there is a port that the first allows and the second
// denies, and a port the other way round; a port that all tiers pass on is denied
// by the last one's default, and the control plane's port is denied before all
// tiers.
func testTiers(t *testing.T, h Harness) {
	t.Helper()
	if h.Send == nil {
		t.Skip("the harness has no Send")
	}
	b := open(t, h)
	top := StandardTopology()
	at := func(id model.EndpointID) model.Endpoint {
		return top.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "vl"}, ID: id})
	}
	lan1, lan2 := at("lan1"), at("lan2")
	const control = 9999
	ports := []uint16{2000, control}
	allow, deny := map[model.Tier][]uint16{model.TierAdmin: {control}}, map[model.Tier][]uint16{}
	for i, x := range model.Tiers() {
		for j, y := range model.Tiers() {
			if i != j {
				port := uint16(3000 + 100*i + j)
				ports, allow[x], deny[y] = append(ports, port), append(allow[x], port), append(deny[y], port)
			}
		}
	}
	var c Case
	for _, tier := range model.Tiers() {
		p := model.Policy{
			Key: model.PolicyKey{Tenant: "blue", Name: model.PolicyName(tier.String())}, Kind: model.KindNetwork, Owner: model.OwnerUser,
			Tier: tier, Order: 100, Applies: model.Selector{Tenant: "blue", Group: "lan"},
		}
		if tier == model.TierBaseline {
			p.Default.Out = model.Deny
		}
		c.General = append(c.General, p)
		for action, list := range map[model.Action][]uint16{model.Allow: allow[tier], model.Deny: deny[tier], model.Pass: {2000}} {
			for _, port := range list {
				c.GeneralRules = append(c.GeneralRules, model.PolicyRule{
					Key:       model.RuleKey{Tenant: "blue", Policy: p.Key.Name, Rule: model.RuleID(fmt.Sprint(port))},
					Direction: model.Out, Priority: 1, Action: action,
					Ports: []model.PortMatch{{Protocol: model.ProtoTCP, Lo: port, Hi: port}},
				})
			}
		}
	}
	w, err := NewWorld(top, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Change(func(c *compile.Compiler) { c.Control.Set([]netip.AddrPort{netip.AddrPortFrom(lan2.IPv4, control)}) }); err != nil {
		t.Fatal(err)
	}
	pic := w.Desired["h1"]
	port, _ := pic.Ports.Get(compile.IfName(lan1.Key))
	set, ok := pic.PolicySets.Get(port.Policies)
	if want := 1 + len(model.Tiers()); !ok || len(set.Out) != want {
		t.Fatalf("the set of %s has not rules in %d tiers: %+v", lan1.Key, want, set)
	}
	b.interfaces(t, pic)
	b.apply(t, pic)
	for i, port := range ports {
		b.compare(t, fmt.Sprintf("port %d", port), between(top, lan1, lan2, model.ProtoTCP, false, 30000+uint16(i), port))
	}
}
