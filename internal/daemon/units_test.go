package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestSystemdAcceptsTheUnits: systemd takes the units that we ship, and they expose no more than
// they do today: 1.3 and 4.4 of 10 with systemd 252, where 9.6 is a unit without
// any restriction.
func TestSystemdAcceptsTheUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed: ", err)
	}
	for name, most := range map[string]float64{"netmaster": 2, "netplugin": 5} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("../../packaging/systemd", name+".service"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), "Type=notify") || !strings.Contains(string(data), "WatchdogSec=") {
				t.Error("the unit does not wait until the program is ready, or does not watch it")
			}
			// The program need not be installed to verify the rest.
			text := strings.Replace(string(data), "/usr/bin/"+name, "/bin/true", 1)
			unit := filepath.Join(t.TempDir(), name+".service")
			if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
			if err != nil || strings.Contains(string(out), name+".service:") {
				t.Errorf("systemd-analyze verify: %v\n%s", err, out)
			}
			out, err = exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--no-pager", unit).CombinedOutput()
			m := regexp.MustCompile(`exposure level for .*: ([0-9.]+)`).FindSubmatch(out)
			if m == nil {
				t.Fatalf("systemd-analyze security: %v\n%s", err, out)
			}
			score, err := strconv.ParseFloat(string(m[1]), 64)
			if err != nil || score > most {
				t.Errorf("exposure is %s, want %v at most", m[1], most)
			}
			t.Logf("exposure %s", m[1])
		})
	}
}
