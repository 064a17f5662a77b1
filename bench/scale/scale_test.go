package main

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRowsCanBeBuilt: what the rows say can be built, every endpoint is on a host that has its
// network, and what an agent waits for is what concerns it.
func TestRowsCanBeBuilt(t *testing.T) {
	for _, small := range []bool{true, false} {
		for _, r := range rows(small) {
			if err := r.check(); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
			has := make([]map[int]int, r.Agents) // the first endpoint, by host and network
			for i := range has {
				has[i] = map[int]int{}
			}
			for i := range r.Endpoints {
				network, n := r.place(i)
				host := r.host(network, n)
				if _, known := has[host][network]; !known {
					has[host][network] = i
				}
			}
			total := 0
			for host, networks := range has {
				if len(networks) != r.networksOfBlock() {
					t.Fatalf("%s: host %d has %d networks, want %d", r.name, host, len(networks), r.networksOfBlock())
				}
				count, tenants := 0, map[string]bool{}
				for n, first := range networks {
					count += r.endpointsOf(n)
					tenants[r.tenant(n)] = true
					if want := r.firstEndpoint(host, n); first != want || n < r.firstNetwork(host) || n >= r.firstNetwork(host)+r.networksOfBlock() {
						t.Fatalf("%s: the first endpoint of host %d in network %d is %d; its journal names %d, and networks from %d on", r.name, host, n, first, want, r.firstNetwork(host))
					}
				}
				if got := r.concerning(host); got != count || len(tenants) != 1 {
					t.Fatalf("%s: host %d waits for %d endpoints and is of the tenants %v; its networks have %d", r.name, host, got, tenants, count)
				}
				total += count
			}
			if total != r.Endpoints*r.Spread {
				t.Errorf("%s: agents have %d endpoints together, want %d", r.name, total, r.Endpoints*r.Spread)
			}
		}
	}
}

// TestAddedAddressesAreInsideTheirNetwork: networks do not overlap, and what comes late is inside its network,
// behind what netmaster chooses from the beginning on.
func TestAddedAddressesAreInsideTheirNetwork(t *testing.T) {
	for _, r := range rows(false) {
		seen := map[netip.Prefix]bool{}
		for n := range r.Networks {
			p := r.subnet(n)
			if p.Masked() != p || seen[p] || !netip.MustParsePrefix("10.0.0.0/8").Contains(p.Addr()) {
				t.Fatalf("%s: network %d has %s", r.name, n, p)
			}
			seen[p] = true
			for _, k := range []int{0, 1, r.churned()} {
				if a := r.addedAddress(n, k); !p.Contains(a) || !p.Contains(a.Next()) {
					t.Errorf("%s: the address %s that comes as number %d is not in %s, or its last", r.name, a, k, p)
				}
			}
		}
	}
}

// TestImpossibleSizesAreRefused: what cannot be built is refused.
func TestImpossibleSizesAreRefused(t *testing.T) {
	for name, change := range map[string]func(*sizes){
		"no agents":          func(s *sizes) { s.Agents = 0 },
		"half a block":       func(s *sizes) { s.Agents = 30 },
		"networks left over": func(s *sizes) { s.Networks = 501 },
		"tenants left over":  func(s *sizes) { s.Tenants = 3 },
		"an empty host":      func(s *sizes) { s.Endpoints = s.Networks*s.Spread - 1 },
		"too many come":      func(s *sizes) { s.Changes = 1e6 },
		"nothing comes":      func(s *sizes) { s.Changes = 0 },
	} {
		s := wide()
		if change(&s); s.check() == nil {
			t.Errorf("%s: %+v is taken", name, s)
		}
	}
}

// TestOneNetworkStaysOnAllHosts: one network stays on all hosts, however many they are.
func TestOneNetworkStaysOnAllHosts(t *testing.T) {
	s := hard(100)
	s.replace(sizes{Agents: 7, Changes: 2})
	want := hard(7)
	want.Changes = 2
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
}

// TestArrivalsCountFromTheAnswer: times count from the answer, also of what arrived before it, and what
// has not arrived everywhere is missing.
func TestArrivalsCountFromTheAnswer(t *testing.T) {
	n := newNews()
	at := func(i int) event { return event{addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})} }
	ms := func(v int) time.Duration { return time.Duration(v) * time.Millisecond }
	n.arrived([]event{at(9)}, ms(1)) // before the beginning
	n.begin()
	n.arrived([]event{at(1), at(2)}, ms(100))
	n.answered(at(1), ms(90), ms(110), 2)
	n.arrived([]event{at(1)}, ms(140))
	n.answered(at(2), ms(70), ms(80), 2)
	n.arrived([]event{at(3)}, ms(200)) // no API answer belongs to it
	if got := n.missing(); got != 1 {
		t.Errorf("%d are missing, want 1", got)
	}
	want := arrivals{
		Changes: 2, Missing: 1,
		Each:  figures{N: 3, P50: 20, P99: 30, Most: 30}, // 0, 20, 30
		Last:  figures{N: 1, P50: 30, P99: 30, Most: 30},
		Asked: figures{N: 1, P50: 50, P99: 50, Most: 50},
	}
	if diff := cmp.Diff(want, n.result()); diff != "" {
		t.Error(diff)
	}
	gone := at(2)
	gone.gone = true
	n.arrived([]event{gone}, ms(150))
	if got := n.missing(); got != 1 {
		t.Errorf("an address that goes is taken for one that comes: %d are missing", got)
	}
	n.arrived([]event{at(2)}, ms(160))
	if got := n.missing(); got != 0 {
		t.Errorf("%d are missing, want 0", got)
	}
}

// TestSkippedChangesAreNotMissing: what came and went before an agent looked is not missing; what came to
// it and does not go is.
func TestSkippedChangesAreNotMissing(t *testing.T) {
	n := newNews()
	n.begin()
	come := event{addr: netip.AddrFrom4([4]byte{10, 0, 0, 1})}
	gone := event{addr: come.addr, gone: true}
	n.answered(come, 1, 2, 3)
	n.answered(gone, 3, 4, 3)
	n.arrived([]event{come}, 5)
	n.arrived([]event{come}, 6)
	if got := n.missing(); got != 2 {
		t.Errorf("%d are missing, want the departures at two agents", got)
	}
	n.arrived([]event{gone}, 7)
	if got := n.missing(); got != 1 {
		t.Errorf("%d are missing, want the departure at one agent", got)
	}
	n.arrived([]event{gone}, 8)
	a := n.result()
	if a.Missing != 0 || a.Skipped != 2 || a.Last.N != 2 {
		t.Errorf("%+v: nothing should be missing, two events of the third agent skipped, and both have a last arrival", a)
	}
}

// TestMissesAreReported checks that missed targets are reported, and that the targets of row wide
// apply to that row only.
func TestMissesAreReported(t *testing.T) {
	r := &report{Row: "wide", Sizes: wide(), API: answers{Second: 99}, Memory: map[string]float64{"netmaster": 499, "netplugin": 59}}
	r.Arrivals.Last = figures{P50: 99, P99: 999}
	if got := r.misses(); len(got) != 0 {
		t.Errorf("%q", got)
	}
	r.API.Second, r.Arrivals.Last.P99, r.Arrivals.Missing, r.Memory["netplugin"] = 90, 1001, 3, 61
	if got := r.misses(); len(got) != 4 {
		t.Errorf("%q", got)
	}
	if r.Row = "hard-100"; len(r.misses()) != 2 {
		t.Errorf("%q", r.misses())
	}
}
