package ovs

import (
	"net/netip"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/drivertest"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/oracle"
)

// TestServiceRefusalsAreBounded: of 10,000 connections to a service that nobody provides
// so many are refused as the driver answers in that time; all are counted as dropped.
func TestServiceRefusalsAreBounded(t *testing.T) {
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
	if rep, err := d.Apply(t.Context(), h); err != nil || drivertest.Failed(rep) != nil {
		t.Fatal(err, drivertest.Failed(rep))
	}
	const many = 10000
	w, resets := r.wires[p.IfName], 0
	see := func(f []byte) {
		if f[23] == byte(model.ProtoTCP) && f[47]&4 != 0 { // RST
			resets++
		}
	}
	start := time.Now()
	for i := range many {
		f := drivertest.Frame(oracle.Packet{
			Port: p.IfName, SrcMAC: p.MAC, DstMAC: desired.RouterMAC, Src: p.IPv4, Dst: s.IPv4,
			Proto: model.ProtoTCP, SrcPort: uint16(i + 1), DstPort: 80, TCPFlags: oracle.FlagSYN,
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
	if most := answersPerSecond * (2 + int(took/time.Second)); resets == 0 || resets > most {
		t.Errorf("%d of %d connections were refused within %v, want 1 to %d", resets, many, took, most)
	}
	t.Logf("%d of %d connections were refused within %v", resets, many, took)
	eventually(t, "all are counted", func() bool { // which the switch does later
		stats, err := d.Stats(t.Context())
		return err == nil && stats.Drops[driver.DropNoProvider] == many
	})
}
