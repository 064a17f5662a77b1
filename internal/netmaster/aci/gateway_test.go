package aci_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci/acitest"
)

func newGateway(t *testing.T, sim *acitest.Gateway, change ...func(*aci.GatewayConfig)) *aci.Gateway {
	t.Helper()
	cfg := aci.GatewayConfig{Transport: acitest.Direct(sim), Merges: sim.Merges}
	for _, c := range change {
		c(&cfg)
	}
	g, err := aci.NewGateway(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// two is shop, and a second profile that has nothing to do with it.
func two() aci.Fabric {
	f := shop()
	f.Groups = append(f.Groups, group("mail", 110, "open"), group("log", 111))
	f.Rules = append(f.Rules, rule("open", "1", "", model.ProtoTCP, 25))
	out := rule("open", "2", "log", model.ProtoUDP, 514)
	out.Direction = model.Out
	f.Rules = append(f.Rules, out)
	f.Profiles = append(f.Profiles, model.AppProfile{Key: model.AppProfileKey{Tenant: blue, Name: "office"}, Groups: []model.GroupName{"mail", "log"}})
	return f
}

func key(name string) model.AppProfileKey { return model.AppProfileKey{Tenant: blue, Name: name} }

// Messages to the gateway follow the protocol of 1.x.
func TestGatewayMessagesFollow1x(t *testing.T) {
	sim := &acitest.Gateway{}
	apply(t, newGateway(t, sim), two())
	got := sim.Profiles()
	shop := got["blue:shop"]
	want := []acitest.EPG{
		{Name: "db", Network: "net", CIDR: "10.1.0.1/16", VLAN: "102", Links: []acitest.Link{{Kind: "PROVIDE", Contract: "storeFrmweb", Where: "INTERNAL"}}},
		{Name: "web", Network: "net", CIDR: "10.1.0.1/16", VLAN: "101", Links: []acitest.Link{
			{Kind: "CONSUME", Contract: "storeFrmweb", Where: "INTERNAL"}, {Kind: "CONSUME", DN: "uni/tn-common/brc-internet", Where: "EXTERNAL"},
		}},
	}
	if !reflect.DeepEqual(shop.EPGs, want) {
		t.Errorf("shop: %+v", shop.EPGs)
	}
	if want := []acitest.Contract{{Name: "storeFrmweb", Filters: []acitest.Filter{{Protocol: "icmp", Port: "0"}, {Protocol: "tcp", Port: "80"}}}}; !reflect.DeepEqual(shop.Contracts, want) {
		t.Errorf("shop: %+v", shop.Contracts)
	}
	if c := shop.Config; c.Domain != "containers" || c.Enforce != "yes" || c.WithCommon != "no" || c.Paths != "topology/pod-1/paths-101/pathep-[eth1/14]" || c.Nodes != "topology/pod-1/node-102" {
		t.Errorf("settings: %+v", c)
	}
	office := got["blue:office"]
	if want := []acitest.Contract{{Name: "openExpose", Filters: []acitest.Filter{{Protocol: "tcp", Port: "25"}}}, {Name: "openTolog", Filters: []acitest.Filter{{Protocol: "udp", Port: "514"}}}}; !reflect.DeepEqual(office.Contracts, want) {
		t.Errorf("office: %+v", office.Contracts)
	}
	if l := office.EPGs[0].Links; len(l) != 1 || l[0].Kind != "PROVIDE" || l[0].Contract != "openTolog" {
		t.Errorf("log: %+v", l)
	}
}

// A profile is sent only when it differs; it is not deleted for that.
func TestProfilesAreSentWhenTheyDiffer(t *testing.T) {
	sim := &acitest.Gateway{}
	var kept [][]model.AppProfileKey
	keep := func(c *aci.GatewayConfig) {
		c.Keep = func(_ context.Context, told []model.AppProfileKey) error { kept = append(kept, told); return nil }
	}
	g := newGateway(t, sim, keep)
	apply(t, g, two())
	sim.Calls()
	apply(t, g, two())
	if c := sim.Calls(); len(c) > 0 {
		t.Errorf("told again: %q", c)
	}
	f := two()
	f.Rules[0].Port = 81
	apply(t, g, f)
	if c := sim.Calls(); !slices.Equal(c, []string{"validateAppProf blue:shop", "createAppProf blue:shop"}) {
		t.Errorf("a rule: %q", c)
	}
	if f := sim.Profiles()["blue:shop"].Contracts[0].Filters; len(f) != 2 || f[1].Port != "81" {
		t.Errorf("filters: %v", f)
	}
	f.Profiles = f.Profiles[:1]
	apply(t, g, f)
	if c := sim.Calls(); !slices.Equal(c, []string{"deleteAppProf blue:office"}) {
		t.Errorf("a profile less: %q", c)
	}
	if last := kept[len(kept)-1]; !slices.Equal(last, []model.AppProfileKey{key("shop")}) || len(kept[1]) != 2 {
		t.Errorf("kept: %v", kept)
	}
	again := newGateway(t, sim, func(c *aci.GatewayConfig) { c.Sent = []model.AppProfileKey{key("shop")} })
	apply(t, again, aci.Fabric{Settings: settings()}) // deleted while no process ran
	if p := sim.Profiles(); len(p) > 0 {
		t.Errorf("left: %v", p)
	}
}

// With a gateway that merges, a profile that loses something is deleted first, and
// one that gains something is not.
func TestMergingGatewayGetsDeletionsFirst(t *testing.T) {
	sim := &acitest.Gateway{Merges: true}
	g := newGateway(t, sim)
	apply(t, g, two())
	f := two()
	f.Rules = append(f.Rules, rule("store", "3", "web", model.ProtoTCP, 443))
	sim.Calls()
	apply(t, g, f)
	if c := sim.Calls(); slices.Contains(c, "deleteAppProf blue:shop") {
		t.Errorf("more: %q", c)
	}
	for name, change := range map[string]func(*aci.Fabric){
		"rule":     func(f *aci.Fabric) { f.Rules = f.Rules[1:] },
		"VLAN":     func(f *aci.Fabric) { f.Groups[0].VLAN = 500 },
		"group":    func(f *aci.Fabric) { f.Profiles[0].Groups = f.Profiles[0].Groups[:1] },
		"external": func(f *aci.Fabric) { f.Groups[0].ExtContracts = nil },
		"settings": func(f *aci.Fabric) { f.Settings.PhysicalDomain = "other" },
	} {
		sim := &acitest.Gateway{Merges: true}
		g, f := newGateway(t, sim), two()
		apply(t, g, f)
		sim.Calls()
		change(&f)
		apply(t, g, f)
		if c := sim.Calls(); !slices.Contains(c, "deleteAppProf blue:shop") {
			t.Errorf("less by %s: %q", name, c)
		}
		fresh := &acitest.Gateway{}
		apply(t, newGateway(t, fresh), f)
		if !reflect.DeepEqual(sim.Profiles(), fresh.Profiles()) {
			t.Errorf("less by %s: %+v", name, sim.Profiles())
		}
	}
}

// A failure of the gateway is reported, and the message repeated; a refused profile does
// not delay others.
func TestGatewayFailuresAreReportedAndRepeated(t *testing.T) {
	create := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "createAppProf") }
	for _, fault := range []acitest.Fault{acitest.Unavailable, acitest.Cut, acitest.CutAfter, acitest.Nonsense} {
		sim := &acitest.Gateway{Fault: firstly(1, fault, create)}
		g := newGateway(t, sim)
		if _, err := g.Apply(t.Context(), two()); !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("fault %d: %v", fault, err)
		}
		apply(t, g, two())
		if n := len(sim.Profiles()); n != 2 {
			t.Errorf("fault %d: %d profiles", fault, n)
		}
		if _, err := g.Apply(t.Context(), two()); err != nil {
			t.Error(err)
		}
	}
	sim := &acitest.Gateway{}
	sim.Fault = func(r *http.Request) acitest.Fault {
		if len(sim.Profiles()) == 0 && create(r) {
			r.Method = http.MethodPut // which it refuses
		}
		return acitest.None
	}
	r, err := newGateway(t, sim).Apply(t.Context(), two())
	if !errors.Is(err, model.ErrInvalid) || len(r.Problems) == 0 {
		t.Errorf("%v, %v", r, err)
	}
}

// A problem says that two contracts have one name in 1.x's protocol.
func TestEqualContractNamesAreReported(t *testing.T) {
	f := shop()
	f.Groups[1].Policies = []model.PolicyName{"a", "aFrmb"}
	f.Groups = append(f.Groups, group("bFrmweb", 120))
	f.Profiles[0].Groups = append(f.Profiles[0].Groups, "bFrmweb")
	f.Rules = []model.Rule{rule("a", "1", "bFrmweb", model.ProtoTCP, 1), rule("aFrmb", "1", "web", model.ProtoTCP, 2)}
	sim := &acitest.Gateway{}
	r, err := newGateway(t, sim).Apply(t.Context(), f)
	if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Text, "aFrmbFrmweb") {
		t.Errorf("%v, %v", r.Problems, err)
	}
	if c := sim.Profiles()["blue:shop"].Contracts; len(c) != 1 {
		t.Errorf("contracts: %v", c)
	}
	apply(t, newAPIC(t, newSim(t)), f) // where they have names of their own
	if _, err := aci.NewGateway(aci.GatewayConfig{URL: "::"}); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("a wrong URL: %v", err)
	}
}
