package model

import "testing"

// What a service selects: all of its labels, never everything.
func TestServiceSelects(t *testing.T) {
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
