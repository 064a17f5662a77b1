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

// block is a runnable code block of a page.
type block struct {
	page, where string // both, machine1, machine2, ...; cleanup1 is machine1's, after all pages
	text        string
}

var (
	blockRE     = regexp.MustCompile("(?s)<!-- run: (\\w+) -->\n```sh\n(.*?)```")
	invertedRE  = regexp.MustCompile(`(?m)^! (.*)$`)
	namespaceRE = regexp.MustCompile(`ip netns add (\S+)`)
)

// TestReadme runs the README's installation, on programs that are built.
func TestReadme(t *testing.T) {
	shared(t)
	onOne(t, both, func(t *testing.T, driver string) {
		follow(t, driver, "readme", 1, "README.md")["machine1"].runs(t, `until [ "$(bin/netctl host ls -q)" ] && bin/netctl status; do sleep 1; done`)
	})
}

// TestTutorials runs the tutorials as a reader would.
func TestTutorials(t *testing.T) {
	for name, tutorial := range map[string]struct {
		machines int
		pages    []string
	}{
		"first":  {1, []string{"docs/tutorials/first-cluster.md", "docs/tutorials/denied-connection.md"}},
		"two":    {2, []string{"docs/tutorials/two-machines.md"}},
		"secure": {2, []string{"docs/tutorials/secure-cluster.md"}},
	} {
		t.Run(name, func(t *testing.T) {
			shared(t)
			onOne(t, both, func(t *testing.T, driver string) { follow(t, driver, "t"+name, tutorial.machines, tutorial.pages...) })
		})
	}
}

// follow runs the code blocks of pages that are marked runnable, in order, each machine with
// one shell. A machine has one address for everything: with Open vSwitch's userspace datapath
// netplugin talks to netmaster and etcd through its own switch.
func follow(t *testing.T, driver, name string, machines int, pages ...string) map[string]*shell {
	t.Helper()
	need(t)
	root, err := testcluster.Root(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	var blocks, cleanups []block
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range blockRE.FindAllStringSubmatch(string(text), -1) {
			if machine, ok := strings.CutPrefix(m[1], "cleanup"); ok {
				cleanups = append(cleanups, block{page, "machine" + machine, m[2]})
			} else {
				blocks = append(blocks, block{page, m[1], m[2]})
			}
		}
	}
	if len(blocks) == 0 {
		t.Fatalf("%v have no runnable blocks", pages)
	}
	c := up(t, driver, name, machines, func(cfg *testcluster.Config) { cfg.Bare = true })
	shells := map[string]*shell{}
	for i, h := range c.Hosts() {
		shells[fmt.Sprintf("machine%d", i+1)] = newShell(t, c, h)
	}
	var last string // what the block before printed
	for _, b := range append(blocks, cleanups...) {
		for _, m := range namespaceRE.FindAllStringSubmatch(b.text, -1) {
			t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "ip", "netns", "del", m[1]).Run() })
		}
		ran := false
		for name, sh := range shells {
			if b.where != name && b.where != "both" {
				continue
			}
			// The reader's addresses, directory and token are the lab's; the programs are built.
			script := b.text
			for i, h := range c.Hosts() {
				script = setTo(script, fmt.Sprintf("M%d", i+1), h.Address.String())
			}
			script = setTo(setTo(script, "DATA", sh.dir+"/data"), "TOKEN=contiv-join", strings.TrimSpace(last))
			out := sh.runs(t, strings.TrimPrefix(script, "make build\n"))
			ran = true
			if b.where == name {
				last = out
			}
		}
		if !ran {
			t.Errorf("%s: no machine is called %s", b.page, b.where)
		}
	}
	return shells
}

// setTo replaces the value of a shell variable, which begins as given.
func setTo(script, variable, value string) string {
	name, begins, _ := strings.Cut(variable, "=")
	return regexp.MustCompile(`(?m)^`+name+`=`+begins+`\S*$`).ReplaceAllLiteralString(script, name+"="+value)
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
		"CONTIV_NETMASTER_DATA_DIR="+filepath.Join(dir, "data"), "HOME="+dir,
		"CONTIV_NETMASTER_INTERNAL_ADDRESS="+h.Address.String()+":9999", "CONTIV_NETPLUGIN_CONTROL_IP="+h.Address.String())
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
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &shell{in, bufio.NewReader(out), dir, cmd.Process.Kill}
}

// runs runs a script, and ends the test if one of its commands fails.
func (s *shell) runs(t *testing.T, script string) string {
	t.Helper()
	start := time.Now()
	out, err := s.run(script)
	if err != nil {
		t.Fatalf("%s\n%v\n%s\n%s", script, err, out, s.logs())
	}
	t.Logf("%s(%v)\n%s", script, time.Since(start).Round(time.Millisecond), out)
	return out
}

// run runs a script and fails with the first of its commands that does.
func (s *shell) run(script string) (string, error) {
	const end = "----end of block----"
	// A command that fails ends the block, not the shell. So does one behind "!" that does not fail.
	script = invertedRE.ReplaceAllString(script, "if $1\nthen false; fi")
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

// logs returns what the daemons of a page wrote.
func (s *shell) logs() string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(s.dir, "*.log")) // the pattern is well-formed
	for _, f := range files {
		text, err := os.ReadFile(f)
		fmt.Fprintf(&b, "%s: %v\n%s\n", filepath.Base(f), err, text)
	}
	return b.String()
}
