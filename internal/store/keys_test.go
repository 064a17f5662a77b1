package store

import (
	"strings"
	"testing"
)

// Prefix ends are the first key behind all keys with the prefix.
func TestPrefixEnd(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"a/", "a0"}, {"a\xff", "b"}, {"\xff\xff", ""}, {"", ""},
	} {
		if got := PrefixEnd(test.in); got != test.want {
			t.Errorf("%q: got %q, want %q", test.in, got, test.want)
		}
	}
}

// The commit key lies where one watch range covers it and what agents mirror,
// but no allocation.
func TestSpan(t *testing.T) {
	for _, test := range []struct {
		prefixes []string
		commits  bool
		from, to string
	}{
		{[]string{StatePrefix + "tenant/blue/", GlobalPrefix}, false, GlobalPrefix, StatePrefix + "tenant/blue0"},
		{[]string{StatePrefix + "tenant/blue/", GlobalPrefix}, true, CommitKey, StatePrefix + "tenant/blue0"},
		{[]string{AllocPrefix}, true, AllocPrefix, CommitKey + "\x00"},
		{[]string{StatePrefix, GlobalPrefix}, true, StatePrefix, Root + "state0"},
		{[]string{""}, true, "", ""},
		{nil, true, CommitKey, CommitKey + "\x00"},
	} {
		m := NewMirrorState(test.prefixes, test.commits)
		if from, to := m.Span(); from != test.from || to != test.to {
			t.Errorf("%q, %v: got [%q, %q), want [%q, %q)", test.prefixes, test.commits, from, to, test.from, test.to)
		}
	}
	if CommitKey <= PrefixEnd(AllocPrefix) || CommitKey >= GlobalPrefix {
		t.Errorf("%s must sort between %s and %s", CommitKey, AllocPrefix, GlobalPrefix)
	}
}

// Every name becomes one segment of a key and comes back; no two names share one.
func FuzzSegment(f *testing.F) {
	for _, seed := range []string{"", "%", "web", "a/b", "a b", "\x00", "é", "%2F", "..", "a%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		seg := Segment(s)
		if seg == "" || strings.Contains(seg, "/") {
			t.Fatalf("%q became %q", s, seg)
		}
		if back, ok := ParseSegment(seg); !ok || back != s {
			t.Fatalf("%q became %q, which became %q, %v", s, seg, back, ok)
		}
		if name, ok := ParseSegment(s); ok && Segment(name) != s {
			t.Fatalf("%q was accepted for %q, whose segment is %q", s, name, Segment(name))
		}
	})
}
