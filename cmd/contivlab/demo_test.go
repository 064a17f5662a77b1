//go:build integration

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if bin = os.Getenv("CONTIV_TEST_BIN"); bin != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "contivlab-test-")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }() // in the temporary directory
		bin = dir
		if err := testcluster.Build(context.Background(), ".", bin, append([]string{"contivlab"}, testcluster.Programs...)...); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

func need(t *testing.T) {
	t.Helper()
	m := testcluster.Config{Driver: testcluster.DriverMixed}.Missing()
	if len(m) == 0 {
		return
	}
	if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
		t.Fatal(strings.Join(m, "; "))
	}
	t.Skip(strings.Join(m, "; "))
}

// volatile are settings that count or that the kernel changes by itself.
var volatile = regexp.MustCompile(`nf_conntrack_count$|/stat/|random|tcp_fastopen_key|_mem$`)

// machine is what the demo must not change.
func machine(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, cmd := range []string{
		"ip -d link", "ip -4 address", "ip -4 route show table all", "ip -6 route show table all", "ip -4 rule", "ip -6 rule",
		"iptables-save", "ip6tables-save", "nft list ruleset",
	} {
		f := strings.Fields(cmd)
		if _, err := exec.LookPath(f[0]); err != nil {
			continue
		}
		b, err := exec.CommandContext(t.Context(), f[0], f[1:]...).Output()
		if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		text := regexp.MustCompile(`(?m)^#.*$|\[\d+:\d+\]|valid_lft.*|expires \d+sec|users \d+`).ReplaceAllString(string(b), "")
		out[cmd] = text
	}
	err := filepath.WalkDir("/proc/sys/net", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // what cannot be listed cannot be compared
		}
		if d.IsDir() || volatile.MatchString(path) {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil {
			out[path] = string(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/run/netns")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "cl-bdemo-") {
			out["namespace "+e.Name()] = "there"
		}
	}
	mounts, err := os.ReadFile("/proc/thread-self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "bdemo") {
			out["mount "+line] = "there"
		}
	}
	if _, err := os.Stat(filepath.Join(testcluster.BaseDir, "bdemo")); err == nil {
		out["directory"] = "there"
	}
	return out
}

func contivlab(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(bin, "contivlab"), append([]string{"--lab", "bdemo"}, args...)...)
}

// TestDemoLeavesTheMachineAsItWas runs the demo as a user does, on every data plane: it shows two
// matrices as intended within 90 s and leaves the machine's links, addresses,
// routes, filters, settings, mounts and namespaces as they were.
func TestDemoLeavesTheMachineAsItWas(t *testing.T) {
	need(t)
	for _, d := range []string{testcluster.DriverEBPF, testcluster.DriverOVS, testcluster.DriverMixed} {
		t.Run(d, func(t *testing.T) { demoOn(t, d) })
	}
}

func demoOn(t *testing.T, driver string) {
	t.Helper()
	before := machine(t)
	start := time.Now()
	out, err := contivlab(t.Context(), "demo", "--driver", driver).CombinedOutput()
	took := time.Since(start)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("took %v\n%s", took.Round(time.Millisecond), out)
	if n := strings.Count(string(out), "all as expected"); n != 2 {
		t.Errorf("%d matrices as expected, want 2", n)
	}
	if n := strings.Count(string(out), "changed"); n < 4 {
		t.Errorf("the change of the policy changed %d answers, want at least 4", n)
	}
	if took > 90*time.Second {
		t.Errorf("took %v, want less than 90 s", took)
	}
	if diff := cmp.Diff(before, machine(t)); diff != "" {
		t.Errorf("the machine is not as before (-want +got):\n%s", diff)
	}
}

// waitFor reads a command's output until a line holds text.
func waitFor(t *testing.T, cmd *exec.Cmd, text string) *bufio.Scanner {
	t.Helper()
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return lines
		}
	}
	t.Fatalf("%s ended before it said %q", cmd, text)
	return nil
}

// TestInterruptLeavesNothingBehind checks that Ctrl-C in the middle leaves nothing behind.
func TestInterruptLeavesNothingBehind(t *testing.T) {
	need(t)
	before := machine(t)
	cmd := contivlab(context.Background(), "demo")
	lines := waitFor(t, cmd, "Attaching")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("exit: %v, want status 130", err)
	}
	if diff := cmp.Diff(before, machine(t)); diff != "" {
		t.Errorf("the machine is not as before (-want +got):\n%s", diff)
	}
}

