package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/store"
)

// BenchmarkUpdate measures an Update shaped like the creation of an endpoint:
// five keys prefetched and read, five created, one scope touched, while a
// Follower keeps a view as in netmaster. near reads from the Follower's memory.
func BenchmarkUpdate(b *testing.B) {
	inside := embedded(b, b.TempDir(), "127.0.0.1:0")
	server := realEtcd(b)
	raw(b, server)
	for _, client := range []struct {
		name string
		open func() *Client
	}{
		{"inside", inside.Client},
		{"embedded", func() *Client { return open(b, strings.TrimPrefix(inside.Endpoint(), "http://")) }},
		{"process", func() *Client { return open(b, server) }},
	} {
		for _, near := range []bool{false, true} {
			for _, clients := range []int{1, 8} {
				b.Run(fmt.Sprintf("%s/near=%v/clients=%d", client.name, near, clients), func(b *testing.B) {
					c := client.open()
					defer c.Close()
					f, stop := follower(b, c)
					defer stop()
					update := c.Update
					if near {
						update = f.Update
					}
					b.ResetTimer()
					benchmarkUpdate(b, clients, update)
				})
			}
		}
	}
}

// follower runs a Follower of all state.
func follower(b *testing.B, c *Client) (f *store.Follower, stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	f = store.NewFollower(c, []string{store.StatePrefix}, func(store.Batch) error { return nil })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = f.Run(ctx) // ends with the context
	}()
	if _, err := f.Fresh(ctx); err != nil {
		b.Fatal(err)
	}
	return f, func() { cancel(); <-ended }
}

func benchmarkUpdate(b *testing.B, clients int, update func(context.Context, func(store.Tx) error) (store.Revision, error)) {
	b.Helper()
	run := time.Now().UnixNano()
	var n atomic.Int64
	body := func() error { return createLikeEndpoint(b, update, fmt.Sprintf("%d-%d", run, n.Add(1))) }
	if clients == 1 {
		for b.Loop() {
			if err := body(); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	b.SetParallelism(clients / 2) // times GOMAXPROCS, which is two here
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := body(); err != nil {
				b.Error(err)
			}
		}
	})
}

func createLikeEndpoint(b *testing.B, update func(context.Context, func(store.Tx) error) (store.Revision, error), id string) error {
	b.Helper()
	shared := []string{"global/config", "tenants/blue", "networks/n", "groups/g", "hosts/h"}
	made := []string{"endpoints/" + id, "addr4/" + id, "addr6/" + id, "names/" + id, "identity/" + id}
	_, err := update(b.Context(), func(tx store.Tx) error {
		var keys []string
		for _, k := range shared {
			keys = append(keys, store.Root+"state/"+k)
		}
		if err := tx.Prefetch(keys...); err != nil {
			return err
		}
		for _, k := range keys {
			if _, err := tx.Get(k); err != nil {
				return err
			}
		}
		for _, k := range made {
			if err := tx.Create(store.Root+"state/"+k, make([]byte, 300), nil); err != nil {
				return err
			}
		}
		tx.Touch(store.Root + "state/addr4/")
		return nil
	})
	return err
}

// BenchmarkCommitRevision measures what makes a read from a view consistent.
func BenchmarkCommitRevision(b *testing.B) {
	addr := strings.TrimPrefix(embedded(b, b.TempDir(), "127.0.0.1:0").Endpoint(), "http://")
	raw(b, addr)
	c := open(b, addr)
	defer c.Close()
	for b.Loop() {
		if _, err := c.CommitRevision(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
