package attachment

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// TestBadJournalFileIsMovedAway sets a file that is no entry aside and goes on.
func TestBadJournalFileIsMovedAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "attach")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"bad.json": "{", ".new-1": "half", "note.txt": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j, err := openJournal(dir, slog.New(slog.DiscardHandler))
	if err != nil || len(j.all()) != 0 {
		t.Fatalf("entries %v, %v", j.all(), err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range names {
		got = append(got, n.Name())
	}
	if diff := cmp.Diff([]string{"bad.json.bad", "note.txt"}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestEndpointIDsAreValidAndDistinct derives ids that are valid, distinct and recognisable.
func TestEndpointIDsAreValidAndDistinct(t *testing.T) {
	long := strings.Repeat("c", 300)
	seen := map[model.EndpointID]attach.Key{}
	for _, host := range []model.HostName{"h1", "h2", model.HostName(strings.Repeat("h", 200))} {
		for _, k := range []attach.Key{
			{Container: "a", IfName: "eth0"},
			{Container: "a.eth0", IfName: "x"},
			{Container: "a", IfName: "eth1"},
			{Container: long, IfName: "eth0"},
			{Container: long + "x", IfName: "eth0"},
			{Container: "a", IfName: "et%h0"},
			{Container: "h", IfName: "eth0"},
		} {
			id := EndpointID(host, k)
			if _, err := model.ParseEndpointID(string(id)); err != nil {
				t.Errorf("%v on %s: %v", k, host, err)
			}
			if other, ok := seen[id]; ok {
				t.Errorf("%v and %v share %s", k, other, id)
			}
			seen[id] = k
			if !isOurs(host, id) || isOurs("h3", id) {
				t.Errorf("%s is not recognised as made on %s", id, host)
			}
			if back, ok := attachmentOf(host, model.EndpointKey{ID: id}); ok && back != k {
				t.Errorf("%s is read back as %v, want %v", id, back, k)
			}
		}
	}
}
