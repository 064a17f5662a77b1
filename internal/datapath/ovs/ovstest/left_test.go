package ovstest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNextRunRemovesWhatAKilledOneLeft: what a test process that is killed leaves the next one removes, and its
// daemons end with it.
func TestNextRunRemovesWhatAKilledOneLeft(t *testing.T) {
	const child = "CONTIV_TEST_OVSTEST_CHILD"
	if os.Getenv(child) != "" {
		s := Start(t)
		fmt.Println("at", s.NS, s.RunDir, s.SwitchPID(), s.db.cmd.Process.Pid)
		go panic("as after -timeout")
		select {}
	}
	Require(t, "ip", "ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl")
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestNextRunRemovesWhatAKilledOneLeft$")
	cmd.Env = append(os.Environ(), child+"=1", "CONTIV_TEST_REQUIRE=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("it has not been killed")
	}
	var ns, dir string
	var pids [2]int
	_, rest, _ := bytes.Cut(out, []byte("at "))
	if _, err := fmt.Sscan(string(rest), &ns, &dir, &pids[0], &pids[1]); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, pid := range pids {
		for deadline := time.Now().Add(time.Minute); ; {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err != nil || !strings.Contains(string(line), dir) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("process %d still runs", pid)
			}
			<-time.After(10 * time.Millisecond)
		}
	}
	sweep()
	for _, path := range []string{filepath.Join("/run/netns", ns), dir} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}
