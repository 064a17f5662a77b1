package ovs

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

var spreadClients = flag.Int("clients", 2000, "how many clients TestAffinitySpreads has, a multiple of 200; 10000 take half a minute")

// TestAffinitySpreads: clients' addresses, of a fixed seed, are spread evenly
// over ten backends of a service with affinity by the switch's own group, as chi-square
// says; each stays with its backend by another port; and all of them are counted, for
// the backend that they went to. Clients are outside, since a container has one address
// only: their choice and affinity are the same.
func TestAffinitySpreads(t *testing.T) {
	if ovstest.Kernel() {
		t.Skip("on the kernel's datapath no clients outside are served")
	}
	const behind = 10
	clients := *spreadClients
	r := newRig(t)
	n := &desired.Network{ID: 7, Key: model.NetworkKey{Tenant: "t", Name: "n"}, Encap: model.EncapVXLAN, Tag: 700, Subnet: netip.MustParsePrefix("10.9.0.0/24")}
	h, s := exposed(n, behind)
	name := map[netip.Addr]model.EndpointKey{}
	for key, b := range s.Backends.All() {
		name[b.IPv4] = key
	}
	d := r.open(t)
	defer d.Close()
	if rep, err := d.Apply(t.Context(), h); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	rnd := rand.New(rand.NewPCG(13, 5))
	seen := map[netip.Addr]bool{}
	var all []netip.Addr
	for len(all) < clients {
		if a := netip.AddrFrom4([4]byte{byte(192 + rnd.IntN(16)), byte(1 + rnd.IntN(99)), byte(rnd.IntN(256)), byte(1 + rnd.IntN(254))}); !seen[a] {
			seen[a], all = true, append(all, a)
		}
	}
	host := r.hostWire(t)
	const atOnce = 200 // fewer than the interface's queue takes
	for port := range uint16(2) {
		for i, client := range all {
			if err := host.send(conformance.Frame(reference.Packet{
				SrcMAC: model.MAC{2, 9, 9, 9, 9, 9}, DstMAC: desired.RouterMAC, Src: client, Dst: s.IPv4, Proto: model.ProtoUDP,
				SrcPort: 20000 + port, DstPort: 53,
			})); err != nil {
				t.Fatal(err)
			}
			if sent := int(port)*clients + i + 1; sent%atOnce == 0 {
				eventually(t, fmt.Sprintf("the switch has taken %d packets", sent), func() bool {
					is, err := d.daemon.conntrack(t.Context())
					return err == nil && int(is.Entries) >= 2*sent // the translation and what is behind it
				})
			}
		}
	}
	of, got := map[netip.Addr]netip.Addr{}, map[model.EndpointKey]uint64{}
	living, moved := 0, 0
	if why := d.flows.establishedTranslations(t.Context(), func(_ desired.Domain, c connection) {
		living++
		if was, ok := of[c.orig.src]; ok && was != c.reply.src {
			moved++
		}
		of[c.orig.src] = c.reply.src
		got[name[c.reply.src]]++
	}); why != "" || living != 2*clients || moved > 0 {
		t.Errorf("%d connections live, want %d; %d clients have two backends; %s", living, 2*clients, moved, why)
	}
	var counts []float64
	for key := range s.Backends.All() {
		counts = append(counts, float64(got[key])/2) // each client asks twice
	}
	chi, limit := conformance.ChiSquare(clients, counts...)
	if t.Logf("chi-square %.1f of %.1f", chi, limit); chi > limit {
		t.Errorf("chi-square %.1f, more than %.1f", chi, limit)
	}
	eventually(t, "all are counted", func() bool {
		stats, err := d.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		right := 0
		for key, n := range got {
			one := stats.Services[driver.ServiceOf{Service: s.Key, Protocol: model.ProtoUDP, Port: 53, Backend: key}]
			if one.Connections == n && one.Total == n && one.PacketsOut == n {
				right++
			}
		}
		return right == behind
	})
}
