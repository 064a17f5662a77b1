package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// write is an Update of one key.
func write(ctx context.Context, c *Client, name string) error {
	_, err := c.Update(ctx, func(tx store.Tx) error { tx.Put(store.Root+"state/"+name, []byte(name), nil); return nil })
	return err
}

// says reports whether an error is one that passes, and has the words.
func says(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q lacks %q", what, err, w)
		}
	}
}

// An etcd that is full, one whose members differ, and one whose access control knows
// nothing of this client say what to do; what may still be read is read.
func TestRefusingEtcdSaysWhatToDo(t *testing.T) {
	s := embedded(t, t.TempDir(), "127.0.0.1:0", func(c *embed.Config) { c.QuotaBackendBytes = 1 << 20 })
	admin := raw(t, s.endpoint)
	c, inside := open(t, s.endpoint), s.Client()
	t.Cleanup(func() { _ = c.Close(); _ = inside.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := write(ctx, c, "before"); err != nil {
		t.Fatal(err)
	}
	mirrored := make(chan store.Batch, 16)
	mctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Mirror(mctx, []string{store.Root + "state/"}, func(b store.Batch) error { mirrored <- b; return nil })
	}()
	defer func() { stop(); <-done }()
	<-mirrored
	alarm := func(action pb.AlarmRequest_AlarmAction, which pb.AlarmType) {
		t.Helper()
		if _, err := pb.NewMaintenanceClient(admin.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{Action: action, Alarm: which}); err != nil {
			t.Fatal(err)
		}
	}
	readable := func(what string) {
		t.Helper()
		if kv, err := c.Get(ctx, store.Root+"state/before"); err != nil || !kv.Exists() {
			t.Errorf("%s: %+v, %v", what, kv, err)
		}
	}
	alarm(pb.AlarmRequest_ACTIVATE, pb.AlarmType_NOSPACE)
	says(t, "full", write(ctx, c, "full"), "is full and takes no writes", "compact and defragment", s.endpoint)
	says(t, "full, one's own", write(ctx, inside, "full"), "is full and takes no writes", "netctl cluster relieve")
	alarms := func(c *Client, want ...string) {
		t.Helper()
		if got := c.Servers(ctx)[0].Alarms; !slices.Equal(got, want) {
			t.Errorf("alarms are %q, want %q", got, want)
		}
	}
	alarms(c, model.AlarmFull)
	alarms(inside, model.AlarmEmbeddedFull)
	readable("full")
	alarm(pb.AlarmRequest_DEACTIVATE, pb.AlarmType_NOSPACE)
	alarm(pb.AlarmRequest_ACTIVATE, pb.AlarmType_CORRUPT)
	says(t, "corrupt", write(ctx, c, "corrupt"), "data of its members differ", "restore a backup")
	alarms(c, model.AlarmCorrupt)
	alarm(pb.AlarmRequest_DEACTIVATE, pb.AlarmType_CORRUPT)
	if err := write(ctx, c, "after"); err != nil {
		t.Errorf("when the alarms are gone: %v", err)
	}
	for seen := false; !seen; {
		select {
		case b := <-mirrored:
			for _, e := range b.Events {
				seen = seen || strings.HasSuffix(e.KV.Key, "/after")
			}
		case <-ctx.Done():
			t.Fatal("the mirror does not go on")
		}
	}
	_, err1 := admin.UserAdd(ctx, "root", "secret")
	_, err2 := admin.UserGrantRole(ctx, "root", "root")
	_, err3 := admin.AuthEnable(ctx)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	says(t, "a stranger's write", write(ctx, c, "stranger"), "refuses this client", "keys that begin with /contiv.io/")
	_, err := c.Get(ctx, store.Root+"state/before")
	says(t, "a stranger's read", err, "refuses this client")
}

// With endpoints of two etcds nothing is done, what was answered before is in one of
// them, and it goes on when all who answer are of one, be it another than before.
func TestEndpointsOfTwoClustersAreNotUsed(t *testing.T) {
	named := func(token string) func(*embed.Config) {
		return func(c *embed.Config) { c.InitialClusterToken = token }
	}
	a, b := embedded(t, t.TempDir(), "127.0.0.1:0", named("a")), embedded(t, t.TempDir(), "127.0.0.1:0", named("b"))
	c, err := New(Config{Endpoints: []string{a.endpoint, b.endpoint}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var answered []string
	for n := range 24 { // requests go to both in turn
		name := fmt.Sprint("x", n)
		if err := write(ctx, c, name); err == nil {
			answered = append(answered, name)
		} else if n > 16 {
			says(t, name, err, "servers of different clusters", a.endpoint, b.endpoint, "--etcd-endpoints")
		}
	}
	in := map[string]int{}
	for _, s := range []*server{a, b} {
		got, err := raw(t, s.endpoint).Get(ctx, store.Root+"state/x", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range got.Kvs {
			for _, name := range answered {
				if string(kv.Value) == name {
					in[s.endpoint]++
				}
			}
		}
	}
	if len(in) > 1 || in[a.endpoint]+in[b.endpoint] != len(answered) {
		t.Errorf("%d writes were answered, and are here: %v", len(answered), in)
	}
	_, err = c.Get(ctx, "x")
	says(t, "a read", err, "servers of different clusters")
	why := make(chan error, 1)
	mctx, stop := context.WithCancel(ctx)
	_ = c.Mirror(mctx, []string{store.Root}, func(store.Batch) error { return nil }, store.OnState(func(err error) {
		select {
		case why <- err:
		default:
		}
		stop()
	}))
	says(t, "a mirror", <-why, "servers of different clusters")
	works := func(what string) {
		t.Helper()
		for {
			err := write(ctx, c, "later")
			if err == nil {
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	b.Close()
	works("the other one is stopped")
	a.Close()
	embedded(t, t.TempDir(), strings.TrimPrefix(a.endpoint, "http://"), named("c"))
	works("a new one in its place")
}

// Two etcds that were started with one address for peers, as by default, have one id of
// the cluster: what is written first, the store's identity, tells them apart, and nothing
// is answered that is not in the store that has it; nor by one that each has an identity.
func TestTwoOfOneID(t *testing.T) {
	t.Parallel()
	a, b := embedded(t, t.TempDir(), "127.0.0.1:0"), embedded(t, t.TempDir(), "127.0.0.1:0")
	ra, rb := raw(t, a.endpoint), raw(t, b.endpoint)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if x, y := a.etcd.Server.Cluster().ID(), b.etcd.Server.Cluster().ID(); x != y {
		t.Fatalf("they have two ids, %s and %s", x, y)
	}
	both := func() *Client {
		t.Helper()
		c, err := New(Config{Endpoints: []string{a.endpoint, b.endpoint}, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	identify := func(c *Client, id string) {
		t.Helper()
		v, err := store.EncodeRecord(1, store.Incarnation{ID: id, Generation: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Update(ctx, func(tx store.Tx) error { tx.Put(store.StoreIdentityKey, v, nil); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	c := both()
	identify(c, "x")
	for n := range 4 {
		says(t, "a write", write(ctx, c, fmt.Sprint("w", n)), "servers of different stores", "of store x", "of one without identity", "--etcd-endpoints")
	}
	_, err := c.Get(ctx, "x")
	says(t, "a read", err, "servers of different stores")
	for _, r := range []*clientv3.Client{ra, rb} {
		if got, err := r.Get(ctx, store.Root+"state/w", clientv3.WithPrefix()); err != nil || len(got.Kvs) > 0 {
			t.Errorf("one has %v, %v", got.Kvs, err)
		}
	}
	for i, s := range []*server{a, b} {
		one := open(t, s.endpoint)
		identify(one, fmt.Sprint("of ", i))
		_ = one.Close()
	}
	_, err = both().Get(ctx, "x")
	says(t, "a first read", err, "of store of 0", "of store of 1")
	b.Close()
	for err = errors.New("not asked"); err != nil; _, err = c.Get(ctx, "x") {
		if ctx.Err() != nil {
			t.Fatalf("one is stopped: %v", err)
		}
	}
}