// pinned returns the kernel's numbers of the maps and links that the lab's hosts
// have pinned.
func pinned(t *testing.T) (maps []ebpf.MapID, links []link.ID) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testcluster.BaseDir, "bdemo", "bpf", "h*", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		switch filepath.Base(filepath.Dir(f)) {
		case "programs":
			continue // a directory of what the links hold
		case "links":
			l, err := link.LoadPinnedLink(f, nil)
			if err != nil {
				t.Fatal(err)
			}
			info, err := l.Info()
			if err := errors.Join(err, l.Close()); err != nil {
				t.Fatal(err)
			}
			links = append(links, info.ID)
			continue
		}
		m, err := ebpf.LoadPinnedMap(f, nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := m.Info()
		if err := errors.Join(err, m.Close()); err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		maps = append(maps, id)
	}
	return maps, links
}

// TestDownRemovesWhatAKilledDemoLeft checks that `contivlab down` removes what a demo killed in the
// middle left, what it had in the kernel included.
func TestDownRemovesWhatAKilledDemoLeft(t *testing.T) {
	need(t)
	before := machine(t)
	cmd := contivlab(context.Background(), "demo", "--keep", "--driver", testcluster.DriverMixed) // its daemons do not die with it
	waitFor(t, cmd, "Who reaches whom")
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if cmp.Equal(before, machine(t)) {
		t.Error("the killed demo left nothing: this test proves nothing")
	}
	maps, links := pinned(t)
	if len(maps) == 0 || len(links) == 0 {
		t.Errorf("%d maps and %d links are pinned: this test proves nothing", len(maps), len(links))
	}
	if out, err := contivlab(t.Context(), "down").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if diff := cmp.Diff(before, machine(t)); diff != "" {
		t.Errorf("the machine is not as before (-want +got):\n%s", diff)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := testcluster.Until(ctx, "the kernel to free maps and links", func(context.Context) error {
		for _, id := range maps {
			if m, err := ebpf.NewMapFromID(id); !errors.Is(err, os.ErrNotExist) {
				return errors.Join(fmt.Errorf("map %d is there: %w", id, err), m.Close())
			}
		}
		for _, id := range links {
			if l, err := link.NewFromID(id); !errors.Is(err, os.ErrNotExist) {
				if err == nil {
					err = l.Close()
				}
				return fmt.Errorf("link %d is there: %w", id, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestClusterWithKeepAnswersTheSuggestedCommands checks that a cluster that was kept answers the commands that the
// demo suggests, and goes away.
func TestClusterWithKeepAnswersTheSuggestedCommands(t *testing.T) {
	need(t)
	t.Cleanup(func() {
		if out, err := contivlab(context.Background(), "down").CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	if out, err := contivlab(t.Context(), "demo", "--keep").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tc := range []struct{ args, want string }{
		{"status", "netmaster"},
		{"probe web1 db1 tcp/5432", "ok"},
		{"probe web1 app1 tcp/8080", "denied"},
		{"netctl policy rule-ls -t blue to-db", "5432"},
		{"exec web1 ip -4 addr show eth0", "10.1.1."},
		{"matrix", "all as expected"},
	} {
		out, err := contivlab(t.Context(), strings.Fields(tc.args)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("contivlab %s: %v, want %q in:\n%s", tc.args, err, tc.want, out)
		}
	}
	for _, what := range []string{"h1", "master"} {
		if out, err := contivlab(t.Context(), "restart", what).CombinedOutput(); err != nil {
			t.Errorf("contivlab restart %s: %v\n%s", what, err, out)
		}
	}
	if out, err := contivlab(t.Context(), "status").CombinedOutput(); err != nil || strings.Contains(string(out), "ended") {
		t.Errorf("after restarts: %v\n%s", err, out)
	}
	shell := contivlab(t.Context(), "shell", "h1")
	shell.Stdin = strings.NewReader("ip -br link; netctl tenant ls; exit\n")
	if out, err := shell.CombinedOutput(); err != nil || !strings.Contains(string(out), "contivVxlan0") || !strings.Contains(string(out), "blue") {
		t.Errorf("contivlab shell h1: %v\n%s", err, out)
	}
}
