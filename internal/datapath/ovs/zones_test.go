package ovs

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestDomainsDoNotShareConnectionsOfAZone: a zone of tracking has 16 bits, a domain has more. No domain believes
// what another has left in their zone: not when it takes the zone over in one change,
// nor when it comes later, nor after a restart of the driver in between.
func TestDomainsDoNotShareConnectionsOfAZone(t *testing.T) {
	r := newRig(t)
	a := &desired.Port{IfName: "cvzone0", Network: 7, MAC: model.MAC{2, 2, 10, 9, 0, 1}, IPv4: netip.MustParseAddr("10.9.0.1"), Identity: 300}
	b := &desired.Port{IfName: "cvzone1", Network: 7, MAC: model.MAC{2, 2, 10, 9, 0, 2}, IPv4: netip.MustParseAddr("10.9.0.2"), Identity: 301, Policies: 1}
	for _, p := range []*desired.Port{a, b} {
		r.addWire(t, p.IfName, p.MAC)
	}
	alone := &desired.Network{ID: 7, Encap: model.EncapVXLAN, Tag: 700, Subnet: netip.MustParsePrefix("10.9.0.0/24")}
	joined := &desired.Network{ID: 9, Encap: model.EncapVXLAN, Tag: 900, Subnet: alone.Subnet, Joined: 7}
	picture := func(n *desired.Network) (h desired.Host) {
		h.ArpMode = model.ArpProxy
		if n == nil {
			return h
		}
		h.Networks = h.Networks.Set(n.ID, n)
		h.PolicySets = h.PolicySets.Set(1, &desired.PolicySet{ID: 1, Out: []desired.Tier{{Tier: model.TierContiv, Default: model.Deny}}})
		for _, p := range []*desired.Port{a, b} {
			q := *p
			q.Network = n.ID
			h.Ports = h.Ports.Set(q.IfName, &q)
		}
		return h
	}
	apply := func(h desired.Host) {
		t.Helper()
		if _, err := r.drv.Apply(context.Background(), h); err != nil {
			t.Fatal(err)
		}
	}
	send := func(from, to *desired.Port, src, dst uint16) bool {
		t.Helper()
		v := r.inject(t, reference.Packet{
			Port: from.IfName, SrcMAC: from.MAC, DstMAC: to.MAC, Src: from.IPv4, Dst: to.IPv4,
			Proto: model.ProtoUDP, SrcPort: src, DstPort: dst,
		})
		return len(v.Ports) == 1
	}
	r.open(t)
	defer func() {
		if err := r.drv.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, step := range []struct {
		name    string
		between func()
	}{
		{"taken over", func() {}},
		{"left first", func() { apply(picture(nil)) }},
		{"left, and another driver", func() {
			apply(picture(nil))
			if err := r.drv.Close(); err != nil {
				t.Fatal(err)
			}
			r.open(t)
		}},
		{"another driver", func() {
			if err := r.drv.Close(); err != nil {
				t.Fatal(err)
			}
			r.open(t)
		}},
	} {
		for _, way := range [][2]*desired.Network{{alone, joined}, {joined, alone}} {
			apply(picture(way[0]))
			if !send(a, b, 1000, 2000) || !send(b, a, 2000, 1000) {
				t.Fatalf("%s: no connection, which is allowed", step.name)
			}
			step.between()
			apply(picture(way[1]))
			if send(b, a, 2000, 1000) {
				t.Errorf("%s: domain %d believes in a connection of domain %d", step.name, way[1].Domain(), way[0].Domain())
			}
		}
	}

	if ovstest.Kernel() {
		return // who forgets there is the kernel
	}
	const many = 3000
	apply(picture(alone))
	for i := range many {
		f := conformance.Frame(reference.Packet{
			Port: a.IfName, SrcMAC: a.MAC, DstMAC: b.MAC, Src: a.IPv4, Dst: b.IPv4,
			Proto: model.ProtoUDP, SrcPort: 1000 + uint16(i), DstPort: 2000,
		})
		if err := r.wires[a.IfName].send(f); err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 {
			r.bounce(t, r.wires[a.IfName], func([]byte) {})
		}
	}
	zone := func() string {
		return r.Appctl("dpctl/ct-stats-show", "netdev@ovs-netdev", fmt.Sprint("zone=", zoneOf(alone.Domain())))
	}
	if s := zone(); !strings.Contains(s, fmt.Sprint("Total: ", many)) {
		t.Fatalf("connections before: %s", s)
	}
	apply(picture(joined))
	if s := zone(); !strings.Contains(s, "Total: 0") {
		t.Errorf("connections of a domain that is gone: %s", s)
	}
}
