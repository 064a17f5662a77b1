package ebpf

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// served is the desired state of a client of two services, of another host's container and
// of the client itself, with the client's wire.
func (r *rig) served(t testing.TB) (client *desired.Port, pic desired.Host, vips, itself [2]netip.Addr) {
	t.Helper()
	const network = model.NetworkID(7)
	client = &desired.Port{IfName: "cvclient", Network: network, MAC: model.MAC{2, 0, 0, 0, 1, 1}, IPv4: netip.MustParseAddr("10.7.0.9"), IPv6: netip.MustParseAddr("fd00:7::9"), Identity: 300}
	far := &desired.Remote{Network: network, MAC: model.MAC{2, 0, 0, 0, 1, 2}, IPv4: netip.MustParseAddr("10.7.0.2"), IPv6: netip.MustParseAddr("fd00:7::2"), Identity: 300, VTEP: vtep2}
	r.addWire(t, client.IfName, client.MAC)
	pic = desired.Host{Name: "h", VTEP: vtep1, ArpMode: model.ArpProxy, Revision: 1}
	pic.Networks = pic.Networks.Set(network, &desired.Network{
		ID: network, Encap: model.EncapVXLAN, Tag: 100, VTEPs: []netip.Addr{vtep2}, Joined: 5, Gateway: netip.MustParseAddr("10.7.0.254"),
		Subnet: netip.MustParsePrefix("10.7.0.0/16"), Subnet6: netip.MustParsePrefix("fd00:7::/64"),
	})
	pic.Ports = pic.Ports.Set(client.IfName, client)
	pic.Remotes = pic.Remotes.Set(desired.RemoteKey{Network: network, MAC: far.MAC}, far)
	vips = [2]netip.Addr{netip.MustParseAddr("10.7.0.200"), netip.MustParseAddr("fd00:7::200")}
	itself = [2]netip.Addr{netip.MustParseAddr("10.7.0.201"), netip.MustParseAddr("fd00:7::201")}
	for name, x := range map[string]struct {
		at      [2]netip.Addr
		backend desired.Backend
	}{
		"far":    {vips, desired.Backend{Network: network, IPv4: far.IPv4, IPv6: far.IPv6, Identity: 300, VTEP: vtep2}},
		"itself": {itself, desired.Backend{Network: network, IPv4: client.IPv4, IPv6: client.IPv6, Identity: 300, Local: true}},
	} {
		s := desired.Service{
			Key: model.ServiceKey{Tenant: "t", Name: name}, Network: network, IPv4: x.at[0], IPv6: x.at[1],
			Ports: []desired.ServicePort{{Protocol: model.ProtoUDP, Port: 53, Backend: 5353}},
		}
		s.Backends = s.Backends.Set(model.EndpointKey{Network: model.NetworkKey{Tenant: "t", Name: "n"}, ID: model.EndpointID(name)}, &x.backend)
		pic.Services = pic.Services.Set(s.Key, &s)
	}
	return client, pic, vips, itself
}

// ask sends a client's UDP packet from a port to a service, which lets it through.
func (r *rig) ask(t testing.TB, client *desired.Port, to netip.Addr, port uint16) {
	t.Helper()
	p := reference.Packet{SrcMAC: client.MAC, DstMAC: desired.RouterMAC, Src: client.IPv4, Dst: to, Proto: model.ProtoUDP, SrcPort: port, DstPort: 53}
	if to.Is6() {
		p.Src = client.IPv6
	}
	if got := r.from(t, client.IfName, conformance.Frame(p)); len(got) != 1 || got[0] != redirected {
		t.Fatalf("to %s: verdict %v", to, got)
	}
}

// TestTranslationsLiveAsLongAsTheirConnection: a translation stays in the table as long as its connection, of
// either family and of a client that is its own backend, and goes with it: when the
// connection is taken out, and at once when it is evicted, so that a flood fills the
// table with no more than connections have room for.
func TestTranslationsLiveAsLongAsTheirConnection(t *testing.T) {
	r := newRig(t)
	r.sizes = map[string]uint32{"halfopen": 128}
	drv := r.open(t)
	defer drv.Close()
	client, pic, vips, itself := r.served(t)
	if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	ask := func(to netip.Addr, port uint16) {
		t.Helper()
		r.ask(t, client, to, port)
	}
	there := func() int {
		t.Helper()
		all, _, err := r.drv.dp.conntrack.translations.read()
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	sweep := func() {
		t.Helper()
		now, err := monotonic()
		if err == nil {
			err = r.drv.countTables(now)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []netip.Addr{vips[0], vips[1], itself[0], itself[1]} {
		for port := range uint16(4) {
			ask(to, 4000+port)
		}
	}
	if n := there(); n != 32 {
		t.Fatalf("%d entries of 16 translations, want 32", n)
	}
	if sweep(); there() != 32 {
		t.Errorf("%d entries are left of 32 whose connections live", there())
	}
	if got := r.drv.Tables()["translations"]; got.Entries != 32 {
		t.Errorf("%d entries are told of, want 32", got.Entries)
	}
	for port := range uint16(2000) {
		ask(vips[port%2], 10000+port)
	}
	if n := there(); n > 2*128 {
		t.Errorf("after a flood there are %d entries, and room for %d connections", n, 128)
	}
	if err := r.drv.dp.conns.sweep(func(connKey, conn) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if sweep(); there() != 0 {
		t.Errorf("%d entries are left of connections that are not", there())
	}
}
