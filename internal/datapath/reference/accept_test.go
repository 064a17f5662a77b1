package reference

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// randomStep changes one thing of a desired state in a universe so small that objects
// meet all the time.
func randomStep(rng *rand.Rand, h *desired.Host, ifaces map[string]bool) {
	mac := func() model.MAC { return model.MAC{2, 0, 0, 0, 0, byte(rng.IntN(6))} }
	v4 := func() netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.IntN(6))}) }
	private := func() netip.Addr { return netip.AddrFrom4([4]byte{172, 19, 0, byte(1 + rng.IntN(4))}) }
	id, set, name := model.NetworkID(1+rng.IntN(3)), desired.PolicySetID(1+rng.IntN(2)), fmt.Sprint("p", rng.IntN(6))
	switch rng.IntN(12) {
	case 0, 1, 2:
		p := &desired.Port{IfName: name, Network: id, MAC: mac(), IPv4: v4(), Identity: 300, Policies: desired.PolicySetID(rng.IntN(3))}
		if rng.IntN(2) == 0 {
			p.IPv6 = netip.MustParseAddr("fd00::" + strconv.Itoa(rng.IntN(4)))
		}
		if rng.IntN(2) == 0 {
			p.Private = private()
		}
		h.Ports = h.Ports.Set(name, p)
	case 3:
		h.Ports = h.Ports.Delete(name)
	case 4, 5, 6:
		r := &desired.Remote{Network: id, MAC: mac(), IPv4: v4(), Identity: 300, VTEP: vtep2}
		if rng.IntN(4) == 0 {
			r.VTEP = netip.Addr{}
		}
		h.Remotes = h.Remotes.Set(desired.RemoteKey{Network: id, MAC: r.MAC}, r)
	case 7:
		h.Remotes = h.Remotes.Delete(desired.RemoteKey{Network: id, MAC: mac()})
	case 8:
		n := &desired.Network{ID: id, Encap: model.EncapVXLAN, Tag: uint32(7 + rng.IntN(4)), Subnet: netip.MustParsePrefix("10.0.0.0/24")}
		if rng.IntN(3) == 0 {
			n.Encap = model.EncapVLAN
		}
		if h.Networks = h.Networks.Set(id, n); rng.IntN(4) == 0 {
			h.Networks = h.Networks.Delete(id)
		}
	case 9:
		s := &desired.PolicySet{ID: set, Name: strconv.Itoa(rng.IntN(3))}
		if rng.IntN(4) == 0 {
			s.ID++
		}
		if h.PolicySets = h.PolicySets.Set(set, s); rng.IntN(3) == 0 {
			h.PolicySets = h.PolicySets.Delete(set)
		}
	case 10:
		ifaces[name] = !ifaces[name]
	case 11:
		switch rng.IntN(4) {
		case 0:
			h.VTEP = netip.Addr{}
		case 1:
			h.HostNAT = nil
		default:
			h.VTEP, h.HostNAT = vtep1, desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16"))
		}
	}
}

// reportText is a report as text, without what a pass has changed.
func reportText(r driver.Report) (out []string) {
	for name, st := range r.Ports.All() {
		out = append(out, fmt.Sprint(portName(name), ": ", st.Err))
	}
	for _, p := range r.Problems {
		out = append(out, fmt.Sprint(p.Object, ": ", p.Err))
	}
	slices.Sort(out)
	return out
}

// TestDiffEqualsApplyFromNothing checks over random changes that a driver which judges what
// differs says and holds the same as one that sees each desired state as its first,
// in what its indexes find too; also after refusals and broken passes.
func TestDiffEqualsApplyFromNothing(t *testing.T) {
	for seed := range uint64(15) {
		rng := rand.New(rand.NewPCG(seed, 1))
		ifaces := map[string]bool{}
		there := func(name string) bool { return !ifaces[name] }
		f := New()
		f.Interfaces(there)
		h := desired.Host{Name: "h1", VTEP: vtep1}
		for step := range 300 {
			for range 1 + rng.IntN(3) {
				randomStep(rng, &h, ifaces)
			}
			switch rng.IntN(12) {
			case 0:
				f.BreakAfter(rng.IntN(3))
			case 1:
				f.Refuse(func(object string) error {
					if len(object)%3 == 0 {
						return model.ErrInvalid
					}
					return nil
				})
			}
			got, err := f.Apply(context.Background(), h)
			f.Refuse(nil)
			f.BreakAfter(-1)
			again := rng.IntN(4) == 0 || f.states == nil // the same desired state looks at all interfaces
			if again {
				got, err = f.Apply(context.Background(), h)
			}
			if err != nil {
				t.Fatal(err)
			}
			anew := New()
			anew.Interfaces(func(name string) bool {
				_, absent := f.states.absent[name]
				return there(name) || !again && !absent // what has gone is noticed by the next search for drift
			})
			want, err := anew.Apply(context.Background(), h)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(reportText(want), reportText(got)); diff != "" {
				t.Fatalf("seed %d, step %d: report (-anew +follows):\n%s", seed, step, diff)
			}
			x, _ := anew.Inspect(context.Background())
			y, _ := f.Inspect(context.Background())
			if diff := cmp.Diff(x, y); diff != "" {
				t.Fatalf("seed %d, step %d: objects (-anew +follows):\n%s", seed, step, diff)
			}
			for _, pair := range [][2]any{
				{portNames(anew.k.tables.stations.portMACs), portNames(f.k.tables.stations.portMACs)},
				{stations(anew.k.tables.stations.addrs), stations(f.k.tables.stations.addrs)},
				{slices.Sorted(maps.Keys(anew.k.tables.byVLAN)), slices.Sorted(maps.Keys(f.k.tables.byVLAN))},
				{h.HostNAT != nil && len(anew.k.tables.byPrivate) > 0, h.HostNAT != nil && len(f.k.tables.byPrivate) > 0},
			} {
				if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
					t.Fatalf("seed %d, step %d: indexes (-anew +follows):\n%s", seed, step, diff)
				}
			}
		}
	}
}

func stations[K comparable](m map[K]station) map[string]string {
	out := map[string]string{}
	for k, s := range m {
		out[fmt.Sprint(k)] = fmt.Sprint(s.claimant(), s.mac(), s.identity())
	}
	return out
}

func portNames[K comparable](m map[K]*desired.Port) map[string]string {
	out := map[string]string{}
	for k, p := range m {
		out[fmt.Sprint(k)] = p.IfName
	}
	return out
}
