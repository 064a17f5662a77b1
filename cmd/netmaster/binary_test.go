package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/pagetest"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// patience is how long a test waits for what should happen at once.
const patience = 30 * time.Second

// binaryDir holds the built binary, if any test needed it.
var binaryDir string

var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "netmaster-test-")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	path := filepath.Join(dir, "netmaster")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, func() error { return os.RemoveAll(binaryDir) }))
}

// command is a run of the built binary, with nothing of our environment.
func command(ctx context.Context, t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: builds and runs the binary")
	}
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	return cmd
}

// finished runs the binary to its end.
func finished(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := command(ctx, t, env, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// process is a netmaster that runs.
type process struct {
	*api.Client
	t      *testing.T
	cmd    *exec.Cmd
	log    *testenv.Log
	api    string
	agents string
	done   chan struct{}
}

func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, log: new(testenv.Log), api: storetest.FreePort(t), agents: storetest.FreePort(t), done: make(chan struct{})}
	p.cmd = command(t.Context(), t, env, append([]string{"--external-address", p.api, "--agent-address", p.agents}, args...)...)
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the state is looked at by stop
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended by then, or the test failed
		<-p.done
		if t.Failed() {
			t.Logf("log of %s:\n%s", p.api, p.log)
		}
	})
	var err error
	if p.Client, err = api.NewClient("http://"+p.api, api.WithTimeout(time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// until waits for a condition.
func (p *process) until(what string, ok func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-p.done:
			p.t.Fatalf("netmaster ended while waiting until it %s", what)
		case <-tick.C:
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("netmaster never %s", what)
		}
	}
}

func (p *process) ready() {
	p.t.Helper()
	p.until("is ready", func() bool { return p.Do(p.t.Context(), "GET", "/readyz", nil, nil) == nil })
}

// unready waits until /readyz says, in text and in JSON, that a condition does
// not hold.
func (p *process) unready(condition string) {
	p.t.Helper()
	p.until("is not ready for its "+condition, func() bool {
		req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.api+"/readyz", nil)
		if err != nil {
			p.t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it has been read
		var list *api.Error
		var h api.Health
		return err == nil && resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(text), "\n"+condition+": ") &&
			errors.As(p.Do(p.t.Context(), "GET", "/readyz?format=json", nil, nil), &list) && list.Status == 503 &&
			json.Unmarshal([]byte(list.Message), &h) == nil && !h.Ready &&
			slices.ContainsFunc(h.Conditions, func(c api.Condition) bool { return c.Name == condition && !c.OK && c.Message != "" })
	})
}

// stop ends it by SIGTERM and expects exit code 0.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatal("SIGTERM does not end it")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("exit code %d after SIGTERM", code)
	}
}

// TestUsageErrorsExitWith2AndFailuresWith1: help and version are 0 on stdout, usage errors 2 and failures
// 1, each with a sentence on stderr and nothing else.
func TestUsageErrorsExitWith2AndFailuresWith1(t *testing.T) {
	busy, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	taken, port := busy.Addr().String(), strings.TrimPrefix(storetest.FreePort(t), "127.0.0.1")
	tests := []struct {
		args   []string
		env    []string
		code   int
		stdout string
		stderr []string
	}{
		{args: []string{"--help"}, stdout: "--etcd-endpoints"},
		{args: []string{"-h"}, stdout: "--etcd-endpoints"},
		{args: []string{"help"}, stdout: "--etcd-endpoints"},
		{args: []string{"--version"}, stdout: "Version: "},
		{args: []string{"-v"}, stdout: "GitCommit: "},
		{args: []string{"--mode", "x"}, code: 2, stderr: []string{`netmaster: flag --mode "x": must be one of`}},
		{args: []string{"--nonsense"}, code: 2, stderr: []string{"--nonsense"}},
		{env: []string{"CONTIV_NETMASTER_LOG_LEVEL=x"}, code: 2, stderr: []string{`$CONTIV_NETMASTER_LOG_LEVEL "x"`}},
		{args: []string{"--cluster-store", "consul://127.0.0.1"}, code: 2, stderr: []string{"http://host:port"}},
		{args: []string{"--consul", "http://127.0.0.1:8500", "--consul-token-file", "/none"}, code: 1, stderr: []string{"--consul-token-file", "/none"}},
		{args: []string{"--external-address", taken, "--data-dir", t.TempDir(), "--etcd-listen", storetest.FreePort(t)}, code: 1, stderr: []string{taken, "--external-address"}},
		{args: []string{"--external-address", storetest.FreePort(t), "--agent-address", storetest.FreePort(t), "--data-dir", t.TempDir(), "--etcd-listen", taken}, code: 1, stderr: []string{taken, "--etcd-endpoints http://" + taken, "--etcd-listen"}},
		{args: []string{"--external-address", "192.0.2.99:9999", "--data-dir", t.TempDir(), "--etcd-listen", storetest.FreePort(t)}, code: 1, stderr: []string{"192.0.2.99:9999", "does not have the address"}},
		{args: []string{"--internal-address", "192.0.2.99" + port, "--external-address", "0.0.0.0" + port, "--data-dir", t.TempDir(), "--etcd-listen", storetest.FreePort(t)}, code: 1, stderr: []string{"192.0.2.99:9001", "with --internal-address, or --agent-address"}},
		{args: []string{"--etcd-listen", "192.0.2.99:2379", "--data-dir", t.TempDir(), "--external-address", storetest.FreePort(t), "--agent-address", storetest.FreePort(t)}, code: 1, stderr: []string{"address of 192.0.2.99:2379; give one that it has with --etcd-listen"}},
	}
	for _, tt := range tests {
		code, stdout, stderr := finished(t, tt.env, tt.args...)
		if code != tt.code || !strings.Contains(stdout, tt.stdout) || tt.stdout == "" && stdout != "" {
			t.Errorf("%v: exit code %d, want %d; stdout %q, stderr %q", tt.args, code, tt.code, stdout, stderr)
		}
		for _, w := range tt.stderr {
			if !strings.Contains(stderr, w) {
				t.Errorf("%v: stderr %q lacks %q", tt.args, stderr, w)
			}
		}
		if strings.Contains(stderr, "goroutine") {
			t.Errorf("%v: stderr shows a stack:\n%s", tt.args, stderr)
		}
	}
}

