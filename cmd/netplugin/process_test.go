package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/observe"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// cluster is one netmaster with its embedded etcd, and one host: real
// processes, the fake data plane.
type cluster struct {
	t      *testing.T
	bin    string
	dir    string
	client *api.Client
	plugin *process
}

type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // then
	log  *testenv.Log
}

var binDir = filepath.Join(os.TempDir(), fmt.Sprintf("n-bin-%d", os.Getpid()))

// buildAll builds the programs once for all tests; TestMain removes them.
var buildAll = sync.OnceValues(func() (string, error) {
	dir := binDir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	c := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir, "../netplugin", "../netmaster", "../contivk8s", "../netctl")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return dir, nil
})

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterWith(t, nil)
}

// newClusterWith gives netmaster flags, and our client options.
func newClusterWith(t *testing.T, opts []api.Option, flags ...string) *cluster {
	t.Helper()
	return newClusterAt(t, "http", opts, flags...)
}

// noCluster is one of which nothing runs yet; the caller has a namespace of its own.
func noCluster(t *testing.T) *cluster {
	t.Helper()
	bin, err := buildAll()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "n-netplugin-") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Cleanup(func() { noInterfaces(t) })
	return &cluster{t: t, bin: bin, dir: dir}
}

// noInterfaces deletes the container interfaces that a test leaves. A namespace's
// interfaces go only when its last user ends, and the next test's netplugin would adopt
// them.
func noInterfaces(t *testing.T) {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Error(err)
	}
	for _, l := range links {
		if l.Type() == "veth" {
			_ = netlink.LinkDel(l) // it may go by itself meanwhile
		}
	}
}

func newClusterAt(t *testing.T, scheme string, opts []api.Option, flags ...string) *cluster {
	t.Helper()
	testenv.Need(t)
	c := noCluster(t)
	c.spawn("netmaster", nil, append(flags, "--data-dir", filepath.Join(c.dir, "etcd"), "--external-address", "127.0.0.1:9999",
		"--internal-address", "127.0.0.1:9999")...)
	var err error
	if c.client, err = api.NewClient(scheme+"://127.0.0.1:9999", opts...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.Close)
	c.eventually("netmaster answers", func() error {
		return c.client.Do(t.Context(), "GET", "/api/v1/tenants/", nil, nil)
	})
	c.must("POST", "/api/v1/tenants/blue/", api.Tenant{TenantName: "blue"})
	c.must("POST", "/api/v1/networks/blue:net1/", api.Network{
		TenantName: "blue", NetworkName: "net1", NwType: "data", Encap: "vxlan", Subnet: "10.1.1.0/24", Gateway: "10.1.1.254",
	})
	return c
}

func (c *cluster) must(method, path string, in any) {
	c.t.Helper()
	if err := c.client.Do(c.t.Context(), method, path, in, nil); err != nil {
		c.t.Fatal(err)
	}
}

// spawn starts a program that ends with the test at the latest.
func (c *cluster) spawn(name string, env []string, args ...string) *process {
	c.t.Helper()
	p := &process{cmd: exec.CommandContext(context.WithoutCancel(c.t.Context()), filepath.Join(c.bin, name), args...), done: make(chan struct{}), log: &testenv.Log{}}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The death signal comes when the thread that forked ends.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		p.stop()
		if c.t.Failed() {
			c.t.Logf("%s:\n%s", name, p.log)
		}
	})
	return p
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// startPlugin starts netplugin and waits until it could attach.
func (c *cluster) startPlugin(env ...string) {
	c.t.Helper()
	c.spawnPlugin(env...)
	c.pluginReady()
}

func (c *cluster) spawnPlugin(env ...string) {
	c.t.Helper()
	c.plugin = c.spawn("netplugin", env, "--driver", "fake", "--host", "n-host1", "--ctrl-ip", "127.0.0.1", "--debug-hooks",
		"--state-dir", filepath.Join(c.dir, "state"), "--cni-socket", c.socket(), "--rest-address", "127.0.0.1:9006", "--log-level", "DEBUG")
}

