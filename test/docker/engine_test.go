//go:build integration

package docker

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/lab"
)

// dockerCLI is the distribution's client, whatever else is in the path.
const dockerCLI = "/usr/bin/docker"

// spaceScript makes a mount namespace in which /run/docker/plugins is the host's
// own directory, $1: Docker looks for plugins at one place only. It outlives
// dockerd, as a machine does: containers that stay are mounted there.
const spaceScript = `set -e
mkdir -p /run/docker "$1"
mount -t tmpfs -o size=1m contiv-test /run/docker
mkdir /run/docker/plugins
mount --bind "$1" /run/docker/plugins
echo ready
exec sleep 86400`

// engine is a dockerd on a simulated host.
type engine struct {
	t    *testing.T
	host *lab.Host
	dir  string    // state, sockets, plugins: short paths
	box  *exec.Cmd // holds the mount namespace
	cmd  *lab.Command
	done chan struct{} // closed when cmd has ended
}

func (e *engine) socket() string { return filepath.Join(e.dir, "docker.sock") }

// env tells netplugin on the host where its engine is.
func (e *engine) env() []string {
	return []string{
		"CONTIV_NETPLUGIN_MODE=docker", "CONTIV_NETPLUGIN_DOCKER_SOCKET_DIR=" + filepath.Join(e.dir, "plugins"),
		"CONTIV_NETPLUGIN_DOCKER_ENDPOINT=unix://" + e.socket(), "CONTIV_NETPLUGIN_LOG_LEVEL=DEBUG",
	}
}

