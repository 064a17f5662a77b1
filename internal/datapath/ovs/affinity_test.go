package ovs

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestAffinityIsBounded: the switch learns of no more clients of a service than affinity
// remembers, who stay with their backend; clients beyond have a backend too, each of
// their connections any.
// The first clients are flows like the one that the switch has learned of another.
func TestAffinityIsBounded(t *testing.T) {
	if ovstest.Kernel() {
		t.Skip("on the kernel's datapath no clients outside are served")
	}
	const room, beyond = 5, 20
	r := newRig(t)
	n := &desired.Network{ID: 7, Key: model.NetworkKey{Tenant: "t", Name: "n"}, Encap: model.EncapVXLAN, Tag: 700, Subnet: netip.MustParsePrefix("10.9.0.0/24")}
	h, s := exposed(n, 4)
	d := r.open(t)
	defer d.Close()
	if rep, err := d.Apply(t.Context(), h); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	host := r.hostWire(t)
	taken := uint64(0)
	asks := func(client netip.Addr, port uint16) {
		t.Helper()
		if err := host.send(conformance.Frame(reference.Packet{
			SrcMAC: model.MAC{2, 9, 9, 9, 9, 9}, DstMAC: desired.RouterMAC, Src: client, Dst: s.IPv4, Proto: model.ProtoUDP, SrcPort: port, DstPort: 53,
		})); err != nil {
			t.Fatal(err)
		}
		taken += 2 // the translation and what is behind it
		eventually(t, "the switch has taken it", func() bool {
			is, err := d.daemon.conntrack(t.Context())
			return err == nil && is.Entries >= taken
		})
	}
	learned := func() (flows []string) {
		t.Helper()
		for line := range strings.Lines(r.Ofctl("contivBr", "dump-flows", fmt.Sprintf("cookie=%#x/%#x", pipeline.AffineMagic, pipeline.MagicMask), "--no-stats")) {
			if strings.Contains(line, "table=") {
				flows = append(flows, strings.TrimSpace(line))
			}
		}
		return flows
	}
	client := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, 10, byte(i >> 8), byte(i)}) }
	asks(client(0), 20000)
	one := learned()
	if len(one) != 1 || strings.Count(one[0], client(0).String()) != 1 {
		t.Fatalf("learned %q of %s", one, client(0))
	}
	var others strings.Builder
	for i := 1; i < desired.MaxAffine-room; i++ {
		fmt.Fprintln(&others, strings.Replace(one[0], client(0).String(), client(i).String(), 1))
	}
	file := filepath.Join(t.TempDir(), "flows")
	if err := os.WriteFile(file, []byte(others.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Ofctl("contivBr", "add-flows", file)
	if got := len(learned()); got != desired.MaxAffine-room {
		t.Fatalf("%d flows, want %d", got, desired.MaxAffine-room)
	}
	for port := range uint16(3) {
		for i := range room + beyond {
			asks(client(desired.MaxAffine+i), 20001+port)
		}
	}
	if got := len(learned()); got != desired.MaxAffine {
		t.Errorf("the switch has learned of %d clients, want %d", got, desired.MaxAffine)
	}
	of, living := map[netip.Addr]netip.Addr{}, 0
	remembered := func(a netip.Addr) bool { return a.Less(client(desired.MaxAffine + room)) } // client 0, and the first that came
	if why := d.flows.establishedTranslations(t.Context(), func(_ desired.Domain, c connection) {
		living++
		if was, ok := of[c.orig.src]; ok && was != c.reply.src && remembered(c.orig.src) {
			t.Errorf("%s has asked %s and %s", c.orig.src, was, c.reply.src)
		}
		of[c.orig.src] = c.reply.src
	}); why != "" || living != 1+3*(room+beyond) || len(of) != 1+room+beyond {
		t.Errorf("%d connections live of %d clients, want %d of %d; %s", living, len(of), 1+3*(room+beyond), 1+room+beyond, why)
	}
}

// exposed is a desired state with an exposed service that has an affinity, and so many
// backends on another host.
func exposed(n *desired.Network, backends int) (h desired.Host, s *desired.Service) {
	h = desired.Host{Name: "h1", VTEP: vtep1, ArpMode: model.ArpProxy, HostNAT: desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16"))}
	h.Networks, h.Tunnels = h.Networks.Set(n.ID, n), h.Tunnels.Set(vtep2, "h2")
	s = &desired.Service{
		Key: model.ServiceKey{Tenant: "t", Name: "shop"}, Network: n.ID, IPv4: netip.MustParseAddr("10.9.0.200"), Exposed: true, Affinity: time.Hour,
		Ports: []desired.ServicePort{{Protocol: model.ProtoUDP, Port: 53, Backend: 8053}},
	}
	for i := range backends {
		mac, ip := model.MAC{2, 2, 10, 9, 0, byte(i + 1)}, netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)})
		key := model.EndpointKey{Network: n.Key, ID: model.EndpointID(fmt.Sprint("b", i))}
		h.Remotes = h.Remotes.Set(desired.RemoteKey{Network: n.ID, MAC: mac}, &desired.Remote{Network: n.ID, MAC: mac, IPv4: ip, Identity: 300, VTEP: vtep2})
		s.Backends = s.Backends.Set(key, &desired.Backend{Network: n.ID, IPv4: ip, Identity: 300, VTEP: vtep2})
	}
	h.Services = h.Services.Set(s.Key, s)
	return h, s
}