func (c *cluster) pluginReady() {
	c.t.Helper()
	c.eventually("netplugin is ready", func() error {
		select {
		case <-c.plugin.done:
			c.t.Fatalf("netplugin has ended: %v", c.plugin.err)
		default:
		}
		return attach.Client{Socket: c.socket()}.Ready(c.t.Context())
	})
}

func (c *cluster) socket() string { return filepath.Join(c.dir, "cni.sock") }

func (c *cluster) eventually(what string, f func() error) {
	c.t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatalf("%s: still not: %v", what, err)
		}
	}
}

// cni runs contivk8s and returns its exit code and output.
func (c *cluster) cni(verb, container, netns string) (int, string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), filepath.Join(c.bin, "contivk8s"))
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + container, "CNI_NETNS=" + netns, "CNI_IFNAME=eth0", "CNI_PATH=" + c.bin,
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		`{"cniVersion":"1.1.0","name":"conf1","type":"contivk8s","socket":%q,"stateDir":%q,"tenant":"blue","network":"net1"}`,
		c.socket(), filepath.Join(c.dir, "state")))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// left says what remains of attachments anywhere; empty = nothing.
func (c *cluster) left() error {
	n, err := c.client.Networks().Inspect(c.t.Context(), "blue:net1")
	if err != nil {
		return err
	}
	if n.Oper.NumEndpoints != 0 {
		return fmt.Errorf("netmaster has %d endpoints", n.Oper.NumEndpoints)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Type() == "veth" {
			return fmt.Errorf("veth %s", l.Attrs().Name)
		}
	}
	st, err := c.state()
	if err != nil {
		return err
	}
	if len(st.Ports) > 0 || len(st.Attachments) > 0 {
		return fmt.Errorf("ports %v, attachments %v", st.Ports, st.Attachments)
	}
	spool, err := attach.Spool{Dir: filepath.Join(c.dir, "state", attach.SpoolDir)}.List()
	if err != nil || len(spool) > 0 {
		return fmt.Errorf("spool %v, %w", spool, err)
	}
	return nil
}

func (c *cluster) state() (st observe.State, err error) {
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "http://127.0.0.1:9006/debug/state", nil)
	if err != nil {
		return st, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return st, err
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return st, err
	}
	return st, json.Unmarshal(b, &st)
}

// newNetns makes a container's namespace that lives as long as the test.
func newNetns(t *testing.T) string {
	t.Helper()
	files := make(chan *os.File)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread dies with the goroutine
		var f *os.File
		if err := unix.Unshare(unix.CLONE_NEWNET); err == nil {
			f, _ = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		}
		files <- f
	}()
	f := <-files
	if f == nil {
		t.Fatal("cannot make a network namespace")
	}
	t.Cleanup(func() { _ = f.Close() })
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
}

// TestKillAtEveryStep kills netplugin with SIGKILL at every step of ADD and of
// DEL; after the next start, and the runtime's DEL of what it knows, nothing is
// left anywhere.
func TestKillAtEveryStep(t *testing.T) {
	c := newCluster(t)
	for _, step := range attachment.Steps {
		t.Run(step, func(t *testing.T) {
			c.t = t
			netns := newNetns(t)
			c.startPlugin(envPrefix + "TEST_KILL=" + step)
			code, out := c.cni("ADD", "c1", netns)
			added := code == 0
			if added { // the step is one of DEL
				if code, out = c.cni("DEL", "c1", netns); code != 0 {
					t.Errorf("DEL: exit %d: %s", code, out)
				}
			} else if !strings.Contains(out, `"code": 11`) {
				t.Errorf("ADD: %s, want code 11: try again later", out)
			}
			select {
			case <-c.plugin.done:
			case <-time.After(time.Minute):
				t.Fatal("the step was not met")
			}
			c.startPlugin()
			if step == attachment.StepDone {
				// The journal says done, the runtime has not heard of it: its DEL follows.
				if code, out := c.cni("DEL", "c1", netns); code != 0 {
					t.Errorf("DEL: exit %d: %s", code, out)
				}
			}
			c.eventually("nothing is left", c.left)
			if code, out := c.cni("ADD", "c1", netns); code != 0 {
				t.Errorf("ADD after the restart: %s", out)
			}
			if code, out := c.cni("DEL", "c1", netns); code != 0 {
				t.Errorf("DEL after the restart: %s", out)
			}
			c.eventually("nothing is left", c.left)
			c.plugin.stop()
		})
	}
}

