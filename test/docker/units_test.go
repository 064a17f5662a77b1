//go:build integration

package docker

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSystemdTakesTheUnits: systemd takes the units as they are, with the programs where they
// were built.
func TestSystemdTakesTheUnits(t *testing.T) {
	const analyze = "/usr/bin/systemd-analyze"
	if _, err := os.Stat(analyze); err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
			t.Fatal(analyze + " is missing: apt-get install systemd")
		}
		t.Skip(analyze + " is missing: apt-get install systemd")
	}
	dir := t.TempDir()
	verify := func(unit, file, old, text string) { // of which old is replaced
		t.Helper()
		data, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), old) {
			t.Errorf("%s has no %s", file, old)
		}
		path := filepath.Join(dir, unit+".service")
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(data), old, text)), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", path).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v %s", file, err, out)
		}
	}
	for _, name := range []string{"netplugin", "netmaster"} {
		verify(name, "packaging/systemd/"+name+".service", "/usr/bin/"+name, filepath.Join(bin, name))
	}
	verify("contiv-netns@web", "examples/systemd/contiv-netns@.service", "/usr/bin/netctl", filepath.Join(bin, "netctl"))
	verify("web", "examples/systemd/web.service", "BindsTo=contiv-netns@web.service", "BindsTo=contiv-netns@web.service")
	for _, name := range []string{"etcd", "ovs-vswitchd"} { // settings for others' units
		verify(name, "packaging/systemd/"+name+".service.d/contiv.conf", "[Service]", "[Service]\nExecStart=/bin/true")
	}
}
