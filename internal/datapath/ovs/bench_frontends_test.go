package ovs

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// BenchmarkFrontends puts so many services of Kubernetes into a switch, each with 10
// backends of its own, a cluster address and a node port, and measures the change of
// one endpoint, through Apply. The endpoints' own flows are not among them.
func BenchmarkFrontends(b *testing.B) {
	for _, n := range []int{10, 1000, 5000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			l := newLive(b, 1)
			defer l.drv.Close()
			l.apply(b)
			before := len(l.drv.flows.pic.ledger.installed)
			for i := range 100 {
				l.pic.NodeAddrs = l.pic.NodeAddrs.Set(netip.AddrFrom4([4]byte{10, 20, 0, byte(i)}), struct{}{})
			}
			for i := range n {
				s := &desired.Service{
					Key: model.ServiceKey{Tenant: "blue", Name: fmt.Sprint("s", i)}, Network: l.net.ID, Exposed: true,
					Frontends: []desired.Frontend{
						{Addr: netip.IPv4Unspecified(), Protocol: model.ProtoTCP, Port: uint16(30000 + i), Backend: 8080},
						{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i / 256), byte(i)}), Protocol: model.ProtoTCP, Port: 80, Backend: 8080},
					},
				}
				for j := range 10 {
					s.Backends = s.Backends.Set(model.EndpointKey{Network: l.net.Key, ID: model.EndpointID(fmt.Sprint("r", i, "-", j))},
						&desired.Backend{Network: l.net.ID, IPv4: netip.AddrFrom4([4]byte{10, byte(100 + j), byte(i / 256), byte(i)}), Identity: 300})
				}
				l.pic.Services = l.pic.Services.Set(s.Key, s)
			}
			start := b.Elapsed()
			l.apply(b)
			b.Logf("%d services, %d flows and %d groups: put in within %v", n, len(l.drv.flows.pic.ledger.installed)-before, len(l.drv.flows.pic.services.groups.have), b.Elapsed()-start)
			key := model.ServiceKey{Tenant: "blue", Name: "s5"}
			b.ResetTimer()
			for i := range b.N {
				old, _ := l.pic.Services.Get(key)
				s := *old
				who := model.EndpointKey{Network: l.net.Key, ID: "r5-3"}
				s.Backends = s.Backends.Delete(who)
				if i%2 == 1 {
					s.Backends = s.Backends.Set(who, &desired.Backend{Network: l.net.ID, IPv4: netip.AddrFrom4([4]byte{10, 103, 0, 5}), Identity: 300})
				}
				l.pic.Services = l.pic.Services.Set(key, &s)
				if rep := l.apply(b); rep.Changes < 2 || rep.Changes > 7 {
					b.Fatalf("an endpoint's change made %d changes", rep.Changes)
				}
			}
			b.StopTimer()
		})
	}
}
