//go:build integration

package slice

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/contiv/netplugin/v2/internal/store"
	storeconsul "github.com/contiv/netplugin/v2/internal/store/consul"
)

// put writes keys into the cluster's store, whichever it is, as a program of the
// cluster would.
func (c *cluster) put(keys map[string]string) {
	c.t.Helper()
	ctx := c.t.Context()
	if *consul == "" {
		etcd, err := c.Store.Etcd(ctx)
		if err != nil {
			c.t.Fatal(err)
		}
		defer etcd.Close()
		for k, v := range keys {
			if _, err := etcd.Put(ctx, k, v); err != nil {
				c.t.Fatal(err)
			}
		}
		return
	}
	st, err := storeconsul.New(storeconsul.Config{Endpoints: []string{"http://" + c.relay(strings.TrimPrefix(c.Store.StoreURL(), "http://"))}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		c.t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Update(ctx, func(tx store.Tx) error {
		for k, v := range keys {
			tx.Put(k, []byte(v), nil)
		}
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
}

// relay leads a port of this machine's loopback to an address that the master's
// namespace reaches, for clients that choose no namespace, until the test ends.
func (c *cluster) relay(to string) string {
	c.t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	var running sync.WaitGroup
	c.t.Cleanup(func() {
		cancel()
		_ = l.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				there, err := c.Master.Dial(ctx, "tcp", to)
				if err != nil {
					_ = from.Close()
					return
				}
				both := func() { _, _ = from.Close(), there.Close() }
				stop := context.AfterFunc(ctx, both)
				running.Go(func() { _, _ = io.Copy(there, from); both() })
				_, _ = io.Copy(from, there)
				both()
				stop()
			})
		}
	})
	return l.Addr().String()
}
