package compile_test

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// TestPortsHaveNATAddressesWithEgressOnly: ports of this host show their private addresses while there is a
// egress that they fit; nothing else changes for it.
func TestPortsHaveNATAddressesWithEgressOnly(t *testing.T) {
	top := conformance.StandardTopology()
	c := conformance.NewCompiler(top, "h1")
	before, _ := c.Compile(1)
	way := desired.NewHostNAT(top.Global.PvtSubnet)
	e := top.Endpoints[0]
	name, addr := compile.IfName(e.Key), netip.MustParseAddr("172.19.0.9")
	show := func(what string, want netip.Addr, pointer *desired.HostNAT) {
		t.Helper()
		pic, problems := c.Compile(2)
		p, ok := pic.Ports.Get(name)
		if !ok || p.Private != want || pic.HostNAT != pointer || len(problems) > 0 {
			t.Errorf("%s: private %v, egress %v, problems %v; want %v, %v", what, p.Private, pic.HostNAT, problems, want, pointer)
		}
	}
	c.Egress.SetPrivateAddress(e.Key, addr)
	show("an address and no egress", netip.Addr{}, nil)
	c.Egress.SetPrivate(way)
	show("both", addr, way)
	again := *way
	c.Egress.SetPrivate(&again)
	show("the same again", addr, way)
	elsewhere := desired.NewHostNAT(netip.MustParsePrefix("172.30.0.0/16"))
	c.Egress.SetPrivate(elsewhere)
	show("egress that the address does not fit", netip.Addr{}, elsewhere)
	c.Egress.SetPrivate(way)
	c.Egress.SetPrivateAddress(e.Key, netip.Addr{})
	show("no address", netip.Addr{}, way)
	c.Egress.SetPrivate(nil)
	after, _ := c.Compile(3)
	for ch := range after.Ports.Diff(before.Ports) {
		if *ch.Old != *ch.New {
			t.Errorf("port %s differs from before", ch.Key)
		}
	}
}
