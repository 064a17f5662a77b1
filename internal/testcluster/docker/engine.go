package docker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// CLI is the distribution's client, whatever else is in the path.
const CLI = "/usr/bin/docker"

// Isolated are flags of an engine that leaves its host's filters alone.
var Isolated = []string{"--iptables=false", "--ip6tables=false", "--ip-forward=false"}

// boxScript makes the box: Docker looks for plugins at one place only, which
// has to be a short path for sockets of managed plugins; and it takes a containerd
// that it finds running, such as a Kubernetes node's, for its own, in which hooks do
// not find their processes. $1 is the directory that the host's netplugin puts its
// socket into.
const boxScript = `set -e
mkdir -p /run/docker "$1"
mount -t tmpfs -o size=64m contiv-lab /run/docker
mkdir /run/docker/plugins
mount --bind "$1" /run/docker/plugins
mount -t proc proc /proc
[ ! -d /run/containerd ] || mount -t tmpfs contiv-lab /run/containerd
echo ready
exec /usr/bin/docker-init -- sleep infinity`

const (
	answerTimeout = 2 * time.Minute // a busy machine takes half of one to restore containers that live
	stopTimeout   = 40 * time.Second
)

// Engine is a dockerd on a simulated host.
type Engine struct {
	Host *testcluster.Host
	// Flags are given to dockerd at every start.
	Flags []string

	dir string
	box int // process id of its unshare(1)

	mu   sync.Mutex
	done chan struct{} // closed when dockerd has ended; nil = it was not started
}

// Missing lists what the machine lacks for an engine, one sentence each with
// the Debian package that has it.
func Missing() []string {
	var out []string
	for path, pkg := range map[string]string{
		"/usr/sbin/dockerd": "docker.io", CLI: "docker.io", "/usr/bin/docker-init": "docker.io",
		"/bin/busybox": "busybox-static", "/usr/sbin/iptables": "iptables",
	} {
		if _, err := os.Stat(path); err != nil {
			out = append(out, path+" is missing: apt-get install "+pkg)
		}
	}
	return out
}

// New makes the box of a host's engine. The engine's processes end at Close; if
// this process dies before, with the lab.
func New(h *testcluster.Host, flags ...string) (*Engine, error) {
	e := &Engine{Host: h, Flags: flags, dir: filepath.Join(h.Dir, "docker")}
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return nil, err
	}
	c := h.NS.Command(context.Background(), "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
		"sh", "-c", boxScript, "sh", e.plugins()) // it is ended by Close
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// Not our own error output: a box that is kept would hold it open.
	log, err := e.openLog()
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own
	c.Stderr = log
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("make the box of Docker on %s: %w", h.Name, err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, fmt.Errorf("make the box of Docker on %s: %w\n%s", h.Name, errors.Join(err, c.Wait()), e.Log())
	}
	e.box = c.Process.Pid
	go func() { _ = c.Wait() }() // so that it does not stay as a zombie
	return e, nil
}

