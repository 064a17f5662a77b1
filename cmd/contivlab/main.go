package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

func main() {
	top, all := commands()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := execute(ctx, os.Stdout, top, all, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	switch code := exitCode(err); {
	case err == nil:
	case code > 0:
		os.Exit(code)
	case interrupted:
		fmt.Fprintln(os.Stderr, "contivlab: interrupted")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "contivlab:", err)
		os.Exit(1)
	}
}

// exitCode is what a command that ended with err ended with, as a shell says it; 0 = err is
// of no command.
func exitCode(err error) int {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return 0
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}

// commands are contivlab's flags and commands; --lab may stand with either.
func commands() (*flags.Set, []*command) {
	name := "demo"
	top := &flags.Set{}
	labFlag(top, &name)
	return top, []*command{
		upCommand(&name), downCommand(&name), statusCommand(&name), restartCommand(&name), shellCommand(&name), execCommand(&name), netctlCommand(&name),
		probeCommand(&name), matrixCommand(&name), demoCommand(&name), demoDockerCommand(top, &name), serveCommand(&name),
	}
}

// programs returns the directory of the other programs: where this one lies.
func programs() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(self)
	for _, p := range testcluster.Programs {
		if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
			return "", fmt.Errorf("%s is not beside contivlab in %s: run make build", p, dir)
		}
	}
	return dir, nil
}

// progress prints one line for each finished step.
func progress(step string, took time.Duration) {
	fmt.Printf("  %-28s %6.0f ms\n", step, float64(took.Microseconds())/1000)
}

func upCommand(name *string) *command {
	var cfg testcluster.Config
	c := newCommand("up", "Build a cluster and leave it running", name, func(ctx context.Context, _ []string) error {
		var err error
		if cfg.BinDir, err = programs(); err != nil {
			return err
		}
		cfg.Name, cfg.Detach, cfg.Progress = *name, true, progress
		start := time.Now()
		l, err := testcluster.Up(ctx, cfg)
		if err != nil {
			return err
		}
		defer l.Close()
		fmt.Printf("lab %s is up after %.1f s; state and logs are in %s\n", *name, time.Since(start).Seconds(), l.Config().Dir)
		return nil
	})
	cfg.Hosts, cfg.MTU = 3, 1500
	c.flags.Int(&cfg.Hosts, "hosts", "NUMBER", "number of simulated hosts")
	embeddedFlag(c, &cfg.Embedded)
	driverFlag(c, &cfg.Driver)
	c.flags.Int(&cfg.MTU, "mtu", "BYTES", "MTU of the network between the hosts")
	return c
}

// driverFlag lets a command choose the data plane of its hosts.
func driverFlag(c *command, to *string) {
	*to = testcluster.DriverEBPF
	c.flags.String(to, "driver", "PLANE", "data plane of the hosts: ebpf, ovs (Open vSwitch), or mixed")
}

func embeddedFlag(c *command, to *bool) {
	c.flags.Bool(to, "embedded-etcd", "let netmaster run its own etcd instead of an etcd process")
}

func downCommand(name *string) *command {
	all := false
	c := newCommand("down", "End a lab and remove everything it made, also after a crash", name, func(context.Context, []string) error {
		names := []string{*name}
		if all {
			var err error
			if names, err = testcluster.List(); err != nil {
				return err
			}
		}
		for _, n := range names {
			if err := testcluster.Remove(n, ""); err != nil {
				return err
			}
			fmt.Printf("lab %s is gone\n", n)
		}
		return nil
	})
	c.flags.Bool(&all, "all", "all labs of this machine")
	return c
}

// open opens the lab and runs f with it.
func open(name string, f func(*testcluster.Lab) error) error {
	l, err := testcluster.Open(name)
	if err != nil {
		return err
	}
	defer l.Close()
	return f(l)
}