// TestNetmasterStartsWithEveryFlag runs with every flag given at once, embedded etcd included, and
// again on the same data, where flags for a new cluster must not reset it.
func TestNetmasterStartsWithEveryFlag(t *testing.T) {
	syslog, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer syslog.Close()
	data, etcdAt, debug := t.TempDir(), storetest.FreePort(t), storetest.FreePort(t)
	args := []string{
		"--data-dir", data, "--etcd-listen=" + etcdAt, "-internal-address", "127.0.0.1:" + port(storetest.FreePort(t)),
		"--debug-address", debug, "--mode", "docker", "--name", "v2plugin", "--netmode", "vxlan", "--fwdmode", "routing", "--infra", "default",
		"--log-level", "DEBUG", "--use-json-log", "--use-syslog", "--syslog-url", "udp://" + syslog.LocalAddr().String(), "--syslog-format", "rfc3164",
	}
	p := start(t, nil, args...)
	p.ready()
	p.until("leads", func() bool { i, err := p.Info(t.Context()); return err == nil && i.CurrentState == "leader" })
	i, err := p.Info(t.Context())
	if err != nil || i.LocalIP != "127.0.0.1" || !strings.HasPrefix(i.LeaderIP, "127.0.0.1:") || len(i.NetmasterNodes) != 1 {
		t.Errorf("info %+v, %v", i, err)
	}
	for _, url := range []string{"http://" + p.agents, "http://" + i.LeaderIP} {
		other, err := api.NewClient(url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Tenants().Get(t.Context(), "default"); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		other.Close()
	}
	g, err := p.Globals().Inspect(t.Context(), "global")
	if err != nil || g.Config.FwdMode != "routing" || g.Oper.ClusterMode != "docker" {
		t.Errorf("global %+v, %v", g, err)
	}
	if _, err := p.Globals().Create(t.Context(), api.Global{Name: "global", Vlans: "100-200"}); err != nil {
		t.Error(err)
	}
	if err := syslog.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 9000)
	n, _, err := syslog.ReadFrom(buf)
	if err != nil || !strings.Contains(string(buf[:n]), " netmaster[") {
		t.Errorf("syslog got %q, %v", buf[:n], err)
	}
	for line := range strings.Lines(p.log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not a JSON line: %s", line)
			break
		}
	}
	p.stop()

	again := start(t, []string{"CONTIV_NETMASTER_FORWARD_MODE=bridge", "CONTIV_NETMASTER_INFRA=aci", "CONTIV_NETMASTER_DATA_DIR=" + data, "CONTIV_NETMASTER_ETCD_LISTEN=" + etcdAt})
	again.ready()
	o, err := again.Globals().Get(t.Context(), "global")
	if err != nil || o.FwdMode != "routing" || o.NetworkInfraType != "default" || o.Vlans != "100-200" {
		t.Errorf("after a restart: %+v, %v", o, err)
	}
	again.until("warns", func() bool {
		s := again.log.String()
		return strings.Contains(s, "netctl global set --fwd-mode bridge") && strings.Contains(s, "netctl global set --fabric-mode aci")
	})
	again.stop()
}

func port(addr string) string {
	_, p, _ := net.SplitHostPort(addr)
	return p
}

// TestUnauthenticatedAPIIsWarnedOf: served beyond loopback without authentication, it says so.
func TestUnauthenticatedAPIIsWarnedOf(t *testing.T) {
	at := storetest.FreePort(t)
	p := start(t, nil, "--external-address", "0.0.0.0:"+port(at), "--internal-address", at, "--data-dir", t.TempDir(), "--etcd-listen", storetest.FreePort(t))
	p.until("warns", func() bool { return strings.Contains(p.log.String(), "has no authentication") })
	p.stop()
}

