package ebpf

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestAffinitySpreads: 10,000 clients' addresses, one after another and of a fixed
// seed, are spread evenly over the backends of a service with affinity, as chi-square
// says; each stays with its backend by other ports; and with affinity off as many
// connections of one client are spread as evenly. Clients are outside, since a
// container has one address only: their affinity is the same (docs/design/services.md).
func TestAffinitySpreads(t *testing.T) {
	const draws = 10_000
	r := newRig(t)
	r.sizes = map[string]uint32{"halfopen": 4 * draws}
	drv := r.open(t)
	defer drv.Close()
	_, pic, vips, _ := r.served(t)
	pic.HostNAT = desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16"))
	rnd := rand.New(rand.NewPCG(13, 4))
	random := map[netip.Addr]bool{}
	for len(random) < draws {
		random[netip.AddrFrom4([4]byte{byte(192 + rnd.IntN(16)), byte(rnd.IntN(256)), byte(rnd.IntN(256)), byte(1 + rnd.IntN(254))})] = true
	}
	var any, row, one []netip.Addr
	for a := range random {
		any = append(any, a)
	}
	for i := range draws {
		row = append(row, netip.AddrFrom4([4]byte{203, 10, byte(i >> 8), byte(i)}))
		one = append(one, row[0])
	}
	for _, x := range []struct {
		name     string
		clients  []netip.Addr
		affinity time.Duration
		backends int
	}{
		{"addresses in a row", row, time.Hour, 2},
		{"addresses in a row", row, time.Hour, 10},
		{"addresses in a row", row, time.Hour, 100},
		{"any addresses", any, time.Hour, 3},
		{"any addresses", any, time.Hour, 10},
		{"ports of one client", one, 0, 10},
	} {
		what := fmt.Sprintf("%s, %d backends", x.name, x.backends)
		with, s := exposedTo(pic, what, x.affinity, x.backends)
		if rep, err := drv.Apply(t.Context(), with); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
		// each client asks by several ports when it has an affinity
		rounds := 1
		if x.affinity > 0 {
			rounds = 2
		}
		var frames [][]byte
		for n := range rounds {
			for i, client := range x.clients {
				frames = append(frames, asksOutside(client, vips[0], uint16(20000+i+n*draws)))
			}
		}
		for i, ret := range r.fromHost(t, frames...) {
			if ret != redirected {
				t.Fatalf("%s: packet %d: verdict %d", what, i, ret)
			}
		}
		got, of := map[uint64]int{}, map[addr]uint64{}
		moved, all := 0, 0
		if err := eachEntry("translations", r.drv.dp.obj.Translations, 1, func(k connKey, v translation) {
			if k.Pad != clientSideExternal {
				return
			}
			all++
			if x.affinity == 0 {
				got[v.ID]++
				return
			}
			client := k.Lo
			if client == toAddr(vips[0]) {
				client = k.Hi
			}
			if was, ok := of[client]; !ok {
				of[client] = v.ID
				got[v.ID]++
			} else if was != v.ID {
				moved++
			}
		}); err != nil {
			t.Fatal(err)
		}
		if all != rounds*draws || moved > 0 {
			t.Errorf("%s: %d connections, want %d; %d clients have two backends", what, all, rounds*draws, moved)
		}
		var counts []float64
		for key := range s.Backends.All() {
			counts = append(counts, float64(got[desired.BackendID(key)]))
		}
		chi, limit := conformance.ChiSquare(draws, counts...)
		if t.Logf("%s: chi-square %.1f of %.1f", what, chi, limit); chi > limit {
			t.Errorf("%s: chi-square %.1f, more than %.1f", what, chi, limit)
		}
	}
}

// exposedTo is the desired state served with its service of another host's container in
// another name, exposed, and so many backends of that host.
func exposedTo(pic desired.Host, name string, affinity time.Duration, backends int) (desired.Host, desired.Service) {
	far, _ := pic.Services.Get(model.ServiceKey{Tenant: "t", Name: "far"})
	s := *far
	s.Key.Name, s.Exposed, s.Affinity = name, true, affinity
	s.Backends = desired.Map[model.EndpointKey, *desired.Backend]{}
	pic.Services = pic.Services.Delete(far.Key)
	for i := range backends {
		mac, ip := model.MAC{2, 0, 0, 0, 7, byte(i)}, netip.AddrFrom4([4]byte{10, 7, 9, byte(i + 1)})
		key := model.EndpointKey{Network: model.NetworkKey{Tenant: "t", Name: "n"}, ID: model.EndpointID(fmt.Sprint("b", i))}
		pic.Remotes = pic.Remotes.Set(desired.RemoteKey{Network: s.Network, MAC: mac}, &desired.Remote{Network: s.Network, MAC: mac, IPv4: ip, Identity: 300, VTEP: vtep2})
		s.Backends = s.Backends.Set(key, &desired.Backend{Network: s.Network, IPv4: ip, Identity: 300, VTEP: vtep2})
	}
	pic.Services = pic.Services.Set(s.Key, &s)
	return pic, s
}

// asksOutside is a client's packet to a service as the host's stack sends it on.
func asksOutside(client, vip netip.Addr, port uint16) []byte {
	return conformance.Frame(reference.Packet{
		SrcMAC: model.MAC{2, 9, 9, 9, 9, 9}, DstMAC: desired.RouterMAC, Src: client, Dst: vip, Proto: model.ProtoUDP, SrcPort: port, DstPort: 53,
	})
}

// fromHost runs the program on the host's side on frames as the host's stack would
// send them, and returns what it says of each.
func (r *rig) fromHost(t testing.TB, frames ...[]byte) (out []int32) {
	t.Helper()
	r.thread.do(func() {
		for _, f := range frames {
			ret, err := testRun(r.drv.dp.obj.FromHost, f, make([]byte, 192)) // struct __sk_buff
			if err != nil {
				t.Errorf("run on %x: %v", f, err)
				return
			}
			out = append(out, int32(ret))
		}
	})
	return out
}
