package compile_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestPortsOnVLANDenyTheControlPlane: ports of VLAN networks, in a group or in none, deny the control
// plane where they reach it past their host; those of others have what they had,
// and so has everybody when it is gone.
func TestPortsOnVLANDenyTheControlPlane(t *testing.T) {
	top := conformance.StandardTopology()
	c := conformance.NewCompiler(top, "h1")
	before, _ := c.Compile(1)
	c.Control.Set([]netip.AddrPort{netip.MustParseAddrPort("198.51.100.1:9999"), netip.MustParseAddrPort("[2001:db8::1]:2379"), netip.MustParseAddrPort("198.51.100.1:9999")})
	pic, problems := c.Compile(2)
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	vlan := 0
	for name, p := range pic.Ports.All() {
		n, _ := pic.Networks.Get(p.Network)
		set, _ := pic.PolicySets.Get(p.Policies)
		old, _ := before.Ports.Get(name)
		was, _ := before.PolicySets.Get(old.Policies)
		denied := map[string]bool{}
		if set != nil {
			for _, tier := range set.Out {
				for _, r := range tier.Ordered() {
					if strings.HasPrefix(r.ID, "control-plane/") && r.Action == model.Deny && len(r.CIDRs) == 1 {
						denied[r.ID+" "+r.CIDRs[0].Prefix.String()] = true
					}
				}
			}
		}
		if n.Encap != model.EncapVLAN {
			if len(denied) > 0 || old.Policies != p.Policies {
				t.Errorf("port %s of %s: denied %v", name, n.Key, denied)
			}
			continue
		}
		vlan++
		if four := denied["control-plane/9999 198.51.100.1/32"]; four != n.Gateway.IsValid() || !denied["control-plane/2379 2001:db8::1/128"] {
			t.Errorf("port %s of %s (gateway %v): denied %v", name, n.Key, n.Gateway, denied)
		}
		if was != nil && len(set.Out) != len(was.Out)+1 {
			t.Errorf("port %s of %s has lost its policy", name, n.Key)
		}
	}
	if vlan == 0 {
		t.Fatal("the topology has no port on a VLAN network")
	}
	c.Control.Set(nil)
	after, _ := c.Compile(3)
	for ch := range after.Ports.Diff(before.Ports) {
		if *ch.Old != *ch.New {
			t.Errorf("port %s differs from before", ch.Key)
		}
	}
	for ch := range after.PolicySets.Diff(before.PolicySets) {
		t.Errorf("policy set %v differs from before", ch.Key)
	}
}
