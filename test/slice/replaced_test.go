//go:build integration

package slice

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/lab"
)

// TestProviderReplaced replaces providers of a service under heavy streams: one
// drains while another one is added, and goes when its own streams have ended; then
// one goes at once while another one is added. No stream to the others is reset, all
// of its bytes arrive, and it sends no more segments again than when containers that
// provide nothing come and go in the same way.
func TestProviderReplaced(t *testing.T) { onOne(t, both, providerReplaced) }

// replacing has a heavy stream to each provider of a service.
type replacing struct {
	*cluster
	ctx     context.Context
	vip     netip.AddrPort
	rate    int   // bytes a second of each stream; 0 = as many as go
	part    int64 // bytes of each stream before and after each change
	streams []*heavy
	specs   map[string]lab.ContainerSpec // of the providers
	dropped map[string]float64           // by the data planes, by series, when it was asked last
}

func providerReplaced(t *testing.T, driver string) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r := &replacing{cluster: up(t, driver, "heavy", 2), ctx: ctx, vip: netip.MustParseAddrPort("10.1.0.100:5201"), part: 64 << 20, specs: map[string]lab.ContainerSpec{}}
	if driver == lab.DriverOVS { // in user space as fast as TCP can is faster than the switch, which then drops
		r.rate, r.part = 2<<20, 2<<20
	}
	r.netctl("tenant create blue", "network create -t blue -s 10.1.0.0/24 -g 10.1.0.254 net",
		"service create -t blue -s net -l app=web -p 5201:5201:TCP --affinity off --ip "+r.vip.Addr().String()+" web")
	r.add(spec("c", "h1", "blue/net"), spec("idle0", "h2", "blue/net"))
	for i, host := range []string{"h1", "h2", "h2", "h1"} {
		r.begin(provider(fmt.Sprint("p", i), host))
	}
	for i := range 4 {
		r.begun(r.reached(fmt.Sprint("p", i)))
	}
	// A busy machine loses segments by itself, by the burst: a round that did is looked
	// at again. What a change loses, it loses in each.
	for round := 0; ; round++ {
		without := r.during("nobody is replaced", r.streams, nil, func() {
			idle := func(i int) lab.ContainerSpec { return spec(fmt.Sprint("idle", i), "h2", "blue/net") }
			r.add(idle(round + 1))
			r.reached("p0").conn.Close()
			r.del(idle(round))
		})
		with := append(r.drained(r.streams[1], provider(fmt.Sprint("d", round), "h2")), r.atOnce(r.streams[1], provider(fmt.Sprint("e", round), "h2")))
		most := 2*without + 20 // what all of them send within 0.1 ms; paced, within 4 ms
		if slices.Max(with) <= most {
			break
		}
		t.Logf("round %d: %v segments were sent again while providers were replaced, %d while not", round, with, without)
		if round == 2 {
			t.Errorf("in each of three rounds more segments were sent again while providers were replaced than while not")
			break
		}
	}
	for _, h := range r.streams {
		if err := h.finish(); err != nil {
			t.Error(err)
		}
	}
}

func provider(name, host string) lab.ContainerSpec {
	s := labelled(name, host, map[string]string{"app": "web"})
	s.Listen = nil
	return s
}

func (r *replacing) begin(s lab.ContainerSpec) {
	r.t.Helper()
	r.specs[s.Name] = s
	r.add(s)
	r.sink(s.Name)
}

func (r *replacing) del(s lab.ContainerSpec) {
	r.t.Helper()
	if err := r.DelContainer(r.ctx, s); err != nil {
		r.t.Fatal(err)
	}
}

// reached asks for new connections until one gets to a provider.
func (r *replacing) reached(name string) (found *heavy) {
	r.t.Helper()
	if err := lab.Until(r.ctx, "a connection to "+name, func(context.Context) error {
		h, err := r.heavy(r.ctx, r.vip, r.rate)
		if err != nil {
			return err
		}
		if h.provider != name {
			return fmt.Errorf("it is %s's: %w", h.provider, h.conn.Close())
		}
		found = h
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return found
}

func (r *replacing) begun(h *heavy) {
	go h.run()
	r.streams = append(r.streams, h)
}

func (r *replacing) without(h *heavy) []*heavy {
	return slices.DeleteFunc(slices.Clone(r.streams), func(x *heavy) bool { return x == h })
}

// during tells how many segments the streams send again while something happens and
// while each of them sends a part before it and one after it. The data planes may drop
// packets for the reasons given meanwhile, and no others.
func (r *replacing) during(what string, streams []*heavy, reasons []string, do func()) uint32 {
	r.t.Helper()
	sent := func() (n int64) {
		for _, h := range streams {
			n += h.sent.Load()
		}
		return n
	}
	before, was, start := retransmits(streams), sent(), time.Now()
	if err := more(r.ctx, streams, r.part); err != nil {
		r.t.Fatalf("before %s: %v", what, err)
	}
	do()
	if err := more(r.ctx, streams, r.part); err != nil {
		r.t.Fatalf("after %s: %v", what, err)
	}
	again := retransmits(streams) - before
	r.t.Logf("%s: %d streams, %.2f Gbit/s, %d segments sent again", what, len(streams), float64(sent()-was)*8e-9/time.Since(start).Seconds(), again)
	for series, n := range r.drops() {
		if !slices.ContainsFunc(reasons, func(reason string) bool { return matches(series, []string{dropSeries, reason}) }) {
			r.t.Errorf("%s: %s has grown by %v", what, series, n)
		}
	}
	return again
}

const dropSeries = "contiv_netplugin_drops_total"

// drops is what the data planes have dropped since it was asked last.
func (r *replacing) drops() map[string]float64 {
	grown, all := map[string]float64{}, map[string]float64{}
	for series, n := range r.scrape() {
		if matches(series, []string{dropSeries}) {
			if all[series] = n; n > r.dropped[series] {
				grown[series] = n - r.dropped[series]
			}
		}
	}
	if len(all) == 0 {
		r.t.Error("no host tells what it drops")
	}
	r.dropped = all
	return grown
}

// drained replaces the provider of a stream by another one: it drains, its stream
// goes on, and when that has ended its container goes.
func (r *replacing) drained(of *heavy, by lab.ContainerSpec) []uint32 {
	r.t.Helper()
	drains := r.during(of.provider+" drains and another one comes", r.streams, nil, func() {
		r.netctl("endpoint drain " + r.endpointOf(of.provider))
		r.begin(by)
		r.begun(r.reached(by.Name))
	})
	if err := of.finish(); err != nil {
		r.t.Errorf("a stream to who drained: %v", err)
	}
	r.streams = r.without(of)
	goes := r.during(of.provider+" goes", r.streams, nil, func() { r.del(r.specs[of.provider]) })
	return []uint32{drains, goes}
}

// atOnce replaces the provider of a stream by another one at once. Its stream ends, of
// which packets under way find nobody.
func (r *replacing) atOnce(of *heavy, by lab.ContainerSpec) uint32 {
	r.t.Helper()
	r.streams = r.without(of)
	again := r.during(of.provider+" is replaced at once", r.streams, []string{`"unknown-`}, func() {
		r.del(r.specs[of.provider])
		r.begin(by)
		r.begun(r.reached(by.Name))
	})
	select {
	case <-of.ended:
		r.t.Logf("its own stream: %v", of.err)
	case <-time.After(patience):
		r.t.Errorf("a stream to %s, which is gone, has not ended after %v", of.provider, patience)
	}
	return again
}