// TestReplicaTakesOverFromAKilledLeader: two netmasters on one etcd both serve reads and writes; when
// the leader is killed the other takes over; the registry shows the roles.
func TestReplicaTakesOverFromAKilledLeader(t *testing.T) {
	server := startEtcd(t, "127.0.0.1:0", t.TempDir())
	st, err := etcd.New(etcd.Config{Endpoints: []string{server.Endpoint()}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	a := start(t, nil, "--etcd-endpoints", server.Endpoint())
	a.ready()
	a.until("leads", func() bool { i, err := a.Info(t.Context()); return err == nil && i.CurrentState == "leader" })
	b := start(t, nil, "--cluster-store", strings.Replace(server.Endpoint(), "http://", "etcd://", 1))
	b.ready()
	for n, p := range []*process{a, b, a, b} {
		if _, err := p.Tenants().Create(t.Context(), api.Tenant{TenantName: fmt.Sprintf("t%d", n)}); err != nil {
			t.Errorf("write through %s: %v", p.api, err)
		}
		other := []*process{b, a, b, a}[n]
		if _, err := other.Tenants().Get(t.Context(), fmt.Sprintf("t%d", n)); err != nil {
			t.Errorf("read of what was just written through the other: %v", err)
		}
	}
	if i, err := b.Info(t.Context()); err != nil || i.CurrentState != "follower" || i.LeaderIP != a.api {
		t.Errorf("follower's info %+v, %v; want leader %s", i, err, a.api)
	}
	roles := func() map[string]string {
		services, err := cluster.Services(t.Context(), st, "")
		if err != nil {
			t.Fatal(err)
		}
		out := make(map[string]string)
		for _, s := range services {
			out[fmt.Sprintf("%s %s:%d", s.ServiceName, s.HostAddr, s.Port)] = s.Role
		}
		return out
	}
	a.until("shows the roles", func() bool {
		r := roles()
		return r["netmaster "+a.api] == "leader" && r["netmaster.rpc "+a.agents] == "leader" && r["netmaster "+b.api] == "follower" && r["netmaster.rpc "+b.agents] == "follower"
	})
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b.until("takes over", func() bool {
		i, err := b.Info(t.Context())
		return err == nil && i.CurrentState == "leader" && i.LeaderIP == b.api
	})
	b.until("is alone in the registry", func() bool { r := roles(); return len(r) == 2 && r["netmaster "+b.api] == "leader" })
	b.stop()
	if r := roles(); len(r) != 0 {
		t.Errorf("after a stop the registry holds %v", r)
	}
}

func startEtcd(t *testing.T, listen, dir string) *membership.Member {
	t.Helper()
	s, err := membership.Start(t.Context(), membership.Config{Dir: dir, Client: listen, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestMetricsOfAFreshNetmasterAreOnThePage: the status of a fresh netmaster with its own store, and
// every metric that it tells is on the page of metrics.
func TestMetricsOfAFreshNetmasterAreOnThePage(t *testing.T) {
	etcdAt := storetest.FreePort(t)
	p := start(t, nil, "--data-dir", t.TempDir(), "--etcd-listen", etcdAt, "--internal-address", "127.0.0.1:"+port(storetest.FreePort(t)))
	p.ready()
	p.lockLasts(etcdAt)
	var s api.ClusterStatus
	p.until("is well", func() bool {
		var err error
		s, err = p.Status(t.Context())
		return err == nil && s.Well
	})
	if len(s.Masters) != 1 || s.Masters[0].Role != roleLeader || len(s.Stores) != 1 || s.Stores[0].Size == 0 || s.Stores[0].Quota == 0 || !s.Stores[0].Leads {
		t.Errorf("%+v", s)
	}
	resp, err := http.DefaultClient.Do(request(t, "http://"+p.api+"/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	pagetest.HasMetrics(t, "metrics-netmaster.md", string(text))
	p.stop()
}

func request(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// TestNetmasterStartsWithoutItsStore: it starts without its store and answers 503, and serves when
// the store is there.
func TestNetmasterStartsWithoutItsStore(t *testing.T) {
	at := storetest.FreePort(t)
	p := start(t, nil, "--etcd-endpoints", "http://"+at)
	p.until("answers", func() bool { return p.Do(t.Context(), "GET", "/healthz", nil, nil) == nil })
	_, err := p.Tenants().List(t.Context())
	var answer *api.Error
	if !errors.As(err, &answer) || answer.Status != 503 || !strings.Contains(answer.Message, "etcd") && !strings.Contains(answer.Message, "store") {
		t.Errorf("without a store: %v", err)
	}
	p.unready("store")
	server := startEtcd(t, at, t.TempDir())
	p.ready()
	if l, err := p.Tenants().List(t.Context()); err != nil || len(l) != 1 {
		t.Errorf("with the store: %v, %v", l, err)
	}
	if _, err := server.Client().Update(t.Context(), func(tx store.Tx) error {
		tables.Globals.Delete(tx, tables.GlobalKey{})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	p.unready("settings")
	p.stop()
}
