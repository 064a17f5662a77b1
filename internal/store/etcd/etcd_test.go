package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"
	"go.uber.org/zap/zapcore"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// The client passes the suite on the embedded server.
func TestEmbeddedConformance(t *testing.T) {
	conformance(t, strings.TrimPrefix(embedded(t, t.TempDir(), "127.0.0.1:0").Endpoint(), "http://"))
}

// The client inside the embedded server's process passes the suite.
func TestInProcessConformance(t *testing.T) {
	s := embedded(t, t.TempDir(), "127.0.0.1:0")
	inside := func(*testing.T) store.Store { return s.Client() }
	conformanceWith(t, strings.TrimPrefix(s.Endpoint(), "http://"), func(h storetest.Harness) storetest.Harness {
		h.Open, h.Direct, h.Break, h.Heal = inside, inside, nil, nil
		return h
	})
}

// The client passes the suite on a real etcd process.
func TestRealConformance(t *testing.T) { conformance(t, realEtcd(t)) }

// server is an etcd inside this process.
type server struct {
	etcd     *embed.Etcd
	endpoint string
	once     sync.Once
}

func (s *server) Endpoint() string { return s.endpoint }
func (s *server) Client() *Client  { return Inside(s.etcd.Server, s.endpoint, quiet()) }
func (s *server) Close()           { s.once.Do(s.etcd.Close) }

func embedded(t testing.TB, dir, listen string, adjust ...func(*embed.Config)) *server {
	t.Helper()
	testenv.SkipShort(t)
	if listen == "127.0.0.1:0" {
		listen = storetest.FreePort(t)
	}
	c := embed.NewConfig()
	c.Dir, c.ListenPeerUrls = dir, nil
	u := url.URL{Scheme: "http", Host: listen}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{u}, []url.URL{u}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(NewZap(quiet(), zapcore.WriteThenPanic))
	for _, a := range adjust {
		a(c)
	}
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{etcd: e, endpoint: u.String()}
	t.Cleanup(s.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-t.Context().Done():
		t.Fatal("etcd does not get ready")
	}
	return s
}

// realEtcd starts the installed etcd on free ports and returns its address.
func realEtcd(t testing.TB) string {
	t.Helper()
	testenv.SkipShort(t)
	path, err := exec.LookPath("etcd")
	if err != nil {
		if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
			t.Fatal("etcd is not installed: apt-get install etcd-server")
		}
		t.Skip("etcd is not installed: apt-get install etcd-server")
	}
	client, peer := storetest.FreePort(t), storetest.FreePort(t)
	storetest.Start(t, "etcd", path, "--name", "s-test", "--data-dir", t.TempDir(),
		"--listen-client-urls", "http://"+client, "--advertise-client-urls", "http://"+client,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer,
		"--initial-cluster", "s-test=http://"+peer)
	return client
}

