package attachment

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// FuzzEntry: whatever a file of the journal holds, it is refused, or an entry that can be acted
// on, and is the same when it is written and read again.
func FuzzEntry(f *testing.F) {
	for _, s := range []string{
		`{"version":1,"state":"done","hostIf":"v1","request":{"container":"c","ifname":"eth0"}}`,
		`{"version":1,"state":"owed","hostIf":"v1","request":{"container":"c","addresses":["10.1.1.1"],"mac":"02:00:00:00:00:01"}}`,
		`{"version":99}`, `{"version":1e9`, `null`, `[]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "x.json")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := readEntry(file)
		if err != nil {
			return
		}
		if e.Request.Container == "" || e.HostIf == "" || e.State == "" {
			t.Errorf("%q is read as %+v", data, e)
		}
		dir := t.TempDir()
		j, err := openJournal(dir, slog.New(slog.DiscardHandler))
		if err == nil {
			err = j.put(e)
		}
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if j, err = openJournal(dir, j.log); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		got, there := j.get(e.Key())
		want, err1 := json.Marshal(e)
		has, err2 := json.Marshal(got)
		if err := errors.Join(err1, err2); err != nil || !there || string(has) != string(want) {
			t.Errorf("%q is %s, again %s (%v), %v", data, want, has, there, err)
		}
	})
}
