package model

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestAddressPoolIsParsed(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.0/29":                         "[203.0.113.1-203.0.113.6]",
		"203.0.113.4/31":                         "[203.0.113.4-203.0.113.5]",
		"203.0.113.9":                            "[203.0.113.9-203.0.113.9]",
		"203.0.113.9-203.0.113.11,198.51.100.1":  "[198.51.100.1-198.51.100.1 203.0.113.9-203.0.113.11]",
		"2001:db8::/120,203.0.113.1":             "[203.0.113.1-203.0.113.1 2001:db8::1-2001:db8::ff]",
		"":                                       "pool",
		"203.0.113.1/29":                         "pool",
		"x":                                      "pool",
		"203.0.113.9-203.0.113.8":                "pool",
		"203.0.113.9-2001:db8::1":                "pool",
		"224.0.0.1":                              "pool",
		"127.0.0.0/8":                            "pool",
		"::ffff:203.0.113.1":                     "pool",
		"203.0.113.0/29,203.0.113.6":             "pool",
		"203.0.113.1-203.0.113.5,203.0.113.0/24": "pool",
		"2001:db8::/120,2001:db8::20-2001:db8::30": "pool",
	} {
		p, err := ParseAddressPool("pool", strings.Split(text, ","))
		got := fmt.Sprint([]AddrRange(p))
		if err != nil {
			got, _, _ = strings.Cut(err.Error(), " ")
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
	}
	many := make([]string, maxPoolRanges+1)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}).String()
	}
	if _, err := ParseAddressPool("pool", many); err == nil {
		t.Error("a pool of too many is taken")
	}
}

// TestAddressPoolContinuesBehindAnAddress: each address once, from behind the one before.
func TestAddressPoolContinuesBehindAnAddress(t *testing.T) {
	p, err := ParseAddressPool("pool", strings.Split("203.0.113.1-203.0.113.3,203.0.113.7-203.0.113.8,2001:db8::1-2001:db8::2", ","))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		after netip.Addr
		v6    bool
		want  string
	}{
		{netip.Addr{}, false, "1 2 3 7 8"},
		{netip.MustParseAddr("203.0.113.2"), false, "3 7 8 1 2"},
		{netip.MustParseAddr("203.0.113.3"), false, "7 8 1 2 3"},
		{netip.MustParseAddr("203.0.113.5"), false, "7 8 1 2 3"},
		{netip.MustParseAddr("203.0.113.8"), false, "1 2 3 7 8"},
		{netip.MustParseAddr("203.0.112.1"), false, "1 2 3 7 8"},
		{netip.Addr{}, true, "1 2"},
		{netip.MustParseAddr("2001:db8::1"), true, "2 1"},
	} {
		var got []string
		for a := range p.From(tc.after, tc.v6) {
			b := a.AsSlice()
			got = append(got, fmt.Sprint(b[len(b)-1]))
		}
		if text := strings.Join(got, " "); text != tc.want {
			t.Errorf("behind %s: %s, want %s", tc.after, text, tc.want)
		}
	}
	if !p.Has(true) || !p.Has(false) || p[:2].Has(true) || !p.Contains(netip.MustParseAddr("203.0.113.7")) || p.Contains(netip.MustParseAddr("203.0.113.4")) {
		t.Error("what it has it has not")
	}
}
