package statemirror

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// FuzzFiles: whatever stands in the other files of a former run, an agent begins: of one that
// cannot be read as a whole, or is of another version, nothing counts, and what counts is what
// it says. A desired state of another boot is none.
func FuzzFiles(f *testing.F) {
	for _, s := range []string{
		`{"version":1,"hosts":["h2","h3"]}`, `{"version":1,"hosts":["h2",7]}`, `{"version":2,"hosts":["h2"]}`,
		`{"version":1,"notes":[{"id":"a","boot":"b1","until":7},{"id":"c","boot":"b2","until":8,"over":true}],"back":[{"kind":"network","key":"a:b"}]}`,
		`{"version":1,"notes":[{"id":"a","boot":"b1","until":7}],"back":7}`, `{"version":2,"notes":[{"id":"a","boot":"b1","until":7}]}`,
		`{"version":1,"boot":"b1","revision":7,"parts":[{"tenant":"t","rows":[{"key":"/contiv.io/x","value":"e30="}]}],"control":{"sources":{"a":["10.0.0.1:9999"]}}}`,
		`{"version":1,"boot":"b1","parts":7}`, `{"version":1,"boot":"b2"}`, `null`, `[]`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		for _, name := range []string{HostsFile, UnconfirmedFile, CheckpointFile} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		st := memory.New()
		defer func() { _ = st.Close() }()
		c, err := New(Config{Host: "h1", Store: st, Log: slog.New(slog.DiscardHandler), StateDir: dir, Boot: "b1"})
		if err != nil {
			t.Fatal(err)
		}
		var hosts hostsRecord
		if json.Unmarshal(data, &hosts) != nil || hosts.Version != 1 {
			hosts.Hosts = nil
		}
		if !slices.Equal(c.Hosts.previous, hosts.Hosts) {
			t.Errorf("%q has the hosts %v", data, c.Hosts.previous)
		}
		var trials unconfirmedNotes
		if json.Unmarshal(data, &trials) != nil || trials.Version != 1 {
			trials = unconfirmedNotes{}
		}
		want := map[string]unconfirmedNote{}
		for _, n := range trials.Notes {
			want[n.ID] = n
		}
		if !reflect.DeepEqual(c.Unconfirmed.notes, want) || !reflect.DeepEqual(c.Unconfirmed.rollbacks, trials.Back) {
			t.Errorf("%q has the changes %v, and went back from %v", data, c.Unconfirmed.notes, c.Unconfirmed.rollbacks)
		}
		var saved checkpoint
		good := json.Unmarshal(data, &saved) == nil && saved.Version == 1 && saved.Boot == "b1"
		if !c.checkpoint.exists || (c.checkpoint.found != nil) != good || good && !reflect.DeepEqual(*c.checkpoint.found, saved) {
			t.Errorf("%q has the checkpoint %+v", data, c.checkpoint)
		}
	})
}
