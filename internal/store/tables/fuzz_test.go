package tables

import (
	"bytes"
	"testing"

	"github.com/contiv/netplugin/v2/internal/store"
)

// rewritten is where a row would be written, and as what; false when it is none of this
// table's.
func (t *Table[K, V]) rewritten(c Change) (key string, value []byte, ok bool, err error) {
	k, isKey := c.Key.(K)
	if !isKey {
		return "", nil, false, nil
	}
	key = t.Key(k)
	if c.Value == nil {
		return key, nil, true, nil
	}
	v, isValue := c.Value.(V)
	if !isValue {
		return "", nil, false, nil
	}
	value, err = store.EncodeRecord(t.spec.Version, v)
	return key, value, true, err
}

// FuzzRows: a key that is read as a row's is the one where that row is written, so that no
// row has two; and a value that is read says the same when it is written and read again.
func FuzzRows(f *testing.F) {
	for _, s := range []string{
		"state/global/config/global", "state/tenant/a/networks/b", "state/tenant/a%2fb/networks/b", "state/tenant/*/networks/*",
		"alloc/number/vlan/000007", "alloc/address/a/b/40a000001", "alloc/address/a/b/40A000001", "alloc/ref/a", "commit", "",
	} {
		f.Add(store.Root+s, []byte(`{"v":1,"d":{}}`))
	}
	f.Add(StatePrefix+"tenant/a/networks/b", []byte(`{"v":1,"d":{"Key":{"Tenant":"a","Name":"b"},"Subnet4":{"Prefix":"10.1.0.0/16"}}}`))
	f.Add(StatePrefix+"tenant/a/networks/b", []byte(`{"v":9,"d":null}`))
	for _, s := range samples(f) {
		f.Add(s.ev.KV.Key, s.ev.KV.Value)
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		c, err := Decode(store.Event{KV: store.KV{Key: key, Value: value, Create: 1}})
		if c.Key == nil {
			return
		}
		if err != nil {
			c.Value = nil
		}
		found := false
		for _, table := range registry {
			at, b, ok, err := table.(interface {
				rewritten(Change) (string, []byte, bool, error)
			}).rewritten(c)
			if err != nil {
				t.Fatalf("%q at %q cannot be written again: %v", value, key, err)
			}
			if !ok || at != key {
				continue
			}
			found = true
			if b == nil {
				continue
			}
			again, err := Decode(store.Event{KV: store.KV{Key: key, Value: b, Create: 1}})
			if err != nil {
				t.Fatalf("%q at %q is written as %q, which cannot be read: %v", value, key, b, err)
			}
			_, bb, ok, err := table.(interface {
				rewritten(Change) (string, []byte, bool, error)
			}).rewritten(again)
			if err != nil || !ok || !bytes.Equal(b, bb) {
				t.Errorf("%q at %q is written as %q, and then as %q, %v", value, key, b, bb, err)
			}
		}
		if !found {
			t.Errorf("%q is read as the row of %+v, which no table writes there", key, c.Key)
		}
	})
}
