package ebpf

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestProgramsChooseBackendsAsDesired: the programs choose as desired.Choose says, of few backends and of many,
// whatever has come, gone or changed its state before, and after a restart; and nothing
// is left when the service goes.
func TestProgramsChooseBackendsAsDesired(t *testing.T) {
	r := newRig(t)
	drv := r.open(t)
	const network = model.NetworkID(7)
	client := &desired.Port{IfName: "cvclient", Network: network, MAC: model.MAC{2, 0, 0, 0, 1, 1}, IPv4: netip.MustParseAddr("10.7.0.9"), Identity: 300}
	r.addWire(t, client.IfName, client.MAC)
	pic := desired.Host{Name: "h", VTEP: vtep1, ArpMode: model.ArpProxy, Revision: 1}
	pic.Networks = pic.Networks.Set(network, &desired.Network{ID: network, Encap: model.EncapVXLAN, Tag: 100, VTEPs: []netip.Addr{vtep2}, Subnet: netip.MustParsePrefix("10.7.0.0/16")})
	pic.Ports = pic.Ports.Set(client.IfName, client)
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 7, 100 + byte(i/200), byte(i % 200)}) }
	key := func(i int) model.EndpointKey {
		return model.EndpointKey{Network: model.NetworkKey{Tenant: "t", Name: "n"}, ID: model.EndpointID(fmt.Sprint("b", i))}
	}
	for i := range 400 {
		mac := model.MAC{2, 0, 0, 0, 2 + byte(i/200), byte(i % 200)}
		pic.Remotes = pic.Remotes.Set(desired.RemoteKey{Network: network, MAC: mac}, &desired.Remote{Network: network, MAC: mac, IPv4: addr(i), Identity: 300, VTEP: vtep2})
	}
	s := desired.Service{
		Key: model.ServiceKey{Tenant: "t", Name: "many"}, Network: network, IPv4: netip.MustParseAddr("10.7.0.200"),
		Ports: []desired.ServicePort{{Protocol: model.ProtoUDP, Port: 53, Backend: 53}},
	}
	have := func(from, to int, state desired.BackendState) {
		for i := from; i < to; i++ {
			s.Backends = s.Backends.Set(key(i), &desired.Backend{Network: network, IPv4: addr(i), Identity: 300, VTEP: vtep2, State: state})
		}
	}
	sport := uint16(2000)
	check := func(what string) {
		t.Helper()
		now := s
		with := pic
		with.Services = with.Services.Set(s.Key, &now)
		if rep, err := drv.Apply(t.Context(), with); err != nil || len(rep.Problems) > 0 {
			t.Fatal(err, rep.Problems)
		}
		wrong := 0
		for range 200 {
			sport++
			p := reference.Packet{SrcMAC: client.MAC, DstMAC: desired.RouterMAC, Src: client.IPv4, Dst: s.IPv4, Proto: model.ProtoUDP, SrcPort: sport, DstPort: 53}
			r.from(t, client.IfName, conformance.Frame(p))
			want, ok := now.Choose(desired.Slot(now.Seed(), false, p.Src, p.Proto, p.SrcPort, p.DstPort), false, desired.TrafficCluster)
			var got translation
			front := connKey{Domain: uint32(network), Proto: 17, LoPort: sport, HiPort: 53, Pad: clientSide, Lo: toAddr(p.Src), Hi: toAddr(p.Dst)}
			err := r.drv.dp.obj.Translations.Lookup(front, &got)
			if ok != (err == nil) || ok && got.ID != desired.BackendID(want) {
				wrong++
			}
		}
		if wrong > 0 {
			t.Errorf("%s: %d of 200 choices are not those of the reference", what, wrong)
		}
	}
	tables := func() (n int) {
		t.Helper()
		var k, v uint32
		it := r.drv.dp.obj.Choices.Iterate()
		for it.Next(&k, &v) {
			n++
		}
		return n
	}
	check("none")
	have(0, 5, desired.BackendActive)
	check("five")
	have(3, 4, desired.BackendDraining)
	check("four and one that drains")
	have(0, 32, desired.BackendActive)
	check("32")
	if tables() != 0 {
		t.Error("32 backends have a table")
	}
	have(32, 40, desired.BackendActive)
	check("40")
	if tables() != 1 {
		t.Errorf("40 backends have %d tables", tables())
	}
	have(7, 9, desired.BackendUnhealthy)
	check("38 and two that are unhealthy")
	for i := range 3 {
		s.Backends = s.Backends.Delete(key(i))
	}
	check("35")
	have(300, 304, desired.BackendActive)
	check("39, of which four have others' places")
	have(0, 400, desired.BackendActive)
	check("400")
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
	drv = r.open(t)
	defer func() { drv.Close() }()
	check("after a restart")
	for i := 20; i < 400; i++ {
		s.Backends = s.Backends.Delete(key(i))
	}
	check("20")
	if tables() != 1 {
		t.Errorf("20 backends that were more have %d tables", tables())
	}
	for i := 10; i < 20; i++ {
		s.Backends = s.Backends.Delete(key(i))
	}
	check("ten")
	if tables() != 0 {
		t.Errorf("ten backends have %d tables", tables())
	}
	s.Ports = append([]desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 80}}, s.Ports...)
	check("with another port")
	if _, err := drv.Apply(t.Context(), pic); err != nil {
		t.Fatal(err)
	}
	d := r.drv
	for name, n := range map[string]int{"vips": len(d.dp.services.maps.VIPs.have), "services": len(d.dp.services.maps.Services.have), "service_ports": len(d.dp.services.maps.ServicePorts.have), "backends": len(d.dp.services.maps.Backends.have), "choices": tables()} {
		if n != 0 {
			t.Errorf("%d entries are left in %s", n, name)
		}
	}
}
