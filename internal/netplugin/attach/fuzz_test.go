package attach

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// FuzzSpool: whatever stands in a file of the spool, it is read as a deletion of that
// file's key or named in the error and left alone, and the other files' deletions are
// read in any case.
func FuzzSpool(f *testing.F) {
	for _, s := range []string{`{"container":"c","ifname":"eth0"}`, `{"container":"c","ifname":"eth0","netns":"/ns"}`, `{"container":"d"}`, `{}`, `null`, `{`, ``} {
		f.Add([]byte(s))
	}
	other := DetachRequest{Key: Key{Container: "other", IfName: "eth0"}}
	mine := Key{Container: "c", IfName: "eth0"}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := Spool{Dir: t.TempDir()}
		if err := s.Put(other); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.path(mine), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.Dir, "x.json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := s.List()
		if err == nil {
			t.Errorf("%q: x.json is read as a deletion: %+v", data, all)
		}
		var rest []DetachRequest
		for _, r := range all {
			if !reflect.DeepEqual(r, other) {
				rest = append(rest, r)
			}
		}
		if len(all)-len(rest) != 1 || len(rest) > 1 || len(rest) == 1 && rest[0].Key != mine {
			t.Errorf("%q: read %+v", data, all)
		}
		if now, err := os.ReadFile(s.path(mine)); err != nil || string(now) != string(data) {
			t.Errorf("%q is %q after reading, %v", data, now, err)
		}
		if len(rest) == 0 {
			return
		}
		if err := s.Put(rest[0]); err != nil {
			t.Fatal(err)
		}
		if again, _ := s.List(); !reflect.DeepEqual(again, all) {
			t.Errorf("%q is %+v, again %+v", data, all, again)
		}
	})
}