// TestDockerFindsTheSocketBeforeTheDriverIsReady: an engine that enables a managed plugin finds its socket while the data
// plane is not there yet, however long that takes.
func TestDockerFindsTheSocketBeforeTheDriverIsReady(t *testing.T) {
	c := newCluster(t)
	path := filepath.Join(c.dir, "db.sock")
	db, err := new(net.ListenConfig).Listen(t.Context(), "unix", path) // which never answers
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "n-vtep"}, PeerName: "n-vtep-far"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) }) // it goes with the namespace
	addr, err := netlink.ParseAddr("10.0.0.1/24")
	if err := errors.Join(err, netlink.AddrAdd(veth, addr), netlink.LinkSetUp(veth)); err != nil {
		t.Fatal(err)
	}
	p := c.spawn("netplugin", nil, "--driver", "ovs", "--ovs-db", "unix:"+path, "--ovs-run-dir", c.dir, "--ctrl-ip", "127.0.0.1", "--vtep-ip", "10.0.0.1",
		"--state-dir", filepath.Join(c.dir, "s3"), "--cni-socket", filepath.Join(c.dir, "s3.sock"), "--rest-address", "none",
		"--mode", "docker", "--docker-endpoint", "none", "--docker-socket-dir", c.dir)
	go func() {
		<-p.done
		_ = db.Close() // no more requests
	}()
	conn, err := db.Accept() // it asks the data plane
	if err != nil {
		t.Fatalf("%v\n%s", err, p.log)
	}
	defer conn.Close()
	engine, err := new(net.Dialer).DialContext(t.Context(), "unix", filepath.Join(c.dir, "netplugin.sock"))
	if err != nil {
		t.Fatalf("%v\n%s", err, p.log)
	}
	_ = engine.Close() // as engines do, before they ask
}

// TestUnusableHostsAreRefusedAtStart starts netplugin where it cannot work, and reads why.
func TestUnusableHostsAreRefusedAtStart(t *testing.T) {
	c := newCluster(t)
	base := []string{
		"--driver", "fake", "--ctrl-ip", "127.0.0.1", "--state-dir", filepath.Join(c.dir, "s2"),
		"--cni-socket", filepath.Join(c.dir, "s2.sock"), "--rest-address", "none",
	}
	plugins := filepath.Join(c.dir, "plugins")
	if err := os.Mkdir(plugins, 0o700); err != nil {
		t.Fatal(err)
	}
	other, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(plugins, "netplugin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tests := []struct {
		name string
		args []string
		want []string
	}{
		// First of all, before anything of the other one is touched.
		{"two plugins of one name", []string{"--mode", "docker", "--docker-endpoint", "none", "--docker-socket-dir", plugins}, []string{"another plugin answers", "--plugin-name"}},
		{"forwarding mode", []string{"--fwdmode", "routing"}, []string{"--fwdmode routing", "bridge"}},
		{"private subnet", []string{"--private-subnet", "172.30.0.0/16"}, []string{"--private-subnet 172.30.0.0/16", "172.19.0.0/16"}},
		{"no store", []string{"--etcd-endpoints", "http://127.0.0.1:1"}, []string{"--etcd-endpoints"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c.t = t
			p := c.spawn("netplugin", nil, append(base, tt.args...)...)
			select {
			case <-p.done:
			case <-time.After(30 * time.Second):
				t.Fatalf("it still runs:\n%s", p.log)
			}
			if p.cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("exit code %d, want 1", p.cmd.ProcessState.ExitCode())
			}
			last := p.log.String()
			last = last[strings.LastIndex(strings.TrimRight(last, "\n"), "\n")+1:]
			for _, w := range tt.want {
				if !strings.Contains(last, w) {
					t.Errorf("last line %q lacks %q", last, w)
				}
			}
		})
	}
}
