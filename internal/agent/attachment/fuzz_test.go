package attachment

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzEntry: whatever a file of the journal holds, it is an entry that can be acted
// on, or is refused.
func FuzzEntry(f *testing.F) {
	for _, s := range []string{
		`{"version":1,"state":"done","hostIf":"v1","request":{"container":"c","ifname":"eth0"}}`,
		`{"version":1,"state":"owed","hostIf":"v1","request":{"container":"c","addresses":["10.1.1.1"],"mac":"02:00:00:00:00:01"}}`,
		`{"version":99}`, `{"version":1e9`, `null`, `[]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		j := &journal{dir: t.TempDir()}
		file := filepath.Join(j.dir, "x.json")
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
	})
}
