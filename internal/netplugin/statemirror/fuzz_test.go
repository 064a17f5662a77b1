package statemirror

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// FuzzRecall: whatever stands in the file that says which store is followed, an agent
// begins: the file is taken, and stays, or is set aside whole, and then it follows none.
func FuzzRecall(f *testing.F) {
	for _, s := range []string{`{"version":1,"revision":7}`, `{"version":1,"incarnation":"a","older":true}`, `{"version":2}`, `{"version":1}{`, `null`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, PositionFile)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := ReadPosition(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		where := path
		if m.Version != 1 {
			where += ".bad"
			if !reflect.DeepEqual(m, StorePosition{}) {
				t.Errorf("%q is read as %+v", data, m)
			}
		}
		if now, err := os.ReadFile(where); err != nil || string(now) != string(data) {
			t.Errorf("%q: %s has %q, %v", data, where, now, err)
		}
		if again, err := ReadPosition(dir, slog.New(slog.DiscardHandler)); err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%q is %+v, again %+v, %v", data, m, again, err)
		}
	})
}
