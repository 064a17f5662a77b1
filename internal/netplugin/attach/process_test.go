package attach

import (
	"os"
	"path/filepath"
	"testing"
)

// One namespace is one attachment, by whichever path it is named; another one is another.
func TestOneNamespaceIsOneAttachment(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(dir, dir+"-link"); err != nil {
		t.Fatal(err)
	}
	for _, same := range [][2]string{
		{"/run/netns/web", "/run/netns/../netns/web"},
		{filepath.Join(dir, "web"), filepath.Join(dir+"-link", "web")}, // neither is there
	} {
		if a, b := NetnsKey(same[0], "eth0"), NetnsKey(same[1], "eth0"); a != b {
			t.Errorf("%s is %s, %s is %s", same[0], a, same[1], b)
		}
	}
	if got, want := NetnsKey("/run/netns/web", "eth0"), (Key{"netns-web", "eth0"}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	seen := map[Key]string{}
	for _, path := range []string{"/run/netns/web", "/run/netns/db", filepath.Join(dir, "web"), "/proc/1/ns/net", "/proc/2/ns/net"} {
		k := NetnsKey(path, "eth0")
		if seen[k] != "" {
			t.Errorf("%s and %s are both %s", seen[k], path, k)
		}
		seen[k] = path
	}
	if PIDKey(1, "eth0") == PIDKey(2, "eth0") || seen[PIDKey(1, "eth0")] != "" {
		t.Error("processes share an attachment")
	}
}
