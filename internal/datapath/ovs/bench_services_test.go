package ovs

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// BenchmarkServices puts so many services with 10 backends each into a switch, and
// measures a backend's change of one of them, through Apply.
func BenchmarkServices(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			l := newLive(b, 1)
			defer l.drv.Close()
			for i := range 10 {
				mac := model.MAC{2, 2, 10, 9, 1, byte(i)}
				l.pic.Remotes = l.pic.Remotes.Set(desired.RemoteKey{Network: l.net.ID, MAC: mac}, &desired.Remote{
					Network: l.net.ID, MAC: mac, IPv4: netip.AddrFrom4([4]byte{10, 9, 0, byte(100 + i)}), Identity: 300,
				})
			}
			for i := range n {
				s := &desired.Service{
					Key: model.ServiceKey{Tenant: "blue", Name: fmt.Sprint("s", i)}, Network: l.net.ID,
					IPv4:  netip.AddrFrom4([4]byte{10, 10, byte(i / 256), byte(i)}),
					Ports: []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: uint16(1000 + i)}},
				}
				for j := range 10 {
					s.Backends = s.Backends.Set(model.EndpointKey{Network: l.net.Key, ID: model.EndpointID(fmt.Sprint("r", j))},
						&desired.Backend{Network: l.net.ID, IPv4: netip.AddrFrom4([4]byte{10, 9, 0, byte(100 + j)}), Identity: 300})
				}
				l.pic.Services = l.pic.Services.Set(s.Key, s)
			}
			start := b.Elapsed()
			l.apply(b)
			b.Logf("%d services, %d flows: put in within %v", n, len(l.drv.flows.pic.ledger.installed), b.Elapsed()-start)
			start = b.Elapsed()
			if _, err := l.drv.Stats(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.Logf("counters read within %v", b.Elapsed()-start)
			key := model.ServiceKey{Tenant: "blue", Name: "s5"}
			b.ResetTimer()
			for i := range b.N {
				old, _ := l.pic.Services.Get(key)
				s := *old
				state := desired.BackendActive
				if i%2 == 0 {
					state = desired.BackendDraining
				}
				who := model.EndpointKey{Network: l.net.Key, ID: "r3"}
				x, _ := s.Backends.Get(who)
				y := *x
				y.State = state
				s.Backends = s.Backends.Set(who, &y)
				l.pic.Services = l.pic.Services.Set(key, &s)
				if rep := l.apply(b); rep.Changes < 2 || rep.Changes > 5 {
					b.Fatalf("a backend's change made %d changes", rep.Changes)
				}
			}
			b.StopTimer()
		})
	}
}
