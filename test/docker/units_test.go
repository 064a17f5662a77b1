//go:build integration

package docker

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnits: systemd takes the units as they are, with the programs where they
// were built.
func TestUnits(t *testing.T) {
	const analyze = "/usr/bin/systemd-analyze"
	if _, err := os.Stat(analyze); err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
			t.Fatal(analyze + " is missing: apt-get install systemd")
		}
		t.Skip(analyze + " is missing: apt-get install systemd")
	}
	dir := t.TempDir()
	for _, name := range []string{"netplugin", "netmaster"} {
		data, err := os.ReadFile("../../packaging/systemd/" + name + ".service")
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(data), "/usr/bin/"+name, filepath.Join(bin, name), 1)
		if text == string(data) {
			t.Errorf("%s.service starts something else than /usr/bin/%[1]s", name)
		}
		path := filepath.Join(dir, name+".service")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", path).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s.service: %v %s", name, err, out)
		}
	}
}
