package store

import (
	"testing"
)

// TestRangeIsReadFromMemoryAtItsRevisions: a range is answered from memory at any revision from its own last change
// on, whatever else changes, and not at those of which it is not known.
func TestRangeIsReadFromMemoryAtItsRevisions(t *testing.T) {
	f := NewFollower(nil, []string{"/"}, nil)
	f.Ranges("/small/")
	c := &f.cache
	put := func(key string, rev Revision) Event { return Event{KV: KV{Key: key, Create: rev, Mod: rev}} }
	want := func(when string, at Revision, prefix string, rev Revision, keys ...string) {
		t.Helper()
		kvs, got := c.RangeCached(at, prefix)
		same := len(kvs) == len(keys)
		for i := 0; same && i < len(keys); i++ {
			same = kvs[i].Key == keys[i]
		}
		if got != rev || !same {
			t.Errorf("%s, at %d: %v at %d, want %v at %d", when, at, kvs, got, keys, rev)
		}
	}
	want("before the first snapshot", 0, "/small/", 0)
	c.apply(Batch{Revision: 5, Snapshot: true, Listed: true, Events: []Event{put("/small/b", 3), put("/small/a", 4), put("/big/x", 5)}})
	want("first", 0, "/small/", 5, "/small/a", "/small/b")
	want("earlier", 4, "/small/", 0)
	want("another prefix", 0, "/big/", 0)
	c.apply(Batch{Revision: 7, Events: []Event{put("/big/y", 7)}})
	want("something else has changed", 0, "/small/", 7, "/small/a", "/small/b")
	want("the one before", 6, "/small/", 6, "/small/a", "/small/b")
	want("later than is known", 8, "/small/", 0)
	c.apply(Batch{Revision: 9, Events: []Event{{KV: KV{Key: "/small/a", Mod: 9}}}})
	want("one is gone", 0, "/small/", 9, "/small/b")
	want("when it was there", 8, "/small/", 0)
	c.apply(Batch{Revision: 12, Listed: true})
	want("after a list", 11, "/small/", 0)
	want("as listed", 12, "/small/", 12, "/small/b")
	c.apply(Batch{Revision: 20, Snapshot: true, Listed: true})
	want("another store", 0, "/small/", 20)
}
