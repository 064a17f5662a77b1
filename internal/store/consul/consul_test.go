package consul

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// server starts a Consul on free ports and returns its address. more are arguments.
func server(t testing.TB, more ...string) string {
	t.Helper()
	path := os.Getenv("CONTIV_CONSUL")
	if path == "" {
		t.Skip("CONTIV_CONSUL names no Consul: make test-consul builds one")
	}
	ports := make([]string, 3)
	for i := range ports {
		var err error
		_, ports[i], err = net.SplitHostPort(storetest.FreePort(t))
		if err != nil {
			t.Fatal(err)
		}
	}
	storetest.Start(t, "Consul", path, append([]string{
		"agent", "-dev", "-node", "test", "-disable-host-node-id", "-bind", "127.0.0.1", "-client", "127.0.0.1",
		"-http-port", ports[0], "-server-port", ports[1], "-serf-lan-port", ports[2],
		"-serf-wan-port", "-1", "-dns-port", "-1", "-grpc-port", "-1",
	}, more...)...)
	return "127.0.0.1:" + ports[0]
}

func open(t testing.TB, addr string) *Client {
	t.Helper()
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
	for deadline := time.Now().Add(time.Minute); ; {
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
	if _, err := c.clients[0].KV().DeleteTree("", nil); err != nil {
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
			Backup:   func(t *testing.T) func() { t.Helper(); return backup(t, admin) },
			TTL:      2 * time.Second,
			Patience: 60 * time.Second,
		}
	})
}

// backup saves what a server has, and returns what restores it.
func backup(t testing.TB, c *Client) (restore func()) {
	t.Helper()
	snap, _, err := c.clients[0].Snapshot().Save(nil)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := io.ReadAll(snap)
	if err := errors.Join(err, snap.Close()); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := c.clients[0].Snapshot().Restore(nil, bytes.NewReader(saved)); err != nil {
			t.Fatal(err)
		}
	}
}

// skip makes the journal forget all but the newest commit.
func skip(t testing.TB, c *Client) {
	t.Helper()
	if _, err := c.clients[0].KV().DeleteTree(ownPrefix+"journal/", nil); err != nil {
		t.Fatal(err)
	}
}

