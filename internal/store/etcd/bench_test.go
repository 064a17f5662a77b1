package etcd

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
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
func follower(b *testing.B, c store.Store) (f *store.Follower, stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	f = store.NewFollower(c, []string{tables.StatePrefix}, func(store.Batch) error { return nil })
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

// BenchmarkFanOut creates like an endpoint's creation, 8 at a time, what n
// mirrors follow, each over a connection of its own as agents do: what each of
// them costs the server and itself, all in one process.
func BenchmarkFanOut(b *testing.B) {
	server := embedded(b, b.TempDir(), "127.0.0.1:0")
	for _, n := range []int{0, 5, 25} {
		b.Run(fmt.Sprintf("mirrors=%d", n), func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			var mirrors, listed sync.WaitGroup
			listed.Add(n)
			var seen atomic.Int64
			for range n {
				c := open(b, strings.TrimPrefix(server.Endpoint(), "http://"))
				defer c.Close()
				mirrors.Go(func() {
					_ = c.Mirror(ctx, []string{store.Root + "state/endpoints/"}, func(batch store.Batch) error {
						if batch.Snapshot {
							listed.Done()
						} else {
							seen.Add(int64(len(batch.Events)))
						}
						return nil
					}) // ends with the context
				})
			}
			c := server.Client()
			f, stop := follower(b, c)
			listed.Wait()
			b.ResetTimer()
			begin := stats.ProcessorTime(syscall.RUSAGE_SELF)
			benchmarkUpdate(b, 8, f.Update)
			for seen.Load() < int64(n*b.N) {
				runtime.Gosched()
			}
			b.ReportMetric(float64((stats.ProcessorTime(syscall.RUSAGE_SELF)-begin).Microseconds())/float64(b.N), "cpu-us/op")
			stop()
			cancel()
			mirrors.Wait()
			_ = c.Close() // the server lives on
		})
	}
}

// BenchmarkFreshReads measures reads from a view that must hold all that was
// acknowledged before, on an etcd process, by how many readers there are, and
// how many reads of the store they took; alone is each with a read of its own.
func BenchmarkFreshReads(b *testing.B) {
	addr := realEtcd(b)
	raw(b, addr)
	c := &counting{Client: open(b, addr)}
	defer c.Close()
	f, stop := follower(b, c)
	defer stop()
	alone := func(ctx context.Context) (store.Revision, error) {
		rev, _, err := c.Position(ctx)
		if err != nil {
			return 0, err
		}
		return rev, f.WaitFor(ctx, rev)
	}
	for _, readers := range []int{1, 8, 64} {
		for _, how := range []struct {
			name string
			read func(context.Context) (store.Revision, error)
		}{{"alone", alone}, {"shared", f.Fresh}} {
			b.Run(fmt.Sprintf("readers=%d/%s", readers, how.name), func(b *testing.B) {
				c.n.Store(0)
				begin := stats.ProcessorTime(syscall.RUSAGE_SELF)
				var left atomic.Int64
				var wg sync.WaitGroup
				left.Store(int64(b.N))
				for range readers {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							if _, err := how.read(b.Context()); err != nil {
								b.Error(err)
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64((stats.ProcessorTime(syscall.RUSAGE_SELF)-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
				b.ReportMetric(float64(c.n.Load())/float64(b.N), "store-reads/op")
			})
		}
	}
}

type counting struct {
	*Client
	n atomic.Int64
}

func (c *counting) Position(ctx context.Context) (last, now store.Revision, err error) {
	c.n.Add(1)
	return c.Client.Position(ctx)
}
