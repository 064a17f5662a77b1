//go:build integration

package slice

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// underLoad is a cluster in which something happens while heavy streams go on.
type underLoad struct {
	*cluster
	ctx  context.Context
	rate int   // bytes a second of each stream; 0 = as many as go
	part int64 // bytes of each stream before and after what happens
}

func (c *cluster) underLoad(ctx context.Context, driver string) *underLoad {
	u := &underLoad{cluster: c, ctx: ctx, part: 64 << 20}
	if driver == testcluster.DriverOVS { // in user space TCP outruns the switch, which then drops
		u.rate, u.part = 2<<20, 2<<20
	}
	return u
}

// reached asks an address for new streams until one gets to a provider.
func (u *underLoad) reached(at netip.AddrPort, name string) (found *heavy) {
	u.t.Helper()
	if err := testcluster.Until(u.ctx, "a stream to "+name, func(context.Context) error {
		h, err := u.heavy(u.ctx, at, u.rate)
		if err != nil {
			return err
		}
		if h.provider != name {
			return fmt.Errorf("it is %s's: %w", h.provider, h.conn.Close())
		}
		found = h
		return nil
	}); err != nil {
		u.t.Fatal(err)
	}
	return found
}

// rounds wants one of three rounds to be fine: a busy machine loses packets by itself,
// by the burst. What is lost by what happens is lost in each.
func (u *underLoad) rounds(fine func(round int) bool) {
	u.t.Helper()
	for n := range 3 {
		if fine(n) {
			return
		}
		u.t.Logf("round %d lost more than without what happened", n)
	}
	u.t.Error("each of three rounds lost more than without what happened")
}

// noMore reports whether no more segments were sent again with what happened than
// without, but for what four streams send within 0.1 ms, or paced within 4 ms.
func noMore(with, without uint32) bool { return with <= 2*without+20 }

// during tells how many segments the streams send again while something happens and
// while each of them sends a part before it and one after it. The data planes may drop
// packets for the reasons given meanwhile, and no others.
func (u *underLoad) during(what string, streams []*heavy, reasons []string, do func()) uint32 {
	u.t.Helper()
	sent := func() (n int64) {
		for _, h := range streams {
			n += h.sent.Load()
		}
		return n
	}
	dropped := map[string]map[string]uint64{}
	for _, h := range u.Hosts() {
		dropped[h.Name] = u.drops(h)
	}
	before, was, start := retransmits(streams), sent(), time.Now()
	if err := more(u.ctx, streams, u.part); err != nil {
		u.t.Fatalf("before %s: %v", what, err)
	}
	do()
	if err := more(u.ctx, streams, u.part); err != nil {
		u.t.Fatalf("after %s: %v", what, err)
	}
	again := retransmits(streams) - before
	u.t.Logf("%s: %d streams, %.2f Gbit/s, %d segments sent again", what, len(streams), float64(sent()-was)*8e-9/time.Since(start).Seconds(), again)
	for _, h := range u.Hosts() {
		for reason, n := range u.drops(h) {
			if n -= dropped[h.Name][reason]; int64(n) > 0 && !slices.Contains(reasons, reason) {
				u.t.Errorf("%s: %s dropped %d packets: %s", what, h.Name, n, reason)
			}
		}
	}
	return again
}

// drops is what a host's data plane has dropped since it began, by reason.
func (c *cluster) drops(h *testcluster.Host) map[string]uint64 {
	c.t.Helper()
	client := h.NS.HTTP()
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9006/svcstats", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct{ Drops map[string]uint64 }
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != http.StatusOK || got.Drops == nil {
		c.t.Fatal(fmt.Errorf("%s tells no drops: %s, %w", h.Name, resp.Status, err))
	}
	return got.Drops
}
