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
		rules             []func(*Rule)
		entries, prefixes int
	}{
		"ports of anybody": {[]func(*Rule){tcp(80), tcp(81), tcp(80)}, 2, 0},
		"beside all ports": {[]func(*Rule){tcp(80), tcp(81), tcp(0)}, 35, 0},
		"icmp and all":     {[]func(*Rule){func(r *Rule) { r.Protocol = ProtoICMP }, none}, 3, 0},
		"directions":       {[]func(*Rule){tcp(80), func(r *Rule) { tcp(0)(r); r.Direction = Out }}, 2, 0},
		"a group":          {[]func(*Rule){func(r *Rule) { tcp(80)(r); r.Group = "g" }}, 1, 0},
		"a network":        {[]func(*Rule){func(r *Rule) { tcp(80)(r); r.Network = "n" }}, 12, 2},
		"nested":           {[]func(*Rule){at("10.1.0.0/16", tcp(80)), at("10.1.1.0/24", tcp(81)), at("10.2.0.0/16", tcp(82)), at("10.0.0.0/8", tcp(83))}, 8, 4},
		"families":         {[]func(*Rule){at("0.0.0.0/0", tcp(80)), at("::/0", tcp(81)), at("fd00::/8", tcp(82))}, 4, 3},
	} {
		var rules []PolicyRule
		for i, f := range tc.rules {
			rules = append(rules, sizeRule(i, f))
		}
		e, p := NewPolicyMeter(rules).Entries(ten)
		if e != tc.entries || p != tc.prefixes {
			t.Errorf("%s: %d entries, %d prefixes; want %d, %d", name, e, p, tc.entries, tc.prefixes)
		}
	}
}

// TestPolicyMeterOrder: a meter tells the same in whatever order rules came,
// and went.
func TestPolicyMeterOrder(t *testing.T) {
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
		e, p := m.Entries(ten)
		want, wantP := NewPolicyMeter(kept).Entries(ten)
		if e != want || p != wantP {
			t.Fatalf("%d entries, %d prefixes; want %d, %d of %+v", e, p, want, wantP, kept)
		}
	}
}

// TestPolicyMeterCheck: ports that every one of many prefixes inherits are
// refused where they become too many, unless rules before them hide them.
func TestPolicyMeterCheck(t *testing.T) {
	const ports, nets = 1000, 600
	list := func(hide bool) (rules []PolicyRule) {
		for i := range ports {
			rules = append(rules, sizeRule(i, func(r *Rule) {
				r.Addr, r.Protocol, r.Port = netip.MustParsePrefix("10.0.0.0/8"), ProtoTCP, uint16(1+i)
			}))
		}
		for i := range nets {
			rules = append(rules, sizeRule(ports+i, func(r *Rule) {
				r.Addr, r.Action = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), Deny
				if !hide {
					r.Protocol = ProtoUDP
				}
			}))
		}
		return rules
	}
	rules := list(false)
	var m PolicyMeter
	fit, err := m.Check(func() []PolicyRule { return nil }, rules, ten)
	if want := ports + (MaxPolicyEntries-ports)/(ports+1); fit != want || !errors.Is(err, ErrExhausted) || !strings.Contains(err.Error(), strconv.Itoa(MaxPolicyEntries)) {
		t.Errorf("%d rules fit, %v; want %d", fit, err, want)
	}
	if e, p := m.Entries(ten); e != 0 || p != 0 {
		t.Errorf("the check left %d entries, %d prefixes", e, p)
	}
	if fit, err := m.Check(func() []PolicyRule { return nil }, list(true), ten); err != nil {
		t.Errorf("with denied networks: %d rules fit, %v", fit, err)
	}
	m = *NewPolicyMeter(rules)
	if fit, err := m.Check(func() []PolicyRule { return rules }, rules[:1], ten); fit != 0 || err == nil {
		t.Errorf("beyond the limit: %d rules fit, %v", fit, err)
	}
	rules = nil
	for i := range MaxPolicyPrefixes + 1 {
		rules = append(rules, sizeRule(i, func(r *Rule) {
			r.Addr = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		}))
	}
	m = *NewPolicyMeter(rules[:MaxPolicyPrefixes])
	if fit, err := m.Check(func() []PolicyRule { return rules[:MaxPolicyPrefixes] }, rules[MaxPolicyPrefixes:], ten); fit != 0 || err == nil {
		t.Errorf("too many prefixes: %d rules fit, %v", fit, err)
	}
}

// TestBoundOfNestedPrefixes pins where rules of any shape end: 1,000 ports of a
// wide prefix beside narrower ones inside it are taken up to the 523rd of these,
// and refused then in words that say what to do (docs/user/limits.md); 10,000
// rules of peers that do not lie inside one another are taken.
func TestBoundOfNestedPrefixes(t *testing.T) {
	var rules []PolicyRule
	add := func(prefix string, port int) {
		rules = append(rules, sizeRule(len(rules), func(r *Rule) {
			r.Addr, r.Protocol, r.Port = netip.MustParsePrefix(prefix), ProtoTCP, uint16(port)
		}))
	}
	for i := range 1000 {
		add("10.0.0.0/8", 1000+i)
	}
	for i := range 523 {
		add(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i / 256), byte(i), 0}), 24).String(), 80)
	}
	last := len(rules) - 1
	m := NewPolicyMeter(rules[:last-1])
	if _, err := m.Check(func() []PolicyRule { return rules[:last-1] }, rules[last-1:last], ten); err != nil {
		t.Errorf("522 nested prefixes: %v", err)
	}
	m.Add(rules[last-1])
	_, err := m.Check(func() []PolicyRule { return rules[:last] }, rules[last:], ten)
	if !errors.Is(err, ErrExhausted) || !strings.Contains(err.Error(), "524288") || !strings.Contains(err.Error(), "docs/user/limits.md") {
		t.Errorf("523 nested prefixes: %v, want a refusal with the limit and what to do", err)
	}
	for name, shape := range map[string]func(i int, r *Rule){
		"groups":  func(i int, r *Rule) { r.Group = GroupName("g" + strconv.Itoa(i%100)) },
		"anybody": func(int, *Rule) {},
		"addresses": func(i int, r *Rule) {
			r.Addr = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
		},
		"disjoint ranges": func(i int, r *Rule) {
			r.Addr = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		},
	} {
		var rules []PolicyRule
		for i := range 10000 {
			rules = append(rules, sizeRule(i, func(r *Rule) { r.Protocol, r.Port = ProtoTCP, uint16(1+i); shape(i, r) }))
		}
		if _, err := NewPolicyMeter(nil).Check(func() []PolicyRule { return nil }, rules, ten); err != nil {
			t.Errorf("10,000 rules of %s: %v", name, err)
		}
	}
}