// findNamespace finds the namespace of a host, a container, or the master.
func findNamespace(l *testcluster.Lab, where string) (*testcluster.Namespace, error) {
	if where == "master" {
		return l.Master, nil
	}
	if h, err := l.Host(where); err == nil {
		return h.NS, nil
	}
	if ns, err := l.Space(where); err == nil {
		return ns, nil
	}
	return nil, fmt.Errorf("%q is neither master, a host (h1 to h%d) nor a container; contivlab status lists them", where, len(l.Hosts()))
}

// environment lets tools inside find the lab's programs, its netmaster and, on
// a host, its Open vSwitch.
func environment(l *testcluster.Lab, where string) []string {
	env := append(os.Environ(), "NETMASTER="+l.Masters.MasterURL(), "PATH="+l.Config().BinDir+":"+os.Getenv("PATH"), "CONTIVLAB="+l.Config().Name)
	if h, err := l.Host(where); err == nil {
		env = append(env, hostEnvironment(h)...)
	}
	return env
}

// hostEnvironment keeps what runs on a host within it: a CNI plugin finds its netplugin,
// and the spool of that one.
func hostEnvironment(h *testcluster.Host) []string {
	return []string{
		"OVS_RUNDIR=" + h.RunDir(), "OVS_DBDIR=" + h.RunDir(),
		"CONTIV_CNI_SOCKET=" + h.CNISocket(), "CONTIV_CNI_STATE_DIR=" + h.StateDir(),
	}
}

// run runs a command inside with this terminal as its own. It is the command's business to
// end on Ctrl-C, which the terminal sends to it too, and on SIGTERM.
func run(l *testcluster.Lab, where string, argv []string, env ...string) error {
	ns, err := findNamespace(l, where)
	if err != nil {
		return err
	}
	cmd := ns.Command(context.Background(), argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(environment(l, where), env...)
	if path, err := exec.LookPath(filepath.Join(l.Config().BinDir, argv[0])); err == nil {
		cmd.Path, cmd.Err = path, nil
	}
	return runForeground(cmd.Cmd, cmd.Start)
}

// runForeground starts a command and waits for it, and sends on to it each SIGTERM that comes
// meanwhile.
func runForeground(cmd *exec.Cmd, start func() error) error {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	defer signal.Stop(term)
	if err := start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			return err
		case s := <-term:
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}
}

func restartCommand(name *string) *command {
	return newCommand("restart", "Kill netplugin of a host, or netmaster (master), and start it again", name, func(ctx context.Context, args []string) error {
		return open(*name, func(l *testcluster.Lab) error {
			if args[0] == "master" {
				if err := l.Process("netmaster").Kill(); err != nil {
					return err
				}
				return l.Masters.StartReplica(ctx, 1)
			}
			h, err := l.Host(args[0])
			if err != nil {
				return err
			}
			return h.RestartAgent(ctx)
		})
	}).takes("HOST|master", 1, 1)
}

func shellCommand(name *string) *command {
	return newCommand("shell", "A shell inside a host, a container or the master, with netctl and ovs-* set up for it", name, func(_ context.Context, args []string) error {
		return open(*name, func(l *testcluster.Lab) error {
			return run(l, args[0], []string{"bash", "--norc", "-i"}, "PS1="+args[0]+"# ")
		})
	}).takes("HOST", 1, 1)
}

func execCommand(name *string) *command {
	return newCommand("exec", "Run a command inside a host, a container or the master", name, func(_ context.Context, args []string) error {
		command := args[1:]
		if command[0] == "--" && len(command) > 1 { // as docker's and kubectl's exec take it
			command = command[1:]
		}
		return open(*name, func(l *testcluster.Lab) error { return run(l, args[0], command) })
	}).takes("HOST COMMAND...", 2, -1)
}

func netctlCommand(name *string) *command {
	c := newCommand("netctl", "Run netctl against the lab's netmaster", name, func(_ context.Context, args []string) error {
		return open(*name, func(l *testcluster.Lab) error { return run(l, "master", append([]string{"netctl"}, args...)) })
	}).takes("ARGUMENT...", 0, -1)
	c.hands = true
	return c
}
