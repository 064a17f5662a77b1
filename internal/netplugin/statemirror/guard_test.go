package statemirror

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestUnknownTransitionsOfTheGuardAreErrors walks all states and events: what is not in the
// table is an error and changes nothing.
func TestUnknownTransitionsOfTheGuardAreErrors(t *testing.T) {
	events := []guardEvent{suspected, accepted, rejected, restored}
	known := 0
	for _, from := range []guardState{syncing, following, frozen, rebuilding} {
		for _, e := range events {
			to, listed := guardTransitions[from][e]
			got, err := from.next(e)
			if listed != (err == nil) || listed && got != to || !listed && got != from {
				t.Errorf("%s, %s: %s, %v", from, e, got, err)
			}
			if listed {
				known++
			}
		}
	}
	all := 0
	for _, m := range guardTransitions {
		all += len(m)
	}
	if all != known {
		t.Errorf("%d of %d transitions are of known states and events", known, all)
	}
}

// TestPageDrawsTheGuard: the design page has the transitions of the table.
func TestPageDrawsTheGuard(t *testing.T) {
	page, err := os.ReadFile("../../../docs/design/store.md")
	if err != nil {
		t.Fatal(err)
	}
	var drawn, want []string
	for _, m := range regexp.MustCompile(`(?m)^ {2}(\w+) --> (\w+): (\w+)$`).FindAllStringSubmatch(string(page), -1) {
		drawn = append(drawn, fmt.Sprint(m[1:]))
	}
	for from, m := range guardTransitions {
		for e, to := range m {
			want = append(want, fmt.Sprint([]string{string(from), string(to), string(e)}))
		}
	}
	slices.Sort(drawn)
	slices.Sort(want)
	if !slices.Equal(drawn, want) {
		t.Errorf("drawn: %v\nhave: %v", drawn, want)
	}
}
