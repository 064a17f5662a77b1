package consul

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/contiv/netplugin/v2/internal/model"
)

// FuzzJournal: what somebody has written where the journal stands is refused as
// unavailable, or it is an entry that says the same when it is written again, and that
// a next one follows; and names of leases are read as they are written.
func FuzzJournal(f *testing.F) {
	for _, s := range []string{`{"n":1,"id":"a"}`, `{"n":4097,"id":"b","prev":"a","keys":["x"],"trees":["y/"]}`, `{"n":-1,"id":"a"}`, `{"n":1}`, `null`, `[]`} {
		f.Add([]byte(s), "1f", "y/z")
	}
	f.Add([]byte(`{"ttl":1,"n":2}`), "0", "")
	f.Fuzz(func(t *testing.T, value []byte, lease, key string) {
		e, err := parseEntry(&api.KVPair{Key: slotKey(1), Value: value, ModifyIndex: 7})
		if head, headErr := parseHead(&api.KVPair{Value: value, ModifyIndex: 7}); (err == nil) != (headErr == nil) || err == nil && !reflect.DeepEqual(e, head) {
			t.Errorf("%q is %+v, %v in its slot, and %+v, %v at the head", value, e, err, head, headErr)
		}
		if err == nil {
			b, encoding := json.Marshal(e)
			again, err := parseEntry(&api.KVPair{Value: b, ModifyIndex: 7})
			if err := errors.Join(encoding, err); err != nil || again.N != e.N || again.ID != e.ID || again.Prev != e.Prev || again.touches(key) != e.touches(key) {
				t.Errorf("%q is %+v, again %+v, %v", value, e, again, err)
			}
			if next := e.after(); next.N != e.N+1 || next.Prev != e.ID || next.ID == e.ID {
				t.Errorf("%+v is followed by %+v", e, next)
			}
		} else if !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("%q: %v is not a refusal", value, err)
		}
		if n, err := parseLease(lease); err == nil && n != 0 {
			if again, err := parseLease(leaseID(n)); err != nil || again != n {
				t.Errorf("lease %q is %d, again %d, %v", lease, n, again, err)
			}
		}
	})
}
