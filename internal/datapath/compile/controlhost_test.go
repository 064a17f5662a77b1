package compile_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestInfraEndpointReachesTheControlPlane: the host's own endpoint on an infra VLAN network may reach the control
// plane, which the containers beside it, of the same identity, may not; whichever of them
// comes and goes.
func TestInfraEndpointReachesTheControlPlane(t *testing.T) {
	top := conformance.StandardTopology()
	var beside model.Endpoint
	for _, e := range top.Endpoints {
		if n := top.Network(e.Key.Network); e.Host == "h1" && e.Group == "" && n.Encap == model.EncapVLAN {
			beside = e
		}
	}
	if !beside.IPv4.IsValid() {
		t.Fatal("the topology has no container without a group on a VLAN network")
	}
	own := beside
	own.Key.ID, own.MAC[5], own.IPv4, own.IPv6 = model.HostEndpoint("h1"), own.MAC[5]^0x80, netip.Addr{}, netip.Addr{}
	c := conformance.NewCompiler(top, "h1")
	c.Control.Set([]netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:9999")})
	expect := func(when string, denied map[model.EndpointKey]bool) {
		t.Helper()
		pic, problems := c.Compile(1)
		if len(problems) > 0 {
			t.Errorf("%s: problems: %v", when, problems)
		}
		for key, want := range denied {
			p, ok := pic.Ports.Get(compile.IfName(key))
			if !ok {
				t.Errorf("%s: %s has no port", when, key)
				continue
			}
			got := false
			if set, ok := pic.PolicySets.Get(p.Policies); ok {
				for _, tier := range set.Out {
					for _, r := range tier.Ordered() {
						got = got || strings.HasPrefix(r.ID, "control-plane/")
					}
				}
			}
			if got != want {
				t.Errorf("%s: %s is kept from the control plane: %v, want %v", when, key, got, want)
			}
		}
	}
	c.SetEndpoint(own)
	expect("the host came", map[model.EndpointKey]bool{own.Key: false, beside.Key: true})
	c.Control.Set([]netip.AddrPort{netip.MustParseAddrPort("[2001:db8::2]:9999")})
	expect("the control plane moved", map[model.EndpointKey]bool{own.Key: false, beside.Key: true})
	c.DeleteEndpoint(beside.Key)
	expect("the container went", map[model.EndpointKey]bool{own.Key: false})
	c.SetEndpoint(beside)
	expect("the container came", map[model.EndpointKey]bool{own.Key: false, beside.Key: true})
}

// TestControlOnInfraNetworks: containers are denied the control plane at hosts' addresses
// on a VXLAN infra network: on that network, at every address of the hosts too, and
// elsewhere, since their network may be routed to it. It ends with the network.
func TestControlOnInfraNetworks(t *testing.T) {
	top := conformance.StandardTopology()
	c := conformance.NewCompiler(top, "h1")
	denied := func() map[string]string {
		t.Helper()
		pic, _ := c.Compile(1)
		out := map[string]string{}
		for _, p := range pic.Ports.All() {
			n, _ := pic.Networks.Get(p.Network)
			var cidrs []string
			if set, ok := pic.PolicySets.Get(p.Policies); ok {
				for _, tier := range set.Out {
					for _, r := range tier.Ordered() {
						if strings.HasPrefix(r.ID, "control-plane/") {
							for _, x := range r.CIDRs {
								cidrs = append(cidrs, x.Prefix.Addr().String())
							}
						}
					}
				}
			}
			if n.Encap == model.EncapVXLAN {
				out[n.Key.String()] = strings.Join(cidrs, " ")
			}
		}
		return out
	}
	var infra model.Network
	for _, e := range top.Endpoints {
		if n := top.Network(e.Key.Network); e.Host == "h1" && n.Encap == model.EncapVXLAN && n.Subnet.IsValid() {
			infra = n
		}
	}
	if !infra.Subnet.IsValid() {
		t.Fatal("the topology has no container on a VXLAN network")
	}
	infra.Type = model.NetworkInfra
	there, machine := infra.Subnet.Addr().Next().String(), "198.51.100.1"
	c.Control.Set([]netip.AddrPort{netip.MustParseAddrPort(there + ":9999"), netip.MustParseAddrPort(machine + ":9999")})
	for network, got := range denied() {
		if got != "" {
			t.Errorf("without an infra network, %s: denied %s", network, got)
		}
	}
	c.SetNetwork(infra)
	for network, got := range denied() {
		want := there
		if network == infra.Key.String() {
			want += " " + machine
		}
		if got != want {
			t.Errorf("%s: denied %q, want %q", network, got, want)
		}
	}
	infra.Type = model.NetworkData
	c.SetNetwork(infra)
	for network, got := range denied() {
		if got != "" {
			t.Errorf("after the infra network, %s: denied %s", network, got)
		}
	}
}
