package conformance

import (
	"math/rand/v2"
	"testing"
)

// FuzzServices is RandomServices where the fuzzer decides: each choice of a world - its
// services, networks and policies, what changes, who sends what, in which form and how
// damaged - is made by a byte of its input. Whatever becomes of a packet has to be what
// the reference says. The driver has to choose backends and to track as that does. As a
// test it tries a few worlds.
func FuzzServices(f *testing.F, h Harness) {
	top := Labelled(RoutedTopology())
	b, w := sending(f, h, top, Case{})
	sctp, sport := b.servesSCTP(f, w), uint16(20000)
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(Seed(), seed))
		in := make([]byte, 1000)
		for i := range in {
			in[i] = byte(r.Uint32())
		}
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		x := newRandomServices(t, b, top, w)
		x.r = rand.New(&choices{in, rand.NewPCG(1, uint64(len(in)))})
		x.seed, x.unusual, x.sctp, x.sport, x.stays = Seed(), x.r, sctp, &sport, true
		defer x.restore()
		x.run()
	})
}

// choices is a source of random numbers that an input decides, as far as it goes.
type choices struct {
	in   []byte
	then rand.Source
}

func (c *choices) Uint64() uint64 {
	if len(c.in) == 0 {
		return c.then.Uint64()
	}
	b := uint64(c.in[0])
	c.in = c.in[1:]
	return b * 0x0101010101010101
}
