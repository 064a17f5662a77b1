package store

import (
	"strings"
	"testing"
)

// Prefix ends are the first key behind all keys with the prefix.
func TestPrefixEndIsBehindAllItsKeys(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"a/", "a0"}, {"a\xff", "b"}, {"\xff\xff", ""}, {"", ""},
	} {
		if got := PrefixEnd(test.in); got != test.want {
			t.Errorf("%q: got %q, want %q", test.in, got, test.want)
		}
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
