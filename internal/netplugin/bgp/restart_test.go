package bgp

import (
	"context"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// graceful finds the restart capability of an OPEN (RFC 4724).
func graceful(t *testing.T, open *bgp.BGPOpen) *bgp.CapGracefulRestart {
	t.Helper()
	for _, o := range open.OptParams {
		c, ok := o.(*bgp.OptionParameterCapability)
		if !ok {
			continue
		}
		for _, c := range c.Capability {
			if g, ok := c.(*bgp.CapGracefulRestart); ok {
				return g
			}
		}
	}
	t.Fatal("no restart capability")
	return nil
}

// A restarting speaker says so before and after, and sends no notification of an end.
func TestGracefulRestartIsAnnounced(t *testing.T) {
	h := start(t, 1, func(c *Config) { c.RestartTime = 777 * time.Second }, Options{})
	h.announce(a("10.7.0.1/32", "10.9.0.1"))
	r := connect(t, "127.0.0.2", routerAS, h)
	r.has(map[string]string{"10.7.0.1/32": "10.9.0.1"})
	r.until("the end of what it tells", func() bool { return r.ended })
	if g := graceful(t, r.open); g.Time != 777 || g.Flags&0x08 != 0 || len(g.Tuples) != 2 {
		t.Errorf("restart capability %+v", g)
	}
	h.close(true)
	r.done.Wait() // until it has read all that was said before the end
	if r.notified != nil {
		t.Errorf("it was notified: %+v", r.notified)
	}

	s, err := Start(t.Context(), h.cfg, Options{Restarting: true})
	if err != nil {
		t.Fatal(err)
	}
	h.Speaker = s
	if h.Routes().Complete {
		t.Error("complete before anybody told anything")
	}
	h.announce(a("10.7.0.1/32", "10.9.0.1"), a("10.7.0.2/32", "10.9.0.1"))
	r.dial(h.at)
	g := graceful(t, r.open)
	if g.Flags&0x08 == 0 {
		t.Errorf("restart capability %+v: not restarting", g)
	}
	for _, f := range g.Tuples {
		if f.Flags&0x80 == 0 {
			t.Errorf("restart capability %+v: forwarding is not preserved", f)
		}
	}
	// It tells although the neighbor has not yet.
	r.has(map[string]string{"10.7.0.1/32": "10.9.0.1", "10.7.0.2/32": "10.9.0.1"})
	r.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16")
	if pic := h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2"}); pic.Complete {
		t.Error("complete before the neighbor said so")
	}
	r.send(bgp.NewEndOfRib(bgp.RF_IPv4_UC))
	r.tell(way{hop: "fd00:9::2"}, "fd00:2::/64")
	if pic := h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2", "fd00:2::/64": "fd00:9::2"}); pic.Complete {
		t.Error("complete before the neighbor said so of both families")
	}
	r.send(bgp.NewEndOfRib(bgp.RF_IPv6_UC))
	h.complete()

	// A final end is notified.
	h.close(false)
	r.until("a good-bye", func() bool { return r.notified != nil && r.notified.ErrorCode == bgp.BGP_ERROR_CEASE })
}

func (h *host) complete() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), deadline)
	defer cancel()
	for pic := h.Routes(); !pic.Complete; {
		var err error
		if pic, err = h.Changed(ctx, pic.Generation); err != nil {
			h.t.Fatal(err)
		}
	}
}

// A State is complete after the restart time, even if neighbors are missing.
func TestStateIsCompleteAfterTheRestartTime(t *testing.T) {
	h := start(t, 2, func(c *Config) { c.RestartTime = time.Second }, Options{Restarting: true})
	if h.Routes().Complete {
		t.Error("complete at once")
	}
	h.complete()
}

// A restarting neighbor keeps its routes, marked stale, until it has sent all again.
func TestRestartingNeighborKeepsItsRoutes(t *testing.T) {
	marksStale(t)
	h := start(t, 1, nil, Options{})
	r := connect(t, "127.0.0.2", routerAS, h)
	r.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16", "10.3.0.0/16")
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2", "10.3.0.0/16": "10.9.0.2"})
	r.hangUp()
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2 stale", "10.3.0.0/16": "10.9.0.2 stale"})
	h.peer("127.0.0.2", "a restart", func(p PeerState) bool { return p.Stale && p.State != Established && p.Accepted == 2 })
	r.dial(h.at)
	r.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16")
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2", "10.3.0.0/16": "10.9.0.2 stale"})
	r.endOfRIB()
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2"})
}

// Signatures (RFC 2385) are there, and are forgotten with the neighbor.
func TestSignaturesGoWithTheNeighbor(t *testing.T) {
	h := start(t, 1, func(c *Config) { c.Neighbors[0].Password = "secret" }, Options{})
	cfg := h.cfg
	cfg.Neighbors = nil
	if err := h.Configure(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	n := h.cfg.Neighbors[0]
	n.Password = ""
	cfg.Neighbors = []Neighbor{n}
	if err := h.Configure(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	connect(t, "127.0.0.2", routerAS, h) // the kernel would drop what is not signed
}
