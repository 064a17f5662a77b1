package ebpf

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// takeTallies gives all tallies of all processors to one rule.
func (r *rig) takeTallies(t testing.TB, to ruleTally) {
	t.Helper()
	m := r.drv.dp.obj.Tallies
	keys := make([]uint32, m.MaxEntries())
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := m.BatchUpdate(keys, slices.Repeat([]ruleTally{to}, len(keys)*cpus()), nil); err != nil {
		t.Fatal(err)
	}
}

// TestRulesCountEveryPacket counts packets on the slow path and the fast path, also where
// another rule has the place for the counter; no count of the other rule is lost.
func TestRulesCountEveryPacket(t *testing.T) {
	const other, fast = "ping", 100
	for name, c := range map[string]struct {
		had   ruleTally
		place bool // whether the rule gets it
	}{
		"nobody":     {place: true},
		"an idle":    {had: ruleTally{ID: ruleNumber(other), N: counter{5, 500}}, place: true},
		"a busy one": {had: ruleTally{ID: ruleNumber(other), N: counter{5, 500}, Seen: 1 << 62}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			pic, a, b := r.neighbours(t)
			drv := r.open(t)
			defer drv.Close()
			if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
				t.Fatal(err, conformance.Failed(rep))
			}
			r.takeTallies(t, c.had)
			want := map[string]driver.RuleStats{}
			if n := c.had.N; n.Packets > 0 {
				k := uint64(cpus()) * uint64(r.drv.dp.obj.Tallies.MaxEntries())
				want[other] = driver.RuleStats{Packets: n.Packets * k, Bytes: n.Bytes * k}
			}
			send := func(ifname string, p reference.Packet, times int) {
				f := conformance.Frame(p)
				for _, ret := range r.from(t, ifname, slices.Repeat([][]byte{f}, times)...) {
					if ret != redirected {
						t.Fatalf("%+v: verdict %d, want %d", p, ret, redirected)
					}
				}
				n := want["web"]
				want["web"] = driver.RuleStats{Packets: n.Packets + uint64(times), Bytes: n.Bytes + uint64(times*len(f))}
			}
			ask := web(a, b, 10_000, 80)
			answer := ask
			answer.SrcMAC, answer.DstMAC, answer.Src, answer.Dst = ask.DstMAC, ask.SrcMAC, ask.Dst, ask.Src
			answer.SrcPort, answer.DstPort, answer.TCPFlags = ask.DstPort, ask.SrcPort, reference.FlagSYN|reference.FlagACK
			send(a.IfName, ask, 1)
			send(b.IfName, answer, 1)
			ask.TCPFlags, answer.TCPFlags = reference.FlagACK, reference.FlagACK
			send(a.IfName, ask, fast)
			send(b.IfName, answer, fast)

			got, err := drv.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for rule, n := range want {
				if got.Rules[rule] != n {
					t.Errorf("rule %s: %+v, want %+v", rule, got.Rules[rule], n)
				}
			}
			for ifname, p := range map[string]driver.PortStats{a.IfName: got.Ports[a.IfName], b.IfName: got.Ports[b.IfName]} {
				if p.RxPackets != fast+1 || p.TxPackets != fast+1 {
					t.Errorf("port %s: %+v, want %d packets each way", ifname, p, fast+1)
				}
			}
			tallies, err := r.drv.dp.counters.readTallies()
			if err != nil {
				t.Fatal(err)
			}
			has := slices.ContainsFunc(tallies, func(t ruleTally) bool { return t.ID == ruleNumber("web") })
			if has != c.place {
				t.Errorf("the rule has a place: %v, want %v", has, c.place)
			}
		})
	}
}

// TestCountsBesideCloseAreWhole: what is counted while the driver is closed is counted whole,
// or the driver says that it is closed.
func TestCountsBesideCloseAreWhole(t *testing.T) {
	for range 5 {
		r := newRig(t)
		client, pic, vips, _ := r.served(t)
		drv := r.open(t)
		if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
		r.ask(t, client, vips[0], 4000)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for {
					s, err := drv.Stats(t.Context())
					if errors.Is(err, model.ErrUnavailable) {
						return
					}
					if err != nil || len(s.Services) != 1 {
						t.Error(err, s.Services)
						return
					}
				}
			})
		}
		if err := drv.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
}

// TestMissingKeysDoNotStopDeletion: keys that are not there any more keep no others from being deleted.
func TestMissingKeysDoNotStopDeletion(t *testing.T) {
	r := newRig(t)
	drv := r.open(t)
	defer drv.Close()
	m := r.drv.dp.obj.Affines
	var keys []affineKey
	for i := range 10_000 {
		k := affineKey{Seed: uint64(i)}
		keys = append(keys, k)
		if i%3 == 0 || i == 9_999 {
			continue
		}
		if err := m.Put(k, affine{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := deleteAll("affines", m, keys); err != nil {
		t.Fatal(err)
	}
	left := 0
	if err := eachEntry("affines", m, 1, func(affineKey, affine) { left++ }); err != nil || left > 0 {
		t.Error(left, err)
	}
}
