package model

import "testing"

// What a service selects: all of its labels, never everything.
func TestServiceSelectsByAllItsLabels(t *testing.T) {
	s := Service{Selectors: []ServiceSelector{{"app", "web"}, {"tier", ""}}}
	for _, tc := range []struct {
		labels map[string]string
		want   bool
	}{
		{nil, false},
		{map[string]string{"app": "web"}, false},
		{map[string]string{"app": "web", "tier": "x"}, false},
		{map[string]string{"app": "db", "tier": ""}, false},
		{map[string]string{"app": "web", "tier": "", "more": "1"}, true},
	} {
		if got := s.Selects(tc.labels); got != tc.want {
			t.Errorf("%v: %v", tc.labels, got)
		}
	}
	if (Service{}).Selects(map[string]string{"app": "web"}) {
		t.Error("a service without selectors selects everything")
	}
}

// An affinity's text is the one that people write.
func TestAffinityPrintsAsItIsWritten(t *testing.T) {
	for text, want := range map[string]Affinity{"": 0, "off": NoAffinity, "1s": 1, "10m": 600, "3h": 10800, "1h30m": 5400, "1h0m1s": 3601, "1m1s": 61, "24h": MaxAffinity} {
		a, err := ParseAffinity(text)
		if err != nil || a != want || a.String() != text {
			t.Errorf("%q is %d, %v, and written %q", text, int64(a), err, a)
		}
	}
}
