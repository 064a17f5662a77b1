package reference

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestForgetDropsTheAddressesConnectionsOnly: forgetting an address drops what a look at all connections and
// datagrams would find, and nothing else, and leaves nothing in the indexes.
func TestForgetDropsTheAddressesConnectionsOnly(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	addr := func() netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.IntN(5))}) }
	c := newConntrack()
	for range 5000 {
		p := &Packet{Src: addr(), Dst: addr(), Proto: []model.Protocol{model.ProtoTCP, model.ProtoUDP}[rng.IntN(2)], SrcPort: uint16(rng.IntN(3)), DstPort: uint16(rng.IntN(3))}
		if rng.IntN(4) == 0 {
			p.Frag = &Fragment{ID: uint32(rng.IntN(3)), More: rng.IntN(3) > 0}
		}
		n := &desired.Network{ID: model.NetworkID(1 + rng.IntN(2))}
		c.commit(flowOf(n, p), p, connectionState{})
		if rng.IntN(20) > 0 {
			continue
		}
		a := addrKey{n.Domain(), addr()}
		conns, frags := map[flow]connectionState{}, map[fragKey]flow{}
		for f := range c.conns {
			if f.domain != a.domain || f.src != a.addr && f.dst != a.addr {
				conns[f] = connectionState{}
			}
		}
		for k, f := range c.frags {
			if k.domain != a.domain || k.src != a.addr && k.dst != a.addr {
				frags[k] = f
			}
		}
		c.forget(a)
		if !maps.Equal(conns, c.conns) || !maps.Equal(frags, c.frags) {
			t.Fatalf("%d connections and %d datagrams are left, want %d and %d", len(c.conns), len(c.frags), len(conns), len(frags))
		}
		for x := range c.connsOf {
			for f := range c.connsOf[x] {
				if _, ok := c.conns[f]; !ok {
					t.Fatalf("%v has %v, which is no connection", x, f)
				}
			}
		}
		for x := range c.fragsOf {
			for k := range c.fragsOf[x] {
				if _, ok := c.frags[k]; !ok {
					t.Fatalf("%v has %v, which is no datagram", x, k)
				}
			}
		}
	}
}
