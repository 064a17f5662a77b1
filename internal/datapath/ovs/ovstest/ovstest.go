package ovstest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Schema is where Debian keeps the switch's database schema.
const Schema = "/usr/share/openvswitch/vswitch.ovsschema"

var count atomic.Int32

// Datapath is the datapath_type of the bridges under test: netdev (user space),
// or what CONTIV_TEST_OVS_DATAPATH says; system is the kernel's, which needs
// its module.
func Datapath() string {
	if d := os.Getenv("CONTIV_TEST_OVS_DATAPATH"); d != "" {
		return d
	}
	return "netdev"
}

// Kernel reports whether the bridges under test use the kernel's datapath.
func Kernel() bool { return Datapath() == "system" }

// Patience is how long to wait for what takes at most d on a machine of its own: longer
// where it is emulated.
func Patience(d time.Duration) time.Duration {
	if Kernel() {
		return d + time.Minute
	}
	return d
}

// Server is a running Open vSwitch.
type Server struct {
	NS     string // network namespace, as in ip netns
	RunDir string // holds db.sock and <bridge>.mgmt
	DB     string // the database's address, such as unix:/tmp/x/db.sock

	t        testing.TB
	db, vswd *daemon
}

// Require skips the test, or fails it in CI, unless it runs as root and all
// programs are installed.
func Require(t testing.TB, programs ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("not among the -short tests")
	}
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return
	}
	if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
		t.Fatalf("this test needs %s", strings.Join(missing, ", "))
	}
	t.Skipf("this test needs %s", strings.Join(missing, ", "))
}

// Start runs a database and a switch; both end with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	Require(t, "ip", "ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
	sweepOnce()
	dir, err := os.MkdirTemp("", fmt.Sprintf("Oovs%d-", os.Getpid())) //nolint:usetesting // t.TempDir is too long for the path of a unix socket
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		NS: fmt.Sprintf("O%d-%d", os.Getpid(), count.Add(1)), RunDir: dir,
		DB: "unix:" + filepath.Join(dir, "db.sock"), t: t,
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.Run("ip", "netns", "add", s.NS)
	t.Cleanup(func() {
		if out, err := exec.CommandContext(context.Background(), "ip", "netns", "del", s.NS).CombinedOutput(); err != nil {
			t.Errorf("remove namespace %s: %v: %s", s.NS, err, out)
		}
	})
	s.Run("ip", "-n", s.NS, "link", "set", "lo", "up")
	s.Run("ovsdb-tool", "create", s.path("conf.db"), Schema)
	s.StartDatabase()
	t.Cleanup(s.KillDatabase)
	s.Vsctl("--no-wait", "init")
	s.StartSwitch()
	t.Cleanup(s.KillSwitch)
	return s
}

func (s *Server) path(name string) string { return filepath.Join(s.RunDir, name) }

// env keeps all files of Open vSwitch's programs in the server's directory.
func (s *Server) env() []string {
	return append(os.Environ(), "OVS_RUNDIR="+s.RunDir, "OVS_DBDIR="+s.RunDir, "OVS_LOGDIR="+s.RunDir,
		"OVS_SYSCONFDIR="+s.RunDir)
}

func (s *Server) daemon(args ...string) *daemon {
	s.t.Helper()
	cmd := exec.CommandContext(context.Background(), "ip", append([]string{"netns", "exec", s.NS}, args...)...)
	cmd.Env = s.env()
	log, err := os.OpenFile(s.path(args[0]+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	d, err := start(cmd)
	_ = log.Close() // the daemon has its own
	if err != nil {
		s.t.Fatalf("start %s: %v", args[0], err)
	}
	return d
}

// await waits until a unix socket answers.
func (s *Server) await(what, path string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience(10*time.Second))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("%s did not listen at %s:\n%s", what, path, s.Log())
		case <-tick.C:
		}
	}
}

// StartDatabase starts the database server, after KillDatabase.
func (s *Server) StartDatabase() {
	s.t.Helper()
	_ = os.Remove(s.path("db.sock")) // a killed server leaves it
	s.db = s.daemon("ovsdb-server", s.path("conf.db"), "--remote=p"+s.DB, "--unixctl="+s.path("db.ctl"))
	s.await("database", s.path("db.sock"))
}

// KillDatabase ends the database server as a crash would.
func (s *Server) KillDatabase() { s.db.end() }

// StartSwitch starts the switch daemon, after KillSwitch.
func (s *Server) StartSwitch() {
	s.t.Helper()
	s.vswd = s.daemon("ovs-vswitchd", s.DB, "--unixctl="+s.path("vswitchd.ctl"))
	s.await("switch", s.path("vswitchd.ctl"))
}

// KillSwitch ends the switch daemon as a crash would.
func (s *Server) KillSwitch() { s.vswd.end() }

// PauseSwitch stops the switch daemon without ending it.
func (s *Server) PauseSwitch() { s.signal(syscall.SIGSTOP) }

// ResumeSwitch lets a paused switch daemon go on.
func (s *Server) ResumeSwitch() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.vswd.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// SwitchPID is the process number of the switch daemon.
func (s *Server) SwitchPID() int { return s.vswd.cmd.Process.Pid }

// Log returns what the switch daemon wrote.
func (s *Server) Log() string {
	b, _ := os.ReadFile(s.path("ovs-vswitchd.log"))
	return string(b)
}

// Try runs a program on the machine with Open vSwitch's directories set, and
// returns its standard output.
func (s *Server) Try(args ...string) (string, error) {
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...) // also in Cleanup, when t's context has ended
	cmd.Env = s.env()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s%s", strings.Join(args, " "), err, errs.String(), out.String())
	}
	return out.String(), nil
}

// Run is Try that fails the test.
func (s *Server) Run(args ...string) string {
	s.t.Helper()
	out, err := s.Try(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// Vsctl runs ovs-vsctl on the database.
func (s *Server) Vsctl(args ...string) string {
	s.t.Helper()
	return s.Run(append([]string{"ovs-vsctl", "--db=" + s.DB}, args...)...)
}

// Ofctl runs an ovs-ofctl command on a bridge in OpenFlow 1.4.
func (s *Server) Ofctl(bridge, command string, args ...string) string {
	s.t.Helper()
	return s.Run(append([]string{"ovs-ofctl", "-O", "OpenFlow14", "--no-names", command, "unix:" + s.path(bridge+".mgmt")}, args...)...)
}

// Appctl runs a command of the switch daemon's control socket.
func (s *Server) Appctl(args ...string) string {
	s.t.Helper()
	return s.Run(append([]string{"ovs-appctl", "-t", s.path("vswitchd.ctl")}, args...)...)
}