// space makes the engine's mount namespace.
func (e *engine) space() {
	e.t.Helper()
	e.box = exec.CommandContext(context.Background(), "unshare", "--mount", "--propagation", "private",
		"sh", "-c", spaceScript, "sh", filepath.Join(e.dir, "plugins"))
	out, err := e.box.StdoutPipe()
	if err == nil {
		err = e.box.Start()
	}
	if err == nil {
		_, err = bufio.NewReader(out).ReadString('\n')
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// close ends the mount namespace.
func (e *engine) close() {
	if e.box != nil && e.box.Process != nil {
		_ = e.box.Process.Kill() // it may have ended
		_ = e.box.Wait()         // it was killed
	}
}

// start starts dockerd and waits until it answers.
func (e *engine) start(flags ...string) {
	e.t.Helper()
	log, err := os.OpenFile(filepath.Join(e.dir, "dockerd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the child has its own
	args := append([]string{
		fmt.Sprintf("--mount=/proc/%d/ns/mnt", e.box.Process.Pid), "/usr/sbin/dockerd",
		"--data-root", filepath.Join(e.dir, "data"), "--exec-root", filepath.Join(e.dir, "x"),
		"--pidfile", filepath.Join(e.dir, "pid"), "-H", "unix://" + e.socket(),
		"--iptables=false", "--ip6tables=false", "--ip-forward=false",
	}, flags...)
	e.cmd = e.host.NS.Command(context.Background(), "nsenter", args...)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := e.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	e.done = make(chan struct{})
	go func(c *lab.Command, done chan struct{}) { _ = c.Wait(); close(done) }(e.cmd, e.done)
	e.until("dockerd on "+e.host.Name+" answers", 30*time.Second, func() error {
		select {
		case <-e.done:
			e.t.Fatalf("dockerd has ended:\n%s", e.log())
		default:
		}
		_, err := e.try("version")
		return err
	})
}

func (e *engine) log() string {
	b, _ := os.ReadFile(filepath.Join(e.dir, "dockerd.log"))
	var lines []string
	for line := range strings.Lines(string(b)) {
		if !strings.Contains(line, "[core]") && !strings.Contains(line, "loading plugin") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// stop ends dockerd in order; kill as kill -9 does.
func (e *engine) stop() { e.end(syscall.SIGTERM) }
func (e *engine) kill() { e.end(syscall.SIGKILL) }

func (e *engine) end(sig syscall.Signal) {
	e.t.Helper()
	if e.cmd == nil {
		return
	}
	_ = e.cmd.Process.Signal(sig) // it may have ended
	select {
	case <-e.done:
	case <-time.After(40 * time.Second):
		_ = e.cmd.Process.Kill()
		<-e.done
		e.t.Errorf("dockerd on %s did not end by itself", e.host.Name)
	}
	e.cmd = nil
	pid, err := os.ReadFile(filepath.Join(e.dir, "x", "containerd", "containerd.pid"))
	if err != nil {
		return // it ended in order
	}
	e.until("dockerd's containerd ends", 20*time.Second, func() error {
		if _, err := os.Stat(filepath.Join("/proc", strings.TrimSpace(string(pid)))); err == nil {
			return errors.New("it still runs")
		}
		return nil
	})
}

// try runs the docker client.
func (e *engine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, dockerCLI, append([]string{"-H", "unix://" + e.socket()}, args...)...)
	c.Env = append(os.Environ(), "DOCKER_CONFIG="+e.dir)
	out, err := c.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("docker %s on %s: %w: %s", strings.Join(args, " "), e.host.Name, err, text)
	}
	return text, nil
}

// docker runs the docker client; it must succeed. The command is one string,
// split at blanks.
func (e *engine) docker(line string) string {
	e.t.Helper()
	out, err := e.try(strings.Fields(line)...)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// refused runs the docker client; it must fail and say so.
func (e *engine) refused(line string, parts ...string) {
	e.t.Helper()
	out, err := e.try(strings.Fields(line)...)
	if err == nil {
		e.t.Errorf("docker %s succeeded: %s", line, out)
	}
	for _, p := range parts {
		if !strings.Contains(out, p) {
			e.t.Errorf("docker %s says %q, which lacks %q", line, out, p)
		}
	}
}

// run starts a container that sleeps and serves HTTP on port 80; name first.
func (e *engine) run(name, flags string) {
	e.t.Helper()
	e.docker("run -d --name " + name + " " + flags + " bb httpd -f -h /www")
}

// reaches asks from a container until the answer is as wanted, at most 3 s:
// what is "ping" or a TCP port.
func (e *engine) reaches(from, what, addr string, want bool) {
	e.t.Helper()
	ask := func() (string, error) { return e.try("exec", from, "ping", "-c1", "-W1", addr) }
	if what != "ping" { // busybox's static wget does not survive the absence of libnss
		pid := e.docker("inspect -f {{.State.Pid}} " + from)
		ask = func() (string, error) {
			out, err := exec.CommandContext(e.t.Context(), "timeout", "1", "nsenter", "--net=/proc/"+pid+"/ns/net",
				"bash", "-c", "exec 3<>/dev/tcp/"+addr+"/"+what+" && echo -e 'GET / HTTP/1.0\r\n\r' >&3 && grep -q ok <&3").CombinedOutput()
			return string(out), err
		}
	}
	e.until(fmt.Sprintf("%s to %s %s: %v", from, addr, what, want), 5*time.Second, func() error {
		out, err := ask()
		if (err == nil) != want {
			return fmt.Errorf("it is %v: %s", err == nil, out)
		}
		return nil
	})
}

// addr is a container's address on a network.
func (e *engine) addr(container, network string) string {
	e.t.Helper()
	out, err := e.try("inspect", "-f", fmt.Sprintf("{{(index .NetworkSettings.Networks %q).IPAddress}}", network), container)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

func (e *engine) until(what string, limit time.Duration, f func() error) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := lab.Until(ctx, what, func(context.Context) error { return f() }); err != nil {
		e.t.Fatal(err)
	}
}

// image imports busybox as the image bb.
func (e *engine) image() {
	e.t.Helper()
	box, err := os.ReadFile("/bin/busybox")
	if err != nil {
		e.t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		_, err := w.Write(nil)
		err = errors.Join(err, w.WriteHeader(&h))
		if len(data) > 0 {
			_, e := w.Write(data)
			err = errors.Join(err, e)
		}
		if err != nil {
			e.t.Fatal(err)
		}
	}
	add(tar.Header{Name: "bin/busybox", Mode: 0o755, Typeflag: tar.TypeReg}, box)
	add(tar.Header{Name: "www/index.html", Mode: 0o644, Typeflag: tar.TypeReg}, []byte("ok\n"))
	for n := range strings.FieldsSeq("sh sleep ip ping nc wget httpd cat") {
		add(tar.Header{Name: "bin/" + n, Linkname: "busybox", Typeflag: tar.TypeSymlink}, nil)
	}
	if err := w.Close(); err != nil {
		e.t.Fatal(err)
	}
	c := exec.CommandContext(e.t.Context(), dockerCLI, "-H", "unix://"+e.socket(), "import", "-", "bb")
	c.Stdin = &b
	if out, err := c.CombinedOutput(); err != nil {
		e.t.Fatalf("docker import: %v: %s", err, out)
	}
}
