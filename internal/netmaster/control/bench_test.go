package control

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// BenchmarkCreateEndpoint creates endpoints in a /16 that has some already, on
// the in-memory store: what control itself costs.
func BenchmarkCreateEndpoint(b *testing.B) {
	for _, present := range []int{0, 5000, 20000} {
		for _, g := range []model.GroupName{"", "web"} {
			b.Run(fmt.Sprintf("present=%d/group=%s", present, g), func(b *testing.B) {
				c := newCluster(b)
				c.put(network("n", "10.0.0.0/8"), group("web", "n"))
				for i := range present {
					c.create(endpoint("n", fmt.Sprintf("p%d", i), inGroup(g)))
				}
				ctx := testContext(b)
				var n atomic.Int64
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, _, err := c.Endpoints.CreateEndpoint(ctx, Admin(), valid(endpoint("n", fmt.Sprintf("c%d", n.Add(1)), inGroup(g)))); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkLists reads 10,000 networks and a network's 10,000 endpoints.
func BenchmarkLists(b *testing.B) {
	c := newCluster(b)
	const many = 10000
	c.put(model.Global{VXLANs: model.TagRange{Lo: 1, Hi: 100000}}, network("n", "11.0.0.0/16"))
	for i := range many {
		c.put(network(fmt.Sprintf("n%d", i), fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)))
		c.create(endpoint("n", fmt.Sprintf("c%d", i)))
	}
	ctx := testContext(b)
	b.Run("networks", func(b *testing.B) {
		for b.Loop() {
			v, err := c.View(ctx)
			if err != nil || len(v.Networks.List("default")) != many+1 {
				b.Fatal(err)
			}
		}
	})
	b.Run("endpoints", func(b *testing.B) {
		for b.Loop() {
			v, err := c.View(ctx)
			if err != nil || len(v.Endpoints.OfNetwork(netKey("n"))) != many {
				b.Fatal(err)
			}
		}
	})
	b.Run("addresses", func(b *testing.B) {
		for b.Loop() {
			v, err := c.View(ctx)
			if err != nil || len(v.Addresses.Addresses(netKey("n"))) != many {
				b.Fatal(err)
			}
		}
	})
}
