package etcd

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/store"
)

// BenchmarkUpdate measures an Update shaped like the creation of an endpoint:
// eight keys prefetched and read, five created, one scope touched.
func BenchmarkUpdate(b *testing.B) {
	servers := []struct {
		name string
		addr func() string
	}{
		{"embedded", func() string {
			return strings.TrimPrefix(embedded(b, b.TempDir(), "127.0.0.1:0").Endpoint(), "http://")
		}},
		{"real", func() string { return realEtcd(b) }},
	}
	for _, server := range servers {
		addr := server.addr()
		raw(b, addr)
		for _, clients := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/clients=%d", server.name, clients), func(b *testing.B) {
				c := open(b, addr)
				defer c.Close()
				// GOMAXPROCS times parallelism goroutines: 8 on two cores with 4.
				if clients > 1 {
					b.SetParallelism(clients / 2)
				}
				run := time.Now().UnixNano()
				var n atomic.Int64
				body := func() error { return createLikeEndpoint(b, c, fmt.Sprintf("%d-%d", run, n.Add(1))) }
				if clients == 1 {
					for b.Loop() {
						if err := body(); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := body(); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

func createLikeEndpoint(b *testing.B, c *Client, id string) error {
	shared := []string{"global/config", "tenants/blue", "networks/n", "groups/g", "hosts/h"}
	made := []string{"endpoints/" + id, "addr4/" + id, "addr6/" + id, "names/" + id, "identity/" + id}
	_, err := c.Update(b.Context(), func(tx store.Tx) error {
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
