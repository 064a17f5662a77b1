package main

import (
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
)

// TestRemovedLeaderRaisesNoFalseAlarm: a member that leads the store is removed with force
// only, asked of itself or of another; the answer warns of what is, and of nothing else.
func TestRemovedLeaderRaisesNoFalseAlarm(t *testing.T) {
	t.Parallel()
	a := start(t, nil, newEmbeddedMember(t, "a").args...)
	a.ready()
	at := map[string]*process{"a": a}
	for _, name := range []string{"b", "c"} {
		at[name] = start(t, nil, newEmbeddedMember(t, name).with("--token", a.joinToken())...)
		at[name].ready()
	}
	for _, itself := range []bool{false, true} {
		all, err := a.Members(t.Context())
		if err != nil || len(all.Members) != 3 {
			t.Fatalf("%+v, %v", all, err)
		}
		leader, other := "", ""
		for _, m := range all.Members {
			if m.Leads {
				leader = m.Name
			} else {
				other = m.Name
			}
		}
		if leader == "" || other == "" {
			t.Fatalf("leads: %+v", all)
		}
		asked := at[other]
		if itself {
			asked = at[leader]
		}
		if _, err := asked.RemoveMember(t.Context(), leader, false); err == nil || !strings.Contains(err.Error(), leader+" is alive and leads the store: stop its netmaster first") {
			t.Errorf("itself %v: without force: %v", itself, err)
		}
		left, err := asked.RemoveMember(t.Context(), leader, true)
		if err != nil {
			t.Fatal(err)
		}
		checkLeft(t, itself, left)
		if itself {
			return
		}
		delete(at, leader)
		a = at[other]
		at["d"] = start(t, nil, newEmbeddedMember(t, "d").with("--token", a.joinToken())...)
		at["d"].ready()
	}
}

func checkLeft(t *testing.T, itself bool, left api.Members) {
	t.Helper()
	warning, members := "two members, which is weaker than one", 2
	if itself && len(left.Members) == 0 { // it had ended by then
		warning, members = "ask another one for the members", 0
	}
	if len(left.Members) != members || len(left.Warnings) != 1 || !strings.Contains(left.Warnings[0], warning) {
		t.Errorf("itself %v: left are %+v", itself, left)
	}
}
