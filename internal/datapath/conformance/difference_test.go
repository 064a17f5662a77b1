package conformance

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
)

// stated is what differences say of one pair.
type stated struct{ opens, closes reachability.Ports }

func (c *stated) add(d reachability.Difference) {
	if d.Opens {
		c.opens = c.opens.Or(d.Ports)
	} else {
		c.closes = c.closes.Or(d.Ports)
	}
}

// check compares stated with what two clusters allow.
func (c stated) check(before, after reachability.Ports) error {
	if !c.opens.Equal(after.Without(before)) || !c.closes.Equal(before.Without(after)) {
		return fmt.Errorf("before %v, after %v; the difference opens %v and closes %v", before, after, c.opens, c.closes)
	}
	return nil
}

func (w *fuzzWorld) agreeOnDifference(before, after *reachability.Cluster, seen map[string]int) error {
	all, err := reachability.Compare(context.Background(), before, after, func(model.TenantName) bool { return true }, 1<<20)
	if err != nil {
		return err
	}
	type pair struct {
		from, to model.EndpointKey
		v6       bool
	}
	between := map[pair]*stated{}
	for _, d := range all {
		for _, v6 := range []bool{false, true} {
			if v6 && !d.IPv6 || !v6 && !d.IPv4 {
				continue
			}
			for _, from := range d.From.Endpoints {
				for _, to := range d.To.Endpoints {
					p := pair{from, to, v6}
					if between[p] == nil {
						between[p] = &stated{}
					}
					between[p].add(d)
				}
			}
		}
	}
	keys := map[model.EndpointKey]bool{}
	for _, p := range w.parties {
		keys[p.Key] = true
	}
	for from := range keys {
		for to := range keys {
			for _, v6 := range []bool{false, true} {
				if from == to {
					continue
				}
				var allowed [2]reachability.Ports
				for i, c := range []*reachability.Cluster{before, after} {
					a, okA := c.Port(from)
					b, okB := c.Port(to)
					if okA && okB {
						allowed[i] = allowedBy(c.Between(a, b, v6))
					}
				}
				said := between[pair{from, to, v6}]
				if said == nil {
					said = &stated{}
				}
				if err := said.check(allowed[0], allowed[1]); err != nil {
					return fmt.Errorf("%s to %s, IPv6 %v: %w", from, to, v6, err)
				}
				seen[fmt.Sprintf("between: opens %v, closes %v", !said.opens.IsEmpty(), !said.closes.IsEmpty())]++
			}
		}
	}
	return w.agreeOnDifferenceOutside(before, after, all, seen)
}

func (w *fuzzWorld) agreeOnDifferenceOutside(before, after *reachability.Cluster, all []reachability.Difference, seen map[string]int) error {
	addrs := []netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("10.0.0.200"), netip.MustParseAddr("fd00::aaaa")}
	for _, p := range w.parties {
		addrs = append(addrs, p.addr, p.addr.Next())
	}
	endpoints := map[netip.Addr]bool{}
	for _, p := range w.parties {
		endpoints[p.addr] = endpoints[p.addr] || p.Host != ""
	}
	for _, p := range w.parties {
		for _, at := range addrs {
			if endpoints[at] {
				continue
			}
			for _, dir := range []model.Direction{model.In, model.Out} {
				var allowed [2]reachability.Ports
				routed := false
				for i, c := range []*reachability.Cluster{before, after} {
					end, ok := c.Port(p.Key)
					if !ok {
						continue
					}
					answers := c.ToOutside(end, netip.PrefixFrom(at, at.BitLen()))
					if dir == model.In {
						answers = c.FromOutside(netip.PrefixFrom(at, at.BitLen()), end)
					}
					routed = routed || answers[0].Route != reachability.RouteNone
					allowed[i] = allowedBy(answers[0].Answer)
				}
				if !routed {
					continue
				}
				var said stated
				for _, d := range all {
					inside, outside := d.From, d.To
					if dir == model.In {
						inside, outside = d.To, d.From
					}
					if slices.Contains(inside.Endpoints, p.Key) && slices.ContainsFunc(outside.Prefixes, func(x netip.Prefix) bool { return x.Contains(at) }) {
						said.add(d)
					}
				}
				if err := said.check(allowed[0], allowed[1]); err != nil {
					return fmt.Errorf("%s %s %s: %w", p.Key, dir, at, err)
				}
				seen[fmt.Sprintf("outside: opens %v, closes %v", !said.opens.IsEmpty(), !said.closes.IsEmpty())]++
			}
		}
	}
	return nil
}

// TestDifferenceIsWhatAnswersDifferIn compares the difference of two clusters with the answers
// of both for all pairs, in random clusters that change: 10,000 of them with -full.
func TestDifferenceIsWhatAnswersDifferIn(t *testing.T) {
	seeds := uint32(10000)
	if !Full() {
		seeds /= 500
	}
	seen := map[string]int{}
	for seed := range seeds {
		w := newFuzzWorld(binary.BigEndian.AppendUint32([]byte("d"), seed), nil)
		before := reachability.NewCluster()
		state, _ := w.whole.Compile(1)
		before.Update(state)
		for range 4 {
			for range 1 + w.d.n(2) {
				w.change()
			}
			after := before.Clone()
			state, _ := w.whole.Compile(1)
			after.Update(state)
			if err := w.agreeOnDifference(before, after, seen); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			before = after
		}
	}
	musts := []string{
		"between: opens true, closes false", "between: opens false, closes true",
		"outside: opens true, closes false", "outside: opens false, closes true",
	}
	if Full() {
		musts = append(musts, "between: opens true, closes true") // of one pair: rare
	}
	for _, must := range musts {
		if seen[must] == 0 {
			t.Errorf("no difference was %q: %v", must, seen)
		}
	}
	t.Logf("%d clusters: %v", seeds, seen)
}