func open(t testing.TB, addr string) *Client {
	t.Helper()
	c, err := New(Config{Endpoints: []string{addr}, Timeout: DefaultTimeout, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// raw is a plain etcd client, to do what a Store cannot.
func raw(t testing.TB, addr string) *clientv3.Client {
	t.Helper()
	c := open(t, addr)
	t.Cleanup(func() { _ = c.Close() })
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := c.Get(t.Context(), "x"); err == nil {
			return c.etcd
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func conformance(t *testing.T, addr string) {
	t.Helper()
	conformanceWith(t, addr, func(h storetest.Harness) storetest.Harness { return h })
}

func conformanceWith(t *testing.T, addr string, adjust func(storetest.Harness) storetest.Harness) {
	t.Helper()
	admin := raw(t, addr)
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		t.Helper()
		if _, err := admin.Delete(t.Context(), "\x00", clientv3.WithFromKey()); err != nil {
			t.Fatal(err)
		}
		proxy := storetest.NewProxy(t, addr)
		return adjust(storetest.Harness{
			Can:    (&Client{}).Capabilities(),
			Open:   func(t *testing.T) store.Store { t.Helper(); return open(t, proxy.Addr()) },
			Direct: func(t *testing.T) store.Store { t.Helper(); return open(t, addr) },
			Break:  func(*testing.T) { proxy.Break() },
			Heal:   func(*testing.T) { proxy.Heal() },
			Compact: func(t *testing.T) {
				t.Helper()
				resp, err := admin.Get(t.Context(), "x")
				if err == nil {
					_, err = admin.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical())
				}
				if err != nil {
					t.Fatal(err)
				}
			},
			TTL:      4 * time.Second, // etcd grants 2, and then loses sessions on a busy machine
			Patience: 60 * time.Second,
		})
	})
}

// Endpoints are taken in every documented spelling; bad ones are refused with
// what is allowed.
func TestEndpointsAreParsedInEverySpelling(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"http://127.0.0.1:2379", "[http://127.0.0.1:2379] <nil>"},
		{"etcd://10.0.0.1:2379,10.0.0.2:2379", "[http://10.0.0.1:2379 http://10.0.0.2:2379] <nil>"},
		{"https://[fd00::1]:2379/", "[https://[fd00::1]:2379] <nil>"},
		{"", `[] etcd-endpoints "": must be http://host:port, https://host:port or etcd://host:port`},
		{"http://127.0.0.1", `[] etcd-endpoints "http://127.0.0.1": must be http://host:port, https://host:port or etcd://host:port`},
		{"http://127.0.0.1:99999", `[] etcd-endpoints "http://127.0.0.1:99999": must be http://host:port with a port between 1 and 65535`},
		{"127.0.0.1:0", `[] etcd-endpoints "127.0.0.1:0": must be http://host:port with a port between 1 and 65535`},
		{"etcd://[::1]:65536", `[] etcd-endpoints "etcd://[::1]:65536": must be http://host:port with a port between 1 and 65535`},
		{"https://h:65535,https://h:1", "[https://h:65535 https://h:1] <nil>"},
		{"consul://h:1", `[] etcd-endpoints "consul://h:1": must be http://host:port, https://host:port or etcd://host:port`},
		{"http://h:1/path", `[] etcd-endpoints "http://h:1/path": must be http://host:port, https://host:port or etcd://host:port`},
		{"http://h:1,https://h:2", `[] etcd-endpoints "http://h:1,https://h:2": must be all http or all https`},
	} {
		got, err := ParseEndpoints(strings.Split(test.in, ","))
		if got := fmt.Sprint(got, " ", err); got != test.want {
			t.Errorf("%q: got %s, want %s", test.in, got, test.want)
		}
	}
}

// Data outlive a restart, and a mirror survives it.
func TestMirrorsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	s := embedded(t, dir, "127.0.0.1:0")
	addr := strings.TrimPrefix(s.Endpoint(), "http://")
	c := open(t, addr)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	put := func(value string) {
		t.Helper()
		if _, err := c.Update(ctx, func(tx store.Tx) error {
			tx.Put("/contiv.io/state/x", []byte(value), nil)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	put("1")
	seen := make(chan string)
	mctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- c.Mirror(mctx, []string{"/contiv.io/state/"}, func(b store.Batch) error {
			for _, e := range b.Events {
				text := string(e.KV.Value)
				if e.Deleted() {
					text = "gone"
				}
				select {
				case seen <- text:
				case <-ctx.Done():
				}
			}
			return nil
		})
	}()
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != want {
				t.Errorf("mirror delivered %s, want %s", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("mirror did not deliver %s", want)
		}
	}
	expect("1")
	for _, data := range []struct{ dir, before string }{{dir, ""}, {t.TempDir(), "gone"}} {
		s.Close()
		s = embedded(t, data.dir, addr)
		if data.before != "" {
			expect(data.before) // another etcd with other data: the difference
		}
		put("2" + data.before)
		expect("2" + data.before)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the mirror ended with %v", err)
	}
}
