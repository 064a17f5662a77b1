package desired

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

func backendKey(i int) model.EndpointKey {
	return model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "vx"}, ID: model.EndpointID(fmt.Sprintf("web-%d", i))}
}

// ofBackends returns a service with n backends, and its table.
func ofBackends(tb testing.TB, n int) (*Service, *Table) {
	tb.Helper()
	s := &Service{Key: model.ServiceKey{Tenant: "blue", Name: "shop"}}
	var table Table
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		s.Backends = s.Backends.Set(backendKey(i), &Backend{IPv4: a})
		if err := table.Add(BackendID(backendKey(i))); err != nil {
			tb.Fatal(err)
		}
	}
	return s, &table
}

// chiLimit is what chi-square exceeds once in a thousand times (Wilson and
// Hilferty's approximation).
func chiLimit(degrees int) float64 {
	d := float64(degrees)
	return d * math.Pow(1-2/(9*d)+3.09*math.Sqrt(2/(9*d)), 3)
}

// TestChoiceSpreads: connections, and with affinity 10,000 clients, are spread
// evenly, as chi-square says of fixed seeds.
func TestChoiceSpreads(t *testing.T) {
	const draws = 10_000
	for _, n := range []int{2, 3, 10, 100} {
		for _, affinity := range []bool{false, true} {
			for seed := range uint64(5) {
				s, table := ofBackends(t, n)
				s.Key.Name = fmt.Sprint("shop", seed)
				rnd := rand.New(rand.NewPCG(seed, 1))
				got := map[uint64]int{}
				for i := range draws {
					client := netip.AddrFrom4([4]byte{10, byte(seed), byte(i >> 8), byte(i)})
					if !affinity {
						client = netip.AddrFrom4([4]byte{10, 9, 9, byte(i % 20)})
					}
					id, _ := table.Owner(Slot(s.Seed(), affinity, client, model.ProtoTCP, uint16(rnd.IntN(1<<16)), 80))
					got[id]++
				}
				chi, want := 0.0, float64(draws)/float64(n)
				for i := range n {
					d := float64(got[BackendID(backendKey(i))]) - want
					chi += d * d / want
				}
				if limit := chiLimit(n - 1); chi > limit {
					t.Errorf("%d backends, affinity %v, seed %d: chi-square %.1f, more than %.1f", n, affinity, seed, chi, limit)
				}
			}
		}
	}
}

// TestChoiceMovesLittle: a backend that comes takes slots only for itself, the same
// one gives back only its own when it goes, and beside 100 others at most 2 % move.
func TestChoiceMovesLittle(t *testing.T) {
	for _, n := range []int{1, 2, 10, 100} {
		_, table := ofBackends(t, n)
		before := map[uint16]uint64{}
		for slot := range ServiceSlots {
			before[uint16(slot)], _ = table.Owner(uint16(slot))
		}
		id := BackendID(backendKey(5000))
		if err := table.Add(id); err != nil {
			t.Fatal(err)
		}
		moved := 0
		for slot, was := range before {
			if now, _ := table.Owner(slot); now != was {
				moved++
				if now != id {
					t.Fatalf("%d and one more: a slot moved between others", n)
				}
			}
		}
		if share := float64(moved) / ServiceSlots; share > 1.1/float64(n+1) || n == 100 && share > 0.02 {
			t.Errorf("%d and one more: %.2f %% moved", n, 100*share)
		}
		table.Remove(id)
		for slot, was := range before {
			if now, _ := table.Owner(slot); now != was {
				t.Fatalf("%d, one more and it gone: slot %d is another one's", n, slot)
			}
		}
	}
}

// TestTableIsChoose: the table says what Choose says, whatever came and went
// before, and in whatever order.
func TestTableIsChoose(t *testing.T) {
	s, _ := ofBackends(t, 12)
	rnd := rand.New(rand.NewPCG(7, 7))
	for range 5 {
		var table Table
		for range 60 {
			id := BackendID(backendKey(rnd.IntN(40)))
			if rnd.IntN(2) == 0 {
				table.Remove(id)
			} else if err := table.Add(id); err != nil {
				t.Fatal(err)
			}
		}
		for _, i := range rnd.Perm(40) {
			if id := BackendID(backendKey(i)); i < 12 {
				if err := table.Add(id); err != nil {
					t.Fatal(err)
				}
			} else {
				table.Remove(id)
			}
		}
		if table.Len() != 12 {
			t.Fatalf("%d backends, want 12", table.Len())
		}
		for slot := 0; slot < ServiceSlots; slot += 97 {
			want, _ := s.Choose(uint16(slot), false, TrafficCluster)
			if got, _ := table.Owner(uint16(slot)); got != BackendID(want) {
				t.Fatalf("slot %d: the table has another one than Choose", slot)
			}
		}
	}
}

// TestOnlyEligibleBackendsAreChosen: a backend that may not be chosen is not, and where none may be,
// none is.
func TestOnlyEligibleBackendsAreChosen(t *testing.T) {
	var s Service
	local, remote, drains, ill, v6 := backendKey(1), backendKey(2), backendKey(3), backendKey(4), backendKey(5)
	a, a6 := netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("fd00::1")
	s.Backends = s.Backends.Set(drains, &Backend{IPv4: a, Local: true, State: BackendDraining}).
		Set(ill, &Backend{IPv4: a, IPv6: a6, Local: true, State: BackendUnhealthy})
	if k, ok := s.Choose(1, false, TrafficCluster); ok {
		t.Fatalf("chose %v, want nobody", k)
	}
	s.Backends = s.Backends.Set(local, &Backend{IPv4: a, Local: true}).Set(remote, &Backend{IPv4: a}).Set(v6, &Backend{IPv6: a6})
	seen := map[model.EndpointKey]bool{}
	for slot := range uint16(1000) {
		k, _ := s.Choose(slot, false, TrafficCluster)
		seen[k] = true
		if k, ok := s.Choose(slot, false, TrafficLocal); !ok || k != local {
			t.Fatalf("chose %v among those here, want %v", k, local)
		}
		if k, ok := s.Choose(slot, true, TrafficCluster); !ok || k != v6 {
			t.Fatalf("chose %v for IPv6, want %v", k, v6)
		}
	}
	if len(seen) != 2 || !seen[local] || !seen[remote] {
		t.Errorf("chose among %v, want %v and %v", seen, local, remote)
	}
}

func TestFullBackendTableIsRefused(t *testing.T) {
	table := Table{index: map[uint64]uint16{}}
	for i := range uint64(MaxBackends) {
		table.index[i] = uint16(i)
	}
	if err := table.Add(MaxBackends); err == nil {
		t.Error("one too many was taken")
	}
}

// BenchmarkTable: one backend goes and comes.
func BenchmarkTable(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			_, table := ofBackends(b, n)
			i := 0
			for b.Loop() {
				id := BackendID(backendKey(i % n))
				table.Remove(id)
				if err := table.Add(id); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

// BenchmarkChoose: what a data plane without a table computes for a connection.
func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{1, 10, 32} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			ids := make([]uint64, n)
			for i := range ids {
				ids[i] = BackendID(backendKey(i))
			}
			slot := uint16(0)
			for b.Loop() {
				slot++
				key := slotKey(slot)
				var best, bestID uint64
				for _, id := range ids {
					if now := score(key, id); beats(now, id, best, bestID) {
						best, bestID = now, id
					}
				}
			}
		})
	}
}
