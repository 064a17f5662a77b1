package relay

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/store"
)

func all(string) bool { return true }

// commitOf is a batch of one row.
func commitOf(rev store.Revision, key, value string) store.Batch {
	return store.Batch{Revision: rev, Place: fmt.Sprint("p", rev), Events: []store.Event{{KV: store.KV{Key: key, Value: []byte(value), Create: rev, Mod: rev}}}}
}

// TestHistoryContinuesInTheSameStoreOnly: a list continues a history if it is of a store that
// has gone on.
func TestHistoryContinuesInTheSameStoreOnly(t *testing.T) {
	one := store.Incarnation{ID: "a", Generation: 1}
	var h history
	h.begin(store.Batch{Revision: 7, Store: one})
	for name, test := range map[string]struct {
		b    store.Batch
		want bool
	}{
		"commit":                {store.Batch{Revision: 8}, true},
		"list":                  {store.Batch{Revision: 8, Listed: true, Store: one}, true},
		"list of no change":     {store.Batch{Revision: 7, Listed: true, Store: one}, true},
		"first list":            {store.Batch{Revision: 8, Listed: true, Snapshot: true, Store: one}, false},
		"list of an older one":  {store.Batch{Revision: 8, Listed: true, Older: true, Store: one}, false},
		"list from before":      {store.Batch{Revision: 6, Listed: true, Store: one}, false},
		"list of another store": {store.Batch{Revision: 8, Listed: true, Store: store.Incarnation{ID: "b", Generation: 1}}, false},
	} {
		if got := h.continues(test.b); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestHistoryHasWhatFollowsARevision: commits since any revision that it still has, and of no
// other, nor of another place.
func TestHistoryHasWhatFollowsARevision(t *testing.T) {
	var h history
	h.begin(store.Batch{Revision: 5, Place: "p5"})
	for rev := store.Revision(5); rev <= 9; rev += 2 { // 5 is in the state that it began with
		h.add(commitOf(rev, fmt.Sprint("k", rev), ""), all)
	}
	h.add(commitOf(8, "late", ""), all)
	for rev, want := range map[store.Revision]string{0: "none", 4: "none", 5: "[7 9]", 6: "[7 9]", 7: "[9]", 8: "[9]", 9: "[]", 10: "none"} {
		got := "none"
		if commits, ok := h.after(rev); ok {
			revs := []store.Revision{}
			for _, c := range commits {
				revs = append(revs, c.rev)
			}
			got = fmt.Sprint(revs)
		}
		if got != want {
			t.Errorf("after %d: %s, want %s", rev, got, want)
		}
	}
	for _, test := range []struct {
		rev   store.Revision
		place string
		want  bool
	}{{5, "p5", true}, {7, "p7", true}, {9, "p9", true}, {7, "p5", false}, {5, "p7", false}, {8, "p7", false}, {7, "", false}, {4, "p4", false}} {
		if _, ok := h.since(test.rev, test.place); ok != test.want {
			t.Errorf("since %d at %q: %v", test.rev, test.place, ok)
		}
	}
	h.add(store.Batch{Revision: 11, Events: []store.Event{{KV: store.KV{Key: store.StoreIdentityKey}}}}, all)
	if _, ok := h.after(9); ok || h.rev != 11 || len(h.commits) > 0 {
		t.Error("it goes on over a change of the store's identity")
	}
}

// TestHistoryOfAListFollowsOneStateOnly: another hub gave a client a row that was made and
// deleted between two lists of this one. The difference between these does not delete it.
func TestHistoryOfAListFollowsOneStateOnly(t *testing.T) {
	var h history
	h.begin(store.Batch{Revision: 5})
	h.add(store.Batch{Revision: 9, Listed: true}, all)
	h.add(store.Batch{Revision: 11}, all)
	for rev, want := range map[store.Revision]bool{5: true, 6: false, 8: false, 9: true, 10: true, 11: true} {
		if _, ok := h.since(rev, ""); ok != want {
			t.Errorf("since %d: %v, want %v", rev, ok, want)
		}
	}
}

// TestHistoryIsBounded: the oldest commits are forgotten, by number and by bytes, and who
// lacks one of them has to list.
func TestHistoryIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		commits, left int
		value         string
	}{
		"number": {maxHistory + 3, maxHistory, ""},
		"bytes":  {11, 7, strings.Repeat("x", maxHistoryBytes/8)}, // a commit is somewhat more than that
	} {
		t.Run(name, func(t *testing.T) {
			var h history
			h.begin(store.Batch{Revision: 1, Place: "p1"})
			for i := range test.commits {
				h.add(commitOf(store.Revision(i+2), "k", test.value), all)
			}
			oldest := store.Revision(test.commits - test.left + 1)
			if commits, ok := h.since(oldest, fmt.Sprint("p", oldest)); !ok || len(commits) != test.left {
				t.Errorf("since %d: %d commits, %v", oldest, len(commits), ok)
			}
			if _, ok := h.after(oldest - 1); ok {
				t.Errorf("it has what followed %d", oldest-1)
			}
		})
	}
}

// TestDifferenceIsTheLastOfEachRow: of a row that changed several times the newest is sent, and
// of rows outside of the topic none.
func TestDifferenceIsTheLastOfEachRow(t *testing.T) {
	var h history
	h.begin(store.Batch{Revision: 1})
	for i, key := range []string{"a/1", "b/1", "a/2", "a/1", "c/1"} {
		h.add(commitOf(store.Revision(i+2), key, strconv.Itoa(i)), func(key string) bool { return key != "c/1" })
	}
	commits, _ := h.after(1)
	got := map[string]string{}
	for _, r := range (&topic{prefixes: []string{"a/", "c/"}}).difference(commits, Open{}.Show) {
		got[r.Key] = r.Text
	}
	if fmt.Sprint(got) != "map[a/1:3 a/2:2]" {
		t.Errorf("it sends %v", got)
	}
}
