package ovs

import (
	"net/netip"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestRefusalsAreBounded: the answers that a container's packets cause, to unknown
// destinations and to services without backends, cost a bounded share of time, however much
// it sends; all of its packets are counted as dropped.
func TestRefusalsAreBounded(t *testing.T) {
	r := newRig(t)
	n := &desired.Network{ID: 7, Encap: model.EncapVXLAN, Tag: 700, Joined: 3, Subnet: netip.MustParsePrefix("10.9.0.0/24")}
	p := &desired.Port{IfName: "cvflood", Network: 7, MAC: model.MAC{2, 2, 10, 9, 0, 1}, IPv4: netip.MustParseAddr("10.9.0.1"), Identity: 300}
	r.addWire(t, p.IfName, p.MAC)
	d := r.open(t)
	defer d.Close()
	s := &desired.Service{
		Key: model.ServiceKey{Tenant: "t", Name: "nobody"}, Network: 7, IPv4: netip.MustParseAddr("10.9.0.200"),
		Ports: []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 8080}},
	}
	var h desired.Host
	h.ArpMode = model.ArpProxy
	h.Networks, h.Ports, h.Services = h.Networks.Set(n.ID, n), h.Ports.Set(p.IfName, p), h.Services.Set(s.Key, s)
	if rep, err := d.Apply(t.Context(), h); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	for _, c := range []struct {
		to       netip.Addr
		proto    model.Protocol
		flags    uint8
		answered func(frame []byte) bool
		drop     string
	}{
		{netip.MustParseAddr("203.0.113.9"), model.ProtoUDP, 0, func(f []byte) bool { return f[23] == byte(model.ProtoICMP) }, driver.DropUnknownDest},
		{s.IPv4, model.ProtoTCP, reference.FlagSYN, func(f []byte) bool { return f[23] == byte(model.ProtoTCP) && f[47]&4 != 0 }, driver.DropNoProvider}, // RST
	} {
		t.Run(c.drop, func(t *testing.T) {
			const many = 10000
			w, answers := r.wires[p.IfName], 0
			see := func(f []byte) {
				if c.answered(f) {
					answers++
				}
			}
			start := time.Now()
			for i := range many {
				f := conformance.Frame(reference.Packet{
					Port: p.IfName, SrcMAC: p.MAC, DstMAC: desired.RouterMAC, Src: p.IPv4, Dst: c.to,
					Proto: c.proto, SrcPort: uint16(i + 1), DstPort: 80, TCPFlags: c.flags, // 0 is no port to tracking
				})
				if err := w.send(f); err != nil {
					t.Fatal(err)
				}
				if i%100 == 99 {
					r.bounce(t, w, see)
				}
			}
			r.answered(t)
			r.bounce(t, w, see)
			took := time.Since(start)
			if most := repliesPerSecond * (2 + int(took/time.Second)); answers == 0 || answers > most {
				t.Errorf("%d answers to %d packets within %v, want 1 to %d", answers, many, took, most)
			}
			t.Logf("%d answers to %d packets within %v", answers, many, took)
			eventually(t, "all are counted", func() bool { // which the switch does later
				stats, err := d.Stats(t.Context())
				return err == nil && stats.Drops[c.drop] == many
			})
		})
	}
}
