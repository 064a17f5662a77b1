package model

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

func sizeRule(i int, change func(*Rule)) PolicyRule {
	r := Rule{Key: RuleKey{"t", "p", RuleID(strconv.Itoa(i))}, Direction: In, Priority: 1, Action: Allow, Protocol: AnyProtocol}
	change(&r)
	return r.General()
}

// ten identities are on each network, one in each group.
func ten(s Selector) int {
	if s.Group != "" {
		return 1
	}
	return 10
}

// TestPolicyMeterCounts checks the sums of small lists by hand.
func TestPolicyMeterCounts(t *testing.T) {
	tcp := func(port uint16) func(*Rule) { return func(r *Rule) { r.Protocol, r.Port = ProtoTCP, port } }
	at := func(p string, then func(*Rule)) func(*Rule) {
		return func(r *Rule) { r.Addr = netip.MustParsePrefix(p); then(r) }
	}
	none := func(*Rule) {}
	for name, tc := range map[string]struct {
		rules   []func(*Rule)
		entries int
	}{
		"ports of anybody": {[]func(*Rule){tcp(80), tcp(81), tcp(80)}, 3},
		"beside all ports": {[]func(*Rule){tcp(80), tcp(81), tcp(0)}, 4},
		"icmp and all":     {[]func(*Rule){func(r *Rule) { r.Protocol = ProtoICMP }, none}, 3},
		"directions":       {[]func(*Rule){tcp(80), func(r *Rule) { tcp(0)(r); r.Direction = Out }}, 4},
		"a group":          {[]func(*Rule){func(r *Rule) { tcp(80)(r); r.Group = "g" }}, 2},
		"a network":        {[]func(*Rule){func(r *Rule) { tcp(80)(r); r.Network = "n" }}, 24},
		"nested":           {[]func(*Rule){at("10.1.0.0/16", tcp(80)), at("10.1.1.0/24", tcp(81)), at("10.2.0.0/16", tcp(82)), at("10.0.0.0/8", tcp(83))}, 8},
		"families":         {[]func(*Rule){at("0.0.0.0/0", tcp(80)), at("::/0", tcp(81)), at("fd00::/8", none)}, 5},
	} {
		var rules []PolicyRule
		for i, f := range tc.rules {
			rules = append(rules, sizeRule(i, f))
		}
		if n := NewPolicyMeter(rules).Entries(ten); n != tc.entries {
			t.Errorf("%s: %d entries, want %d", name, n, tc.entries)
		}
	}
}

// TestPolicyMeterIgnoresTheOrder: a meter tells the same in whatever order rules came,
// and went.
func TestPolicyMeterIgnoresTheOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		var kept, gone []PolicyRule
		for i := range rnd.IntN(60) {
			r := sizeRule(i, func(r *Rule) {
				r.Direction = []Direction{In, Out}[rnd.IntN(2)]
				r.Protocol = []Protocol{AnyProtocol, ProtoTCP, ProtoUDP, ProtoICMP, 47}[rnd.IntN(5)]
				if r.Protocol.HasPorts() {
					r.Port = uint16(rnd.IntN(5))
				}
				switch rnd.IntN(4) {
				case 0:
					r.Group = GroupName(strconv.Itoa(rnd.IntN(2)))
				case 1:
					r.Network = NetworkName(strconv.Itoa(rnd.IntN(2)))
				case 2:
					r.Addr, _ = netip.AddrFrom4([4]byte{10, byte(rnd.IntN(3)), 0, byte(rnd.IntN(3))}).Prefix(rnd.IntN(33))
				}
			})
			if rnd.IntN(2) == 0 {
				kept = append(kept, r)
			} else {
				gone = append(gone, r)
			}
		}
		var m PolicyMeter
		all := append(append([]PolicyRule(nil), kept...), gone...)
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, r := range all {
			m.Add(r)
		}
		rnd.Shuffle(len(gone), func(i, j int) { gone[i], gone[j] = gone[j], gone[i] })
		for _, r := range gone {
			m.Remove(r)
		}
		if n, want := m.Entries(ten), NewPolicyMeter(kept).Entries(ten); n != want {
			t.Fatalf("%d entries; want %d of %+v", n, want, kept)
		}
	}
}

// TestPolicyMeterRefusesTooManyRules: rules of a network with many groups are refused where
// they become too many, by the count, and nothing is counted of what is refused.
func TestPolicyMeterRefusesTooManyRules(t *testing.T) {
	const groups = 998
	many := func(Selector) int { return groups }
	var rules []PolicyRule
	for i := range 600 {
		rules = append(rules, sizeRule(i, func(r *Rule) { r.Network, r.Protocol, r.Port = "n", ProtoTCP, uint16(1+i) }))
	}
	var m PolicyMeter
	fit, err := m.Check(rules, nil, many)
	want := MaxPolicyEntries/(groups+2) - 1
	if count := strconv.Itoa((want + 2) * (groups + 2)); fit != want || !errors.Is(err, ErrExhausted) || !strings.Contains(err.Error(), count) || !strings.Contains(err.Error(), "docs/reference/restrictions.md") {
		t.Errorf("%d rules fit, %v; want %d, and the count %s told", fit, err, want, count)
	}
	if n := m.Entries(many); n != 0 {
		t.Errorf("the check left %d entries", n)
	}
	m = *NewPolicyMeter(rules[:want])
	if fit, err := m.Check(rules[want:want+1], nil, many); fit != 0 || err == nil {
		t.Errorf("beyond the limit: %d rules fit, %v", fit, err)
	}
	if fit, err := m.Check(rules[:1], nil, many); fit != 1 || err != nil {
		t.Errorf("a rule for what another one is for: %d fit, %v", fit, err)
	}
}

// TestRulesOfAnyShapeFit: 10,000 rules of any peers and ports are taken, also of
// address ranges that lie in one another.
func TestRulesOfAnyShapeFit(t *testing.T) {
	for name, shape := range map[string]func(i int, r *Rule){
		"groups":  func(i int, r *Rule) { r.Group = GroupName("g" + strconv.Itoa(i%100)) },
		"anybody": func(int, *Rule) {},
		"addresses": func(i int, r *Rule) {
			r.Addr = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
		},
		"ports of a wide range, and ranges inside it": func(i int, r *Rule) {
			r.Addr = netip.MustParsePrefix("10.0.0.0/8")
			if i%2 == 0 {
				r.Addr = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
			}
		},
		"ranges of all lengths": func(i int, r *Rule) {
			r.Addr, _ = netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}).Prefix(i % 33)
		},
	} {
		var rules []PolicyRule
		for i := range 10000 {
			rules = append(rules, sizeRule(i, func(r *Rule) { r.Protocol, r.Port = ProtoTCP, uint16(1+i); shape(i, r) }))
		}
		if _, err := NewPolicyMeter(nil).Check(rules, nil, ten); err != nil {
			t.Errorf("10,000 rules of %s: %v", name, err)
		}
	}
}