func (e *Engine) openLog() (*os.File, error) {
	return os.OpenFile(e.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

func (e *Engine) plugins() string { return filepath.Join(e.dir, "plugins") }

// Socket is where the engine answers, seen from the machine.
func (e *Engine) Socket() string { return filepath.Join(e.dir, "docker.sock") }

// Env tells netplugin on the host where its engine is.
func (e *Engine) Env() []string {
	return []string{
		"CONTIV_NETPLUGIN_MODE=docker", "CONTIV_NETPLUGIN_DOCKER_SOCKET_DIR=" + e.plugins(),
		"CONTIV_NETPLUGIN_DOCKER_ENDPOINT=unix://" + e.Socket(),
	}
}

// first is the number of the box's first process, the child of unshare, where the box
// was made.
func (e *Engine) first() (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", e.box, e.box))
	child := strings.TrimSpace(string(data))
	if err == nil && child == "" {
		err = errors.New("its first process has ended")
	}
	if err == nil {
		child, err = seenOutside(child)
	}
	if err != nil {
		return "", fmt.Errorf("enter the box of Docker on %s: %w", e.Host.Name, err)
	}
	return child, nil
}

// inside returns a command in the box.
func (e *Engine) inside(ctx context.Context, name string, args ...string) (*testcluster.Command, error) {
	child, err := e.first()
	if err != nil {
		return nil, err
	}
	return e.Host.NS.Command(ctx, "nsenter", append([]string{"--target", child, "--mount", "--pid", name}, args...)...), nil
}

// Space opens the network namespace of a running container. The caller closes it.
func (e *Engine) Space(ctx context.Context, container string) (*testcluster.Namespace, error) {
	child, err := e.first()
	if err != nil {
		return nil, err
	}
	pid, err := e.Docker(ctx, "inspect", "-f", "{{.State.Pid}}", container)
	if err != nil {
		return nil, err
	}
	return testcluster.NamespaceAt(filepath.Join("/proc", child, "root/proc", pid, "ns/net"))
}

// seenOutside returns the number that a box's first process has where the box was made:
// on the machine, or on a host with processes of its own. NSpid ends with that and 1.
func seenOutside(pid string) (string, error) {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "NSpid:" {
			return f[len(f)-2], nil
		}
	}
	return "", fmt.Errorf("process %s is not in a box", pid)
}

// Inside runs a command in the engine's box and returns its output.
func (e *Engine) Inside(ctx context.Context, name string, args ...string) (string, error) {
	c, err := e.inside(ctx, name, args...)
	if err != nil {
		return "", err
	}
	out, err := c.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Start starts dockerd and waits until it answers.
func (e *Engine) Start(ctx context.Context, flags ...string) error {
	log, err := e.openLog()
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	args := append([]string{
		"--data-root", filepath.Join(e.dir, "data"), "--exec-root", "/run/docker",
		"--pidfile", filepath.Join(e.dir, "pid"), "-H", "unix://" + e.Socket(),
	}, append(e.Flags, flags...)...)
	c, err := e.inside(context.Background(), "/usr/sbin/dockerd", args...) // Stop ends it
	if err != nil {
		return err
	}
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	e.mu.Lock()
	e.done = done
	e.mu.Unlock()
	go func() { _ = c.Wait(); close(done) }()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return testcluster.Until(ctx, "dockerd on "+e.Host.Name+" answers", func(ctx context.Context) error {
		select {
		case <-done:
			cancel()
			return fmt.Errorf("it has ended:\n%s", e.Log())
		default:
		}
		_, err := e.Docker(ctx, "version")
		return err
	})
}

func (e *Engine) logFile() string { return filepath.Join(e.dir, "dockerd.log") }

// Log returns the end of dockerd's log.
func (e *Engine) Log() string {
	b, _ := os.ReadFile(e.logFile()) // for failure reports
	var lines []string
	times := map[string]int{} // of a message, whenever it was logged
	for line := range strings.Lines(string(b)) {
		_, message, _ := strings.Cut(line, "level=")
		if times[message]++; times[message] <= 2 && !strings.Contains(line, "[core]") && !strings.Contains(line, "loading plugin") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// Stop ends dockerd in order, if it runs.
func (e *Engine) Stop(ctx context.Context) error { return e.end(ctx, "-TERM") }

// Kill ends dockerd as kill -9 does.
func (e *Engine) Kill(ctx context.Context) error { return e.end(ctx, "-KILL") }

func (e *Engine) end(ctx context.Context, sig string) error {
	e.mu.Lock()
	done := e.done
	e.done = nil
	e.mu.Unlock()
	if done == nil {
		return nil
	}
	pid, err := os.ReadFile(filepath.Join(e.dir, "pid"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if _, err := e.Inside(ctx, "kill", sig, strings.TrimSpace(string(pid))); err != nil {
		return err
	}
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("dockerd on %s did not end by itself", e.Host.Name)
	}
	// Its containerd ends by itself when dockerd was killed; the next dockerd
	// must not meet it.
	return testcluster.Until(ctx, "dockerd's containerd ends", func(ctx context.Context) error {
		if _, err := e.Inside(ctx, "sh", "-c", `! kill -0 "$(cat /run/docker/containerd/containerd.pid)" 2>/dev/null`); err != nil {
			return errors.New("it still runs")
		}
		return nil
	})
}

// Docker runs the client and returns its output.
func (e *Engine) Docker(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, CLI, append([]string{"-H", "unix://" + e.Socket()}, args...)...)
	c.Env = append(os.Environ(), "DOCKER_CONFIG="+e.dir)
	out, err := c.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("docker %s on %s: %w: %s", strings.Join(args, " "), e.Host.Name, err, text)
	}
	return text, nil
}

// Close ends everything in the box and removes what it left in the control
// groups. The lab removes the directory.
func (e *Engine) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	e.removeContainers(ctx)
	err := e.Stop(ctx)
	if p, e := os.FindProcess(e.box); e == nil {
		_ = p.Kill() // with --kill-child; it may have ended
	}
	return err
}

// removeContainers removes all containers. The box ends the rest.
func (e *Engine) removeContainers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if ids, err := e.Docker(ctx, "ps", "-aq"); err == nil && ids != "" {
		_, _ = e.Docker(ctx, append([]string{"rm", "-f"}, strings.Fields(ids)...)...)
	}
}
