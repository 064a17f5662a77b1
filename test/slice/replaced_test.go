//go:build integration

package slice

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestReplacedProvidersLoseNoStream replaces providers of a service under heavy streams: one
// drains while another one is added, and goes when its own streams have ended; then
// one goes at once while another one is added. No stream to the others is reset, all
// of its bytes arrive, and it sends no more segments again than when containers that
// provide nothing come and go in the same way.
func TestReplacedProvidersLoseNoStream(t *testing.T) { onOne(t, both, providerReplaced) }

// replacing has a heavy stream to each provider of a service.
type replacing struct {
	*underLoad
	vip     netip.AddrPort
	streams []*heavy
	specs   map[string]testcluster.ContainerSpec // of the providers
}

func providerReplaced(t *testing.T, kind string) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r := &replacing{
		underLoad: up(t, kind, "heavy", 2).underLoad(ctx, kind),
		vip:       netip.MustParseAddrPort("10.1.0.100:5201"), specs: map[string]testcluster.ContainerSpec{},
	}
	r.netctl("tenant create blue", "network create -t blue -s 10.1.0.0/24 -g 10.1.0.254 net",
		"service create -t blue -s net -l app=web -p 5201:5201:TCP --affinity off --ip "+r.vip.Addr().String()+" web")
	r.add(spec("c", "h1", "blue/net"), spec("idle0", "h2", "blue/net"))
	for i, host := range []string{"h1", "h2", "h2", "h1"} {
		r.begin(provider(fmt.Sprint("p", i), host))
	}
	for i := range 4 {
		r.begun(r.reached(r.vip, fmt.Sprint("p", i)))
	}
	// Each of what happens has to lose nothing in one of the rounds.
	fine, most := map[string]bool{}, uint32(0) // most: sent again while no provider is replaced
	r.rounds(func(round int) bool {
		most = max(most, r.during("nobody is replaced", r.streams, comesOrGoes, func() {
			idle := func(i int) testcluster.ContainerSpec { return spec(fmt.Sprint("idle", i), "h2", "blue/net") }
			r.add(idle(round + 1))
			r.reached(r.vip, "p0").conn.Close()
			r.del(idle(round))
		}))
		drains, goes := r.drained(r.streams[1], provider(fmt.Sprint("d", round), "h2"))
		atOnce := r.atOnce(r.streams[1], provider(fmt.Sprint("e", round), "h2"))
		for what, with := range map[string]uint32{"drains": drains, "goes": goes, "at once": atOnce} {
			fine[what] = fine[what] || noMore(with, most)
		}
		return fine["drains"] && fine["goes"] && fine["at once"]
	})
	for _, h := range r.streams {
		if err := h.finish(); err != nil {
			t.Error(err)
		}
	}
}

// comesOrGoes is why a data plane may drop what a container says that is not served yet,
// or any more.
var comesOrGoes = []string{driver.DropNoPort}

func provider(name, host string) testcluster.ContainerSpec {
	s := labelled(name, host, map[string]string{"app": "web"})
	s.Listen = nil
	return s
}

func (r *replacing) begin(s testcluster.ContainerSpec) {
	r.t.Helper()
	r.specs[s.Name] = s
	r.add(s)
	r.sink(s.Name)
}

func (r *replacing) del(s testcluster.ContainerSpec) {
	r.t.Helper()
	if err := r.DelContainer(r.ctx, s); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replacing) begun(h *heavy) {
	go h.run()
	r.streams = append(r.streams, h)
}

func (r *replacing) without(h *heavy) []*heavy {
	return slices.DeleteFunc(slices.Clone(r.streams), func(x *heavy) bool { return x == h })
}

// drained replaces the provider of a stream by another one: it drains, its stream
// goes on, and when that has ended its container goes.
func (r *replacing) drained(of *heavy, by testcluster.ContainerSpec) (drains, goes uint32) {
	r.t.Helper()
	drains = r.during(of.provider+" drains and another one comes", r.streams, comesOrGoes, func() {
		r.netctl("endpoint drain " + r.endpointOf(of.provider))
		r.begin(by)
		r.begun(r.reached(r.vip, by.Name))
	})
	if err := of.finish(); err != nil {
		r.t.Errorf("a stream to who drained: %v", err)
	}
	r.streams = r.without(of)
	goes = r.during(of.provider+" goes", r.streams, comesOrGoes, func() { r.del(r.specs[of.provider]) })
	return drains, goes
}

// atOnce replaces the provider of a stream by another one at once. Its stream ends: packets
// on their way find no receiver.
func (r *replacing) atOnce(of *heavy, by testcluster.ContainerSpec) uint32 {
	r.t.Helper()
	r.streams = r.without(of)
	again := r.during(of.provider+" is replaced at once", r.streams, append(comesOrGoes, driver.DropUnknownDest, driver.DropUnknownSource), func() {
		r.del(r.specs[of.provider])
		r.begin(by)
		r.begun(r.reached(r.vip, by.Name))
	})
	select {
	case <-of.ended:
		r.t.Logf("its own stream: %v", of.err)
	case <-time.After(patience):
		r.t.Errorf("a stream to %s, which is gone, has not ended after %v", of.provider, patience)
	}
	return again
}
