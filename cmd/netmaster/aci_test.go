package main

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci/acitest"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci/controller"
)

// fabricOptions are a command line's, or why it is refused.
func fabricOptions(t *testing.T, args ...string) (options, error) {
	t.Helper()
	var o options
	fs := newFlags(&o)
	err := fs.ParseAll(append([]string{"--internal-address", "127.0.0.1:1"}, args...), func(string) string { return "" })
	if err == nil {
		err = o.finish(t.Context(), fs)
	}
	return o, err
}

// TestFabricFlagsTakeEffect: each flag about the fabric does what it says, over real connections.
func TestFabricFlagsTakeEffect(t *testing.T) {
	sim := acitest.NewAPIC()
	server := sim.Start()
	t.Cleanup(server.Close)
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	password := file("password", sim.Password+"\n")
	ca := file("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	web := model.Group{Key: model.GroupKey{Tenant: "blue", Name: "web"}, Network: "net", Policies: []model.PolicyName{"p"}}
	fabric := aci.Fabric{
		Profiles: []model.AppProfile{{Key: model.AppProfileKey{Tenant: "blue", Name: "shop"}, Groups: []model.GroupName{"web"}}},
		Groups:   []aci.Group{{Group: web, VLAN: 7}},
		Networks: []model.Network{{Key: model.NetworkKey{Tenant: "blue", Name: "net"}}},
		Rules: []model.Rule{{
			Key: model.RuleKey{Tenant: "blue", Policy: "p", Rule: "1"}, Direction: model.In, Priority: 1, Action: model.Allow, Protocol: model.ProtoTCP, Port: 80,
		}},
	}
	keep := func(f aci.Fabric, args ...string) error {
		o, err := fabricOptions(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		target, err := o.aci.target(controller.SentState{Sent: []model.AppProfileKey{{Tenant: "blue", Name: "shop"}}})
		if err != nil {
			t.Fatal(err)
		}
		defer target.Close(t.Context())
		_, err = target.Apply(t.Context(), f)
		return err
	}
	at := []string{"--apic", server.URL, "--apic-user", sim.User, "--apic-password-file", password}
	if err := keep(fabric, at...); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an APIC that no authority knows: %v", err)
	}
	if err := keep(fabric, append(at, "--apic-ca", ca, "--apic-cluster", "seven")...); err != nil {
		t.Fatal(err)
	}
	if o := sim.Tree()["uni/tn-blue/ap-shop/epg-web"]; o.Props["annotation"] != "orchestrator:contiv-seven" {
		t.Errorf("the group in the fabric: %+v", o)
	}
	if err := keep(fabric, append(at, "--apic-ca", ca, "--apic-user", "nobody")...); err == nil {
		t.Error("a user that the APIC does not know was taken")
	}

	for _, merges := range []bool{false, true} {
		gateway := &acitest.Gateway{Merges: merges}
		s := httptest.NewServer(gateway)
		args := []string{"--aci-gw", s.URL}
		if merges {
			args = append(args, "--aci-gw-merges")
		}
		if err := keep(fabric, args...); err != nil {
			t.Error(err)
		}
		less := fabric
		less.Rules = nil
		if err := keep(less, args...); err != nil {
			t.Error(err)
		}
		if p := gateway.Profiles()["blue:shop"]; len(p.EPGs) != 1 || len(p.Contracts) != 0 {
			t.Errorf("a gateway that merges (%v) has %+v after %v", merges, p, gateway.Calls())
		}
		s.Close()
	}
	if o, err := fabricOptions(t); err != nil || o.aci.description() != aci.GatewayURL {
		t.Errorf("without flags: %q, %v", o.aci.description(), err)
	}
	for want, args := range map[string][]string{
		"--apic":           {"--apic-user", "x"},
		"--apic-user":      {"--apic", "https://a"},
		"omit one":         {"--apic", "https://a", "--aci-gw", "http://b"},
		"such as https":    {"--apic", "https://me:secret@a"},
		"password of":      {"--apic", "https://a", "--apic-user", "x", "--apic-password-file", "/nowhere"},
		"authority of":     {"--apic", "https://a", "--apic-user", "x", "--apic-password-file", password, "--apic-ca", password},
		"1 to 64 letters,": {"--apic", "https://a", "--apic-user", "x", "--apic-password-file", password, "--apic-cluster", "a b"},
	} {
		if _, err := fabricOptions(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
