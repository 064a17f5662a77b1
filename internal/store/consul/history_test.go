package consul

import (
	"encoding/json"
	"testing"

	"github.com/hashicorp/consul/api"
)

// A commit is missing from a history when another one is where it has to be, and only then:
// what the ring has lost is not known to be gone.
func TestMissingCommitIsNoticed(t *testing.T) {
	known := entry{N: 5000, ID: "a"}
	if got := parsePlace(known.place()); got.N != known.N || got.ID != known.ID {
		t.Errorf("%q is read as %+v", known.place(), got)
	}
	for _, s := range []string{"", "0.", "5", ".a", "-1.a", "x.a", "99999999999999999999.a"} {
		if e := parsePlace(s); e.N != 0 || e.ID != "" {
			t.Errorf("%q is read as %+v", s, e)
		}
	}
	at := func(e entry) []byte {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, tt := range []struct {
		name  string
		known entry
		head  entry
		slot  []byte // of what is known; nil = empty
		want  bool
	}{
		{"it is the newest", known, known, at(known), false},
		{"others came", known, entry{N: 5001, ID: "b"}, at(known), false},
		{"another is the newest of that number", known, entry{N: 5000, ID: "b"}, at(entry{N: 5000, ID: "b"}), true},
		{"others came after another one", known, entry{N: 5002, ID: "c"}, at(entry{N: 5000, ID: "b"}), true},
		{"there are less", known, entry{N: 4999, ID: "b"}, at(entry{N: 5000 - slots, ID: "c"}), true},
		{"there are none", known, entry{}, nil, true},
		{"the ring has just not gone round", known, entry{N: 5000 + slots - 1, ID: "b"}, at(entry{N: 5000, ID: "c"}), true},
		{"the ring has gone round", known, entry{N: 5000 + slots, ID: "b"}, at(entry{N: 5000 + slots, ID: "b"}), false},
		{"the ring has gone round twice", known, entry{N: 5000 + 2*slots + 7, ID: "b"}, at(entry{N: 5000 + 2*slots, ID: "c"}), false},
		{"the journal was deleted", known, entry{N: 5002, ID: "c"}, nil, false},
		{"somebody wrote there", known, entry{N: 5002, ID: "c"}, []byte("x"), false},
		{"nothing is known", entry{}, entry{N: 7, ID: "c"}, nil, false},
	} {
		v := view{head: tt.head, pairs: map[string]*api.KVPair{}}
		if tt.slot != nil {
			v.pairs[slotKey(tt.known.N)] = &api.KVPair{Key: slotKey(tt.known.N), Value: tt.slot}
		}
		if got := v.isMissing(tt.known); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}
