package etcd

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// withoutPings is a client that gRPC never tells of a server that stands still.
func withoutPings(t *testing.T, endpoints ...string) *Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(cli, clientv3.RetryKVClient(cli), pb.NewWatchClient(cli.ActiveConnection()), strings.Join(endpoints, ", "), Config{Logger: quiet()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// delivers starts a mirror of state/ and returns the values that it delivers, and what
// ends it.
func delivers(ctx context.Context, c *Client, gap func(error)) (seen chan string, end func()) {
	seen = make(chan string, 64)
	mctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Mirror(mctx, []string{store.Root + "state/"}, func(b store.Batch) error {
			for _, e := range b.Events {
				seen <- string(e.KV.Value)
			}
			return nil
		}, store.OnState(func(err error) {
			if err != nil && mctx.Err() == nil {
				gap(err)
			}
		}))
	}()
	return seen, func() { stop(); <-ended }
}

// follows starts a mirror of state/ and returns a function that waits until it has
// delivered a key.
func follows(ctx context.Context, t *testing.T, c *Client) (until func(name string)) {
	t.Helper()
	seen, end := delivers(ctx, c, func(error) {})
	t.Cleanup(end)
	return func(name string) {
		t.Helper()
		for {
			select {
			case got := <-seen:
				if got == name {
					return
				}
			case <-ctx.Done():
				t.Fatalf("the mirror does not deliver %s", name)
			}
		}
	}
}

// words counts the answers to questions for a word.
type words struct {
	pb.WatchClient
	heard chan struct{}
}

func (w words) Watch(ctx context.Context, opts ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	stream, err := w.WatchClient.Watch(ctx, opts...)
	return counted{stream, w.heard}, err
}

type counted struct {
	pb.Watch_WatchClient
	heard chan struct{}
}

func (s counted) Recv() (*pb.WatchResponse, error) {
	resp, err := s.Watch_WatchClient.Recv()
	if err == nil && resp.Created && resp.Canceled {
		select {
		case s.heard <- struct{}{}:
		default:
		}
	}
	return resp, err
}

// A server on which nothing happens answers the question for a word, once written to or
// not, and delivers what comes after it once.
func TestQuietServerAnswersTheHealthQuestion(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name  string
		start func(t *testing.T) string
	}{
		{"embedded", func(t *testing.T) string { t.Helper(); return embedded(t, t.TempDir(), "127.0.0.1:0").endpoint }},
		{"real", func(t *testing.T) string { t.Helper(); return "http://" + realEtcd(t) }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			endpoint := kind.start(t)
			raw(t, endpoint)
			c := withoutPings(t, endpoint, strings.Replace(endpoint, "127.0.0.1", "localhost", 1))
			heard := make(chan struct{})
			c.watch = words{c.watch, heard}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			told, end := delivers(ctx, c, func(err error) { t.Errorf("the mirror has a gap: %v", err) })
			defer end()
			for _, name := range []string{"a", "b", "c"} {
				select {
				case <-heard:
				case <-ctx.Done():
					t.Fatalf("before %s: no word", name)
				}
				if err := write(ctx, c, name); err != nil {
					t.Fatal(err)
				}
				select {
				case got := <-told:
					if got != name {
						t.Errorf("told of %s, want %s", got, name)
					}
				case <-ctx.Done():
					t.Fatalf("not told of %s", name)
				}
			}
		})
	}
}

// on are the addresses of the servers on which mirrors wait.
func (c *Client) on() []string {
	c.health.mu.Lock()
	defer c.health.mu.Unlock()
	var on []string
	for addr := range c.health.by {
		on = append(on, addr)
	}
	return on
}

// Mirrors on a server that stands still go on by another, it is asked nothing until it
// answers, and is shown among the servers meanwhile; no server is given up while all
// stand still, and none that answers.
func TestMirrorsLeaveAStalledServer(t *testing.T) {
	t.Parallel()
	s := embedded(t, t.TempDir(), "127.0.0.1:0")
	direct := open(t, s.endpoint)
	t.Cleanup(func() { _ = direct.Close() })
	proxies := map[string]*storetest.Proxy{}
	var endpoints []string
	for range 2 {
		p := storetest.NewProxy(t, strings.TrimPrefix(s.endpoint, "http://"))
		proxies[p.Addr()] = p
		endpoints = append(endpoints, "http://"+p.Addr())
	}
	c := withoutPings(t, endpoints...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := write(ctx, direct, "before"); err != nil {
		t.Fatal(err)
	}
	mirrors := []func(string){follows(ctx, t, c), follows(ctx, t, c), follows(ctx, t, c)}
	all := func(name string) {
		t.Helper()
		if err := write(ctx, direct, name); err != nil {
			t.Fatal(err)
		}
		for _, until := range mirrors {
			until(name)
		}
	}
	asks := func(what string, want ...string) {
		t.Helper()
		for !slices.Equal(c.etcd.Endpoints(), want) {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("%s: asks %v, want %v", what, c.etcd.Endpoints(), want)
			}
		}
	}
	all("well")
	for len(c.on()) == 0 { // the list may have had it
		all("well")
	}
	on := c.on()[0]
	other := slices.DeleteFunc(slices.Clone(endpoints), func(e string) bool { return e == "http://"+on })
	proxies[on].Stall()
	all("still")
	asks("one stands still", other...)
	if got := c.Servers(ctx); len(got) != 2 {
		t.Errorf("servers: %+v", got)
	}
	c.SetEndpoints(endpoints)
	asks("set anew while one stands still", other...)
	proxies[on].Release()
	asks("it goes on", endpoints...)
	all("again")
	for _, p := range proxies {
		p.Stall()
	}
	if got := c.health.stalledOf(ctx, endpoints); len(got) != 2 {
		t.Errorf("both stand still: %v", got)
	}
	if c.health.anyStalled(ctx) {
		t.Error("all stand still, and one is given up")
	}
	asks("both stand still", endpoints...)
	for _, p := range proxies {
		p.Release()
	}
	all("both again")
}
