package tutorial

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// blockTime is how long a block may take.
const blockTime = 5 * time.Minute

// Shell is a bash on a bare host that runs one script after another.
type Shell struct {
	host *testcluster.Host
	in   io.WriteCloser
	out  *bufio.Reader
	dir  string
	kill func() error
}

// NewShell starts a shell in a directory with the programs in bin/, and in PATH. Environment
// variables give the names, paths and addresses that have defaults on a real machine.
func NewShell(t *testing.T, l *testcluster.Lab, h *testcluster.Host, env ...string) *Shell {
	t.Helper()
	s := &Shell{host: h, dir: t.TempDir()}
	if err := os.Symlink(l.Config().BinDir, filepath.Join(s.dir, "bin")); err != nil {
		t.Fatal(err)
	}
	cmd := h.NS.Command(context.Background(), "bash", "--norc")
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PATH="+l.Config().BinDir+":"+os.Getenv("PATH"),
		"CONTIV_NETPLUGIN_EBPF_PIN_DIR="+h.PinDir(),
		"CONTIV_NETPLUGIN_OVS_DB="+h.DB(), "CONTIV_NETPLUGIN_OVS_RUN_DIR="+h.RunDir(), "CONTIV_NETPLUGIN_OVS_DATAPATH="+l.Config().Datapath,
		"CONTIV_NETPLUGIN_STATE_DIR="+h.StateDir(), "CONTIV_NETPLUGIN_CNI_SOCKET="+h.CNISocket(),
		"CONTIV_CNI_SOCKET="+h.CNISocket(), "CONTIV_CNI_STATE_DIR="+h.StateDir(), "CONTIV_NETPLUGIN_CONTROL_IP="+h.Address.String(),
		"CONTIV_NETMASTER_DATA_DIR="+s.data(), "CONTIV_NETMASTER_INTERNAL_ADDRESS="+h.Address.String()+":9999", "CONTIV_NETMASTER_MEMBER_NAME="+h.Name, "HOME="+s.dir)
	if h.Driver() != testcluster.DriverEBPF { // which auto takes
		cmd.Env = append(cmd.Env, "CONTIV_NETPLUGIN_DRIVER="+h.Driver())
	}
	cmd.Env = append(cmd.Env, env...)
	var err error
	if s.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out, cmd.Stderr = bufio.NewReader(out), cmd.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // so that what a page has left running ends with it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.kill = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	t.Cleanup(func() {
		_ = s.kill()
		_ = cmd.Wait()
	})
	return s
}

// data is netmaster's data directory.
func (s *Shell) data() string { return filepath.Join(s.dir, "data") }

// Run runs a script, and ends the test if one of its commands fails.
func (s *Shell) Run(t *testing.T, script string) string {
	t.Helper()
	start := time.Now()
	out, err := s.run(script)
	if err != nil {
		t.Fatalf("on %s:\n%s\n%v\n%s\n%s", s.host.Name, script, err, out, s.logs())
	}
	t.Logf("on %s (%v):\n%s\n%s", s.host.Name, time.Since(start).Round(time.Millisecond), script, out)
	return out
}

// run runs a script and fails with the first of its commands that does.
func (s *Shell) run(script string) (string, error) {
	const end = "----end of block----"
	// A command that fails ends the block, not the shell. The trap does not see those behind "!".
	script = invertedRE.ReplaceAllString(script, "if $1\nthen false; fi")
	_, err := fmt.Fprintf(s.in, "trap 'ok=no' ERR; ok=yes\n%s\necho; echo '%s' $ok\n", script, end)
	if err != nil {
		return "", err
	}
	// A block may wait for a daemon; one that waits for ever ends with its shell.
	limit := time.AfterFunc(blockTime, func() { _ = s.kill() })
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
func (s *Shell) logs() string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(s.dir, "*.log")) // the pattern is well-formed
	for _, f := range files {
		text, err := os.ReadFile(f)
		fmt.Fprintf(&b, "%s: %v\n%s\n", filepath.Base(f), err, text)
	}
	return b.String()
}
