package consul

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// binary is Consul's server: CONTIV_CONSUL, else what tools/consul builds, which
// takes some minutes the first time.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("CONTIV_CONSUL"); path != "" {
		return path, nil
	}
	cmd := exec.Command("go", "tool", "-modfile="+filepath.Join("..", "..", "..", "tools", "consul", "go.mod"), "-n", "consul")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
})

// server starts a Consul on free ports and returns its address. more are arguments.
func server(t testing.TB, more ...string) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatalf("build Consul: %v", err)
	}
	ports := make([]string, 3)
	for i := range ports {
		_, ports[i], err = net.SplitHostPort(freePort(t))
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	// It ends in Cleanup, after those that use it.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), path, append([]string{
		"agent", "-dev", "-node", "test", "-disable-host-node-id", "-bind", "127.0.0.1", "-client", "127.0.0.1",
		"-http-port", ports[0], "-server-port", ports[1], "-serf-lan-port", ports[2],
		"-serf-wan-port", "-1", "-dns-port", "-1", "-grpc-port", "-1",
	}, more...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("Consul said:\n%s", text[max(0, len(text)-4000):])
		}
	})
	return "127.0.0.1:" + ports[0]
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func open(t testing.TB, addr string) *Client {
	return openWith(t, Config{Endpoints: []string{addr}, Reap: true})
}

func openWith(t testing.TB, cfg Config) *Client {
	t.Helper()
	cfg.Timeout, cfg.Logger = 2*time.Second, quiet()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ready waits until a server serves.
func ready(t testing.TB, c *Client) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		if _, err := c.Get(t.Context(), store.Root+"x"); err == nil {
			return
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// empty deletes all that a server keeps, as an operator would.
func empty(t testing.TB, c *Client) {
	t.Helper()
	if _, err := c.apis[0].KV().DeleteTree("", nil); err != nil {
		t.Fatal(err)
	}
}

// The client passes the suite on a real Consul.
func TestConformance(t *testing.T) {
	addr := server(t)
	admin := openWith(t, Config{Endpoints: []string{addr}})
	t.Cleanup(func() { _ = admin.Close() })
	ready(t, admin)
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		t.Helper()
		empty(t, admin)
		proxy := storetest.NewProxy(t, addr)
		return storetest.Harness{
			Can:    admin.Capabilities(),
			Open:   func(t *testing.T) store.Store { t.Helper(); return open(t, proxy.Addr()) },
			Direct: func(t *testing.T) store.Store { t.Helper(); return open(t, addr) },
			Break:  func(*testing.T) { proxy.Break() },
			Heal:   func(*testing.T) { proxy.Heal() },
			Compact: func(t *testing.T) { // more commits than the journal keeps
				t.Helper()
				c := openWith(t, Config{Endpoints: []string{addr}})
				defer func() { _ = c.Close() }()
				skip(t, c)
			},
			TTL:      2 * time.Second,
			Patience: 60 * time.Second,
		}
	})
}

// skip makes the journal forget all but the newest commit.
func skip(t testing.TB, c *Client) {
	t.Helper()
	if _, err := c.apis[0].KV().DeleteTree(own+"journal/", nil); err != nil {
		t.Fatal(err)
	}
}

// Endpoints are taken in every documented spelling; bad ones are refused with
// what is allowed.
func TestParseEndpoints(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"http://127.0.0.1:8500", "[http://127.0.0.1:8500] <nil>"},
		{"consul://10.0.0.1:8500,10.0.0.2:8500", "[http://10.0.0.1:8500 http://10.0.0.2:8500] <nil>"},
		{"https://[fd00::1]:8501/", "[https://[fd00::1]:8501] <nil>"},
		{"", `[] consul-endpoints "": must be http://host:port, https://host:port or consul://host:port`},
		{"http://127.0.0.1:99999", `[] consul-endpoints "http://127.0.0.1:99999": must be http://host:port with a port between 1 and 65535`},
		{"etcd://h:1", `[] consul-endpoints "etcd://h:1": must be http://host:port, https://host:port or consul://host:port`},
		{"http://h:1,https://h:2", `[] consul-endpoints "http://h:1,https://h:2": must be all http or all https`},
	} {
		got, err := ParseEndpoints(strings.Split(test.in, ","))
		if got := fmt.Sprint(got, " ", err); got != test.want {
			t.Errorf("%q: got %s, want %s", test.in, got, test.want)
		}
	}
}