// Endpoints are taken in every documented spelling; bad ones are refused with
// what is allowed.
func TestEndpointsAreParsedInEverySpelling(t *testing.T) {
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

// counted forwards connections to a server and counts what it sends.
func counted(t *testing.T, target string) (addr string, sent *atomic.Int64) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sent = &atomic.Int64{}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := new(net.Dialer).DialContext(t.Context(), "tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			running.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
			running.Go(func() { _, _ = io.Copy(io.MultiWriter(in, counter{sent}), out); _ = in.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	return l.Addr().String(), sent
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) { c.n.Add(int64(len(b))); return len(b), nil }

// One endpoint's change beside 20,000 others costs a mirror what it is, and comes as
// one batch.
func TestChangeCostsWhatItIs(t *testing.T) {
	addr := server(t)
	writer := open(t, addr)
	t.Cleanup(func() { _ = writer.Close() })
	ready(t, writer)
	value := make([]byte, 500)
	_, _ = rand.Read(value) // nothing that an answer could be compressed by
	put := func(keys ...string) store.Revision {
		t.Helper()
		rev, err := writer.Update(t.Context(), func(tx store.Tx) error {
			for _, k := range keys {
				tx.Put(store.Root+"state/"+k, value, nil)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	const some = 50
	for i := range 20000 / some {
		keys := make([]string, some)
		for j := range keys {
			keys[j] = fmt.Sprintf("endpoints/%05d", i*some+j)
		}
		put(keys...)
	}
	through, sent := counted(t, addr)
	c := openWith(t, Config{Endpoints: []string{through}})
	batches := make(chan store.Batch, 16)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Mirror(ctx, []string{store.Root + "state/"}, func(b store.Batch) error { batches <- b; return nil })
	}()
	t.Cleanup(func() { stop(); <-done; _ = c.Close() })
	if b := <-batches; len(b.Events) != 20000 {
		t.Fatalf("%d endpoints listed", len(b.Events))
	}
	put("endpoints/before") // what the list left unread on its connection is read now
	<-batches
	before := sent.Load()
	rev := put("endpoints/00007", "hosts/h1", "alloc/x")
	b := <-batches
	if b.Revision != rev || len(b.Events) != 3 {
		t.Errorf("at %d: %d events; want 3 at %d", b.Revision, len(b.Events), rev)
	}
	if n := sent.Load() - before; n > 10_000 {
		t.Errorf("one change cost %d bytes", n)
	} else {
		t.Logf("one change of three keys, 500 bytes each: %d bytes", n)
	}
}

// When the store is away from a lease's holder, the holder learns of the end before a
// waiting client does; and the end comes within its time and a little.
func TestHolderKnowsFirst(t *testing.T) {
	addr := server(t)
	other := open(t, addr)
	t.Cleanup(func() { _ = other.Close() })
	ready(t, other)
	proxy := storetest.NewProxy(t, addr)
	c := openWith(t, Config{Endpoints: []string{proxy.Addr()}})
	t.Cleanup(func() { _ = c.Close() })
	const ttl = 3 * time.Second
	s, err := c.NewSession(t.Context(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	key := store.Root + "lock"
	if _, err := c.Update(t.Context(), func(tx store.Tx) error { return tx.Create(key, []byte("me"), s) }); err != nil {
		t.Fatal(err)
	}
	proxy.Break()
	cut := time.Now()
	var known time.Time
	for gone := false; !gone; {
		kv, err := other.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-s.Done():
			if known.IsZero() {
				known = time.Now()
			}
		default:
		}
		gone = !kv.Exists()
	}
	if known.IsZero() {
		t.Error("another one saw the end of the session before its holder")
	}
	if took := time.Since(cut); took > ttl+2*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := s.Close(); err == nil {
		t.Error("close without a store: no error")
	}
}

// A mirror notices that its store was put back, although new commits have taken the places
// of the lost ones.
func TestMirrorNoticesARestoredStore(t *testing.T) {
	addr := server(t)
	c := open(t, addr)
	t.Cleanup(func() { _ = c.Close() })
	ready(t, c)
	put := func(k, v string) store.Revision {
		t.Helper()
		rev, err := c.Update(t.Context(), func(tx store.Tx) error { tx.Put(store.Root+"state/"+k, []byte(v), nil); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	put("a", "old")
	restore := backup(t, c)
	put("a", "new")
	last := put("b", "new")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	batches := make(chan store.Batch, 16)
	go func() {
		defer close(done)
		_ = c.Mirror(ctx, []string{store.Root + "state/"}, func(b store.Batch) error { batches <- b; return nil })
	}()
	t.Cleanup(func() { stop(); <-done })
	<-batches
	restore()
	for _, k := range []string{"c", "d", "e"} { // past where the mirror has been
		for {
			if _, err := c.Update(t.Context(), func(tx store.Tx) error { tx.Put(store.Root+"state/"+k, []byte("then"), nil); return nil }); err == nil {
				break
			} else if t.Context().Err() != nil {
				t.Fatal(err)
			}
		}
	}
	now, older := map[string]string{"a": "new", "b": "new"}, 0
	for now["a"] != "old" || now["b"] != "" || now["e"] != "then" {
		select {
		case b := <-batches:
			if b.Older {
				older++
			}
			for _, e := range b.Events {
				k := strings.TrimPrefix(e.KV.Key, store.Root+"state/")
				if now[k] = string(e.KV.Value); e.Deleted() {
					delete(now, k)
				}
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("the mirror has %v", now)
		}
	}
	if older != 1 {
		t.Errorf("%d lists are told as of an older state, with the store's index beyond %d", older, last)
	}
}

// An endpoint that is gone leaves it to the next, also for a write.
func TestRequestsGoToTheNextEndpoint(t *testing.T) {
	addr := server(t)
	c := openWith(t, Config{Endpoints: []string{storetest.FreePort(t), addr}})
	t.Cleanup(func() { _ = c.Close() })
	ready(t, c)
	if _, err := c.Update(t.Context(), func(tx store.Tx) error { tx.Put(store.Root+"x", nil, nil); return nil }); err != nil {
		t.Error(err)
	}
	servers := c.Servers(t.Context())
	if len(servers) != 2 || servers[0].Err == nil || servers[1].Err != nil || !servers[1].Leads || !strings.HasPrefix(servers[1].Version, "1.") {
		t.Errorf("servers: %+v", servers)
	}
	if at, err := c.Addresses(t.Context()); err != nil || !slices.Contains(at, addr) || len(at) != 3 {
		t.Errorf("addresses: %v, %v", at, err)
	}
}

// Keys of several transactions are read as of one moment, while others commit.
func TestManyKeysOfOneMoment(t *testing.T) {
	addr := server(t)
	c, writer := open(t, addr), open(t, addr)
	t.Cleanup(func() { _ = errors.Join(c.Close(), writer.Close()) })
	ready(t, c)
	const many = 3 * maxOps
	keys := make([]string, many)
	for i := range keys {
		keys[i] = fmt.Sprintf("%sstate/%03d", store.Root, i)
	}
	write := func(n int) error {
		_, err := writer.Update(t.Context(), func(tx store.Tx) error {
			tx.Put(keys[0], fmt.Append(nil, n), nil)
			tx.Put(keys[many-1], fmt.Append(nil, n), nil)
			return nil
		})
		return err
	}
	if err := write(0); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for n := 1; n <= 200 && err == nil; n++ {
			err = write(n)
		}
		done <- err
	}()
	for running := true; running; {
		select {
		case err := <-done:
			if running = false; err != nil {
				t.Fatal(err)
			}
		default:
		}
		kvs, _, err := c.ReadKeys(t.Context(), 0, keys)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := string(kvs[0].Value), string(kvs[many-1].Value); a != b || len(kvs) != many {
			t.Fatalf("of %d keys the first is of write %s, the last of %s", len(kvs), a, b)
		}
	}
}

// Endpoints of two Consuls: nothing is read or written by way of them, until one is gone.
func TestEndpointsOfTwoStoresAreNotUsed(t *testing.T) {
	t.Parallel()
	addrs := []string{server(t), server(t)}
	proxy := storetest.NewProxy(t, addrs[1])
	for i, addr := range addrs {
		c := open(t, addr)
		ready(t, c)
		v, err := store.EncodeRecord(1, store.Incarnation{ID: fmt.Sprint("x", i), Generation: 1})
		if err == nil {
			_, err = c.Update(t.Context(), func(tx store.Tx) error { tx.Put(store.StoreIdentityKey, v, nil); return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	c := openWith(t, Config{Endpoints: []string{addrs[0], proxy.Addr()}})
	t.Cleanup(func() { _ = c.Close() })
	_, rerr := c.Get(t.Context(), store.Root+"x")
	_, werr := c.Update(t.Context(), func(tx store.Tx) error { tx.Put(store.Root+"x", []byte("x"), nil); return nil })
	for what, err := range map[string]error{"read": rerr, "write": werr} {
		if !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "of store x1") || !strings.Contains(err.Error(), "--consul-endpoints") {
			t.Errorf("%s: %v", what, err)
		}
	}
	proxy.Break()
	ready(t, c)
}
