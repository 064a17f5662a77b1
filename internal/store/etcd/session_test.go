package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// A session goes on while one of two servers stands still, whichever, though gRPC never
// tells of it; it ends when both do, and when the lease is gone.
func TestSessionSurvivesAStalledServer(t *testing.T) {
	t.Parallel()
	s := embedded(t, t.TempDir(), "127.0.0.1:0")
	admin := raw(t, s.endpoint)
	proxies := []*storetest.Proxy{storetest.NewProxy(t, s.endpoint[len("http://"):]), storetest.NewProxy(t, s.endpoint[len("http://"):])}
	c := withoutPings(t, "http://"+proxies[0].Addr(), "http://"+proxies[1].Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	lease, err := c.NewSession(ctx, 12*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	id, err := parseLease(lease.ID())
	if err != nil {
		t.Fatal(err)
	}
	left := func() int64 {
		r, err := admin.TimeToLive(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return r.TTL
	}
	for i, p := range proxies {
		p.Stall()
		for refreshed, was := 0, left(); refreshed < 2; {
			is := left()
			if is > was {
				refreshed++
			}
			was = is
			select {
			case <-lease.Done():
				t.Fatalf("server %d stands still: the session is lost", i)
			case <-time.After(100 * time.Millisecond):
			}
		}
		p.Release()
	}
	ends := func(what string, lease interface{ Done() <-chan struct{} }) {
		t.Helper()
		select {
		case <-lease.Done():
		case <-ctx.Done():
			t.Fatalf("%s: the session does not end", what)
		}
	}
	other, err := c.NewSession(ctx, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if id, err = parseLease(other.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Revoke(ctx, id); err != nil {
		t.Fatal(err)
	}
	ends("revoked", other)
	for _, p := range proxies {
		p.Stall()
	}
	ends("both stand still", lease)
	for _, p := range proxies {
		p.Release()
	}
	for _, s := range []interface{ Close() error }{lease, other} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
