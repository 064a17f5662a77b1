//go:build integration

package slice

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// block is a runnable code block of the README.
type block struct {
	where string // both, machine1, machine2
	text  string
}

var blockRE = regexp.MustCompile("(?s)<!-- run: (\\w+) -->\n```sh\n(.*?)```")

// TestReadme runs the README's quick start on two machines: its code blocks
// marked runnable, in order, each machine with one shell, as a reader would. A
// machine has one address for everything: with Open vSwitch's userspace datapath
// netplugin talks to netmaster and etcd through its own switch.
func TestReadme(t *testing.T) {
	shared(t)
	onOne(t, both, readme)
}

func readme(t *testing.T, driver string) {
	need(t)
	root, err := testcluster.Root(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	for _, m := range blockRE.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, block{m[1], m[2]})
	}
	if len(blocks) < 5 {
		t.Fatalf("the README has %d runnable blocks, want at least 5", len(blocks))
	}
	c := up(t, driver, "readme", 2, func(cfg *testcluster.Config) { cfg.Bare = true })
	shells := map[string]*shell{}
	for i, h := range c.Hosts() {
		shells[fmt.Sprintf("machine%d", i+1)] = newShell(t, c, h)
	}
	for _, b := range blocks {
		for name, sh := range shells {
			if b.where != name && b.where != "both" {
				continue
			}
			// The reader's addresses are the lab's.
			script := regexp.MustCompile(`(?m)^M1=.*$`).ReplaceAllString(b.text, "M1="+c.Hosts()[0].Address.String())
			script = regexp.MustCompile(`(?m)^M2=.*$`).ReplaceAllString(script, "M2="+c.Hosts()[1].Address.String())
			start := time.Now()
			out, err := sh.run(script)
			if err != nil {
				t.Fatalf("on %s:\n%s\n%v\n%s\n%s", name, script, err, out, sh.logs())
			}
			t.Logf("on %s (%v):\n%s", name, time.Since(start).Round(time.Millisecond), out)
		}
	}
}

// shell is a bash on a host that runs one script after another.
type shell struct {
	in   io.WriteCloser
	out  *bufio.Reader
	dir  string
	kill func() error
}

// newShell starts a shell in a directory with the programs in bin/. Environment variables
// give the paths that have defaults on a real machine.
func newShell(t *testing.T, c *cluster, h *testcluster.Host) *shell {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(bin, filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	cmd := h.NS.Command(context.Background(), "bash", "--norc")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"CONTIV_NETPLUGIN_EBPF_PIN_DIR="+h.PinDir(),
		"CONTIV_NETPLUGIN_OVS_DB="+h.DB(), "CONTIV_NETPLUGIN_OVS_RUN_DIR="+h.RunDir(), "CONTIV_NETPLUGIN_OVS_DATAPATH="+c.Config().Datapath,
		"CONTIV_NETPLUGIN_STATE_DIR="+h.StateDir(), "CONTIV_NETPLUGIN_CNI_SOCKET="+h.CNISocket(),
		"CONTIV_CNI_SOCKET="+h.CNISocket(), "CONTIV_CNI_STATE_DIR="+h.StateDir(),
		"CONTIV_NETMASTER_DATA_DIR="+filepath.Join(dir, "data"))
	if h.Driver() != testcluster.DriverEBPF { // which auto takes
		cmd.Env = append(cmd.Env, "CONTIV_NETPLUGIN_DRIVER="+h.Driver())
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, ns := range []string{"web1", "db1"} { // the README's names, made by its commands
			_ = exec.CommandContext(context.Background(), "ip", "netns", "del", ns).Run()
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &shell{in, bufio.NewReader(out), dir, cmd.Process.Kill}
}

// run runs a script and fails with the first of its commands that does.
func (s *shell) run(script string) (string, error) {
	const end = "----end of block----"
	// A command that fails ends the block, not the shell.
	_, err := fmt.Fprintf(s.in, "trap 'ok=no' ERR; ok=yes\n%s\necho; echo '%s' $ok\n", script, end)
	if err != nil {
		return "", err
	}
	// A block may wait for a daemon; one that waits for ever ends with its shell.
	limit := time.AfterFunc(time.Minute, func() { _ = s.kill() })
	defer limit.Stop()
	var b strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			return b.String(), err
		}
		if state, ok := strings.CutPrefix(line, end); ok {
			if strings.TrimSpace(state) != "yes" {
				return b.String(), errors.New("a command failed")
			}
			return b.String(), nil
		}
		b.WriteString(line)
	}
}

// logs returns what the daemons of the README wrote.
func (s *shell) logs() string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(s.dir, "*.log")) // the pattern is well-formed
	for _, f := range files {
		text, err := os.ReadFile(f)
		fmt.Fprintf(&b, "%s: %v\n%s\n", filepath.Base(f), err, text)
	}
	return b.String()
}
