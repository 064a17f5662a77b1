package ovs

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// settle waits until the switch has done all that is in the database: it takes
// some 14 ms to remove a port in user space, and adds nothing meanwhile.
func (l *live) settle(n int) {
	l.Vsctl("set", "Open_vSwitch", ".", fmt.Sprintf("external_ids:round=%d", n))
}

// BenchmarkPorts measures 50 ports added in one Apply, until all are programmed.
func BenchmarkPorts(b *testing.B) {
	const n = 50
	l := newLive(b, 0)
	defer l.drv.Close()
	for i := range n {
		name := fmt.Sprintf("cvb%d", i)
		l.Run("ip", "-n", l.NS, "link", "add", name, "type", "veth", "peer", "name", "p"+name)
		l.Run("ip", "-n", l.NS, "link", "set", name, "up")
	}
	var took time.Duration
	rounds := 0
	for b.Loop() {
		for i := range n {
			name := fmt.Sprintf("cvb%d", i)
			v4 := netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)})
			l.pic.Ports = l.pic.Ports.Set(name, &desired.Port{
				IfName: name, Network: 7, MAC: model.EndpointMAC(l.net.Key, v4, netip.Addr{}), IPv4: v4, Identity: 300,
			})
		}
		start := time.Now()
		l.apply(b)
		took += time.Since(start)
		rounds++
		l.pic.Ports = desired.Map[string, *desired.Port]{}
		l.apply(b)
		l.settle(rounds)
	}
	b.ReportMetric(float64(n*rounds)/took.Seconds(), "ports/s")
}

// BenchmarkPort measures one port added by an Apply.
func BenchmarkPort(b *testing.B) {
	l := newLive(b, 1)
	defer l.drv.Close()
	l.Run("ip", "-n", l.NS, "link", "add", "cvone", "type", "veth", "peer", "name", "pone")
	l.Run("ip", "-n", l.NS, "link", "set", "cvone", "up")
	v4 := netip.AddrFrom4([4]byte{10, 9, 0, 99})
	with := l.pic.Ports.Set("cvone", &desired.Port{
		IfName: "cvone", Network: 7, MAC: model.EndpointMAC(l.net.Key, v4, netip.Addr{}), IPv4: v4, Identity: 300,
	})
	without := l.pic.Ports
	var took time.Duration
	rounds := 0
	for b.Loop() {
		l.pic.Ports = with
		start := time.Now()
		l.apply(b)
		took += time.Since(start)
		rounds++
		l.pic.Ports = without
		l.apply(b)
		l.settle(rounds)
	}
	b.ReportMetric(float64(took.Milliseconds())/float64(rounds), "ms/add")
}

// BenchmarkEndpointChange measures an Apply that changes one remote endpoint
// among many on a real switch, and a restart that reads all flows back.
func BenchmarkEndpointChange(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			l := newLive(b, 1)
			remote := func(i int, id model.Identity) (desired.RemoteKey, *desired.Remote) {
				r := &desired.Remote{
					Network: 7, MAC: model.MAC{2, 2, 10, 2, byte(i >> 8), byte(i)}, IPv4: netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}),
					Identity: id, VTEP: netip.AddrFrom4([4]byte{1, 2, 3, 4}),
				}
				return desired.RemoteKey{Network: 7, MAC: r.MAC}, r
			}
			for i := range n {
				l.pic.Remotes = l.pic.Remotes.Set(remote(i, 300))
			}
			start := time.Now()
			l.apply(b)
			first := time.Since(start)
			id := model.Identity(301)
			for b.Loop() {
				l.pic.Remotes = l.pic.Remotes.Set(remote(n/2, id))
				id++
				l.apply(b)
			}
			b.StopTimer()
			_ = l.drv.Close()
			start = time.Now()
			l.open(b)
			if rep := l.apply(b); rep.Changes != 0 {
				b.Errorf("a restart made %d changes", rep.Changes)
			}
			b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "ms-restart")
			b.ReportMetric(float64(first.Microseconds())/1000, "ms-first")
			_ = l.drv.Close()
		})
	}
}

// BenchmarkMonitor measures beginning and ending a monitor, connections
// included, with 10,000 rules that let through and 10,000 that deny.
func BenchmarkMonitor(b *testing.B) {
	r := newRig(b)
	drv := r.open(b)
	defer drv.Close()
	_, big := conformance.DesiredStates(b)
	set := &desired.PolicySet{ID: 4711, Name: "many", In: []desired.Tier{{Tier: model.TierContiv, Default: model.Deny}}}
	for i := range 20000 {
		r := &desired.Rule{
			ID: fmt.Sprintf("blue:p:%d", i), Priority: i % 100, Action: []model.Action{model.Allow, model.Deny}[i%2], Identities: desired.IdentitiesOf(model.Identity(1000 + i)),
		}
		set.In[0].Rules = set.In[0].Rules.Set(r.ID, r)
	}
	big.PolicySets = big.PolicySets.Set(set.ID, set)
	if _, err := drv.Apply(b.Context(), big); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		events, err := drv.Monitor(ctx, driver.MonitorOptions{Connections: true})
		if err != nil {
			b.Fatal(err)
		}
		cancel()
		for range events { // until it has ended
			continue
		}
	}
}
