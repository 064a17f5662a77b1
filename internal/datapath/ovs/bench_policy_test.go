package ovs

import (
	"fmt"
	"math/rand"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// BenchmarkRuleApply measures Applies that each change one random rule among many on
// a real switch, the longest one by itself too, then a restart that reads all flows
// back.
func BenchmarkRuleApply(b *testing.B) {
	for shape := range ruleShapes {
		for _, n := range []int{10, 10000} {
			b.Run(fmt.Sprintf("%s/%d", shape, n), func(b *testing.B) { benchRuleApply(b, shape, n) })
		}
	}
}

func benchRuleApply(b *testing.B, shape string, n int) {
	b.Helper()
	l := newLive(b, 1)
	set := manyRules(4711, shape, n)
	put := func() time.Duration {
		l.pic.PolicySets = l.pic.PolicySets.Set(set.ID, set)
		start := time.Now()
		l.apply(b)
		return time.Since(start)
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	first := put()
	rng := rand.New(rand.NewSource(1))
	var took []time.Duration
	for b.Loop() {
		set = flip(set, rng.Intn(n))
		took = append(took, put())
	}
	slices.Sort(took)
	b.ReportMetric(ms(took[len(took)/2]), "ms-median")
	b.ReportMetric(ms(took[len(took)-1]), "ms-longest")
	b.ReportMetric(ms(first), "ms-first")
	_ = l.drv.Close()
	start := time.Now()
	l.open(b)
	if rep := l.apply(b); rep.Changes != 0 {
		b.Errorf("a restart made %d changes", rep.Changes)
	}
	b.ReportMetric(ms(time.Since(start)), "ms-restart")
	_ = l.drv.Close()
}

// proc reads a file of the switch daemon's directory in /proc.
func (l *live) proc(b *testing.B, name string) string {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", l.SwitchPID(), name))
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

// memory is what the switch daemon holds, and what this process does, in bytes.
func (l *live) memory(b *testing.B) (daemon, own float64) {
	b.Helper()
	for line := range strings.Lines(l.proc(b, "status")) {
		if n, err := fmt.Sscanf(line, "VmRSS: %f", &daemon); n == 1 && err == nil {
			daemon *= 1024
		}
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return daemon, float64(m.HeapAlloc)
}

// busy is the processor time of the switch daemon.
func (l *live) busy(b *testing.B) time.Duration {
	b.Helper()
	text := l.proc(b, "schedstat") // of its main thread, which forwards: nanoseconds
	n, err := strconv.ParseInt(strings.Fields(text)[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(n)
}

// BenchmarkPolicyFlows measures what flows of rules cost, by their number: all
// put in by one Apply, the memory of the switch and of this process for each, one
// rule's change beside them, and a restart that reads them back.
func BenchmarkPolicyFlows(b *testing.B) {
	for _, flows := range []int{40000, 200000, 400000, 1000000} {
		b.Run(strconv.Itoa(flows), func(b *testing.B) {
			l := newLive(b, 1)
			patient := func() { l.drv.patience, l.drv.flows.pic.policies.most = 10*time.Minute, 2*flows }
			patient()
			set := manyRules(4711, "identities", flows/4)
			for b.Loop() {
				daemon, own := l.memory(b)
				l.pic.PolicySets = l.pic.PolicySets.Set(set.ID, set)
				start := time.Now()
				l.apply(b)
				b.ReportMetric(time.Since(start).Seconds(), "s-first")
				daemon2, own2 := l.memory(b)
				b.ReportMetric((daemon2-daemon)/float64(flows), "B-switch/flow")
				b.ReportMetric((own2-own)/float64(flows), "B-driver/flow")
				set = flip(set, 1)
				l.pic.PolicySets = l.pic.PolicySets.Set(set.ID, set)
				start = time.Now()
				l.apply(b)
				b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "ms-change")
			}
			_ = l.drv.Close()
			l.open(b)
			patient()
			start := time.Now()
			l.apply(b)
			b.ReportMetric(time.Since(start).Seconds(), "s-restart")
			_ = l.drv.Close()
		})
	}
}

// BenchmarkPurge measures what the purge after a change costs the datapath in
// user space for each living flow: one packet on each of many connections, each
// with a cached flow of its own, with the cache and right after a purge; and how
// long the purge itself takes.
func BenchmarkPurge(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { benchPurge(b, n) })
	}
}

func benchPurge(b *testing.B, n int) {
	b.Helper()
	l := newLive(b, 2)
	defer l.drv.Close()
	tier := desired.Tier{Tier: model.TierContiv, Default: model.Deny}
	for i := range n { // a rule for each port, so that each port has a cached flow
		port := uint16(20000 + i)
		r := &desired.Rule{ID: strconv.Itoa(i), Action: model.Allow, AnyPeer: true, Ports: []model.PortMatch{{Protocol: model.ProtoUDP, Lo: port, Hi: port}}}
		tier.Rules = tier.Rules.Set(r.ID, r)
	}
	to := *l.boxes[1].port
	to.Policies = 5
	l.pic.Ports = l.pic.Ports.Set(to.IfName, &to)
	l.pic.PolicySets = l.pic.PolicySets.Set(5, &desired.PolicySet{ID: 5, In: []desired.Tier{tier}})
	l.apply(b)
	var conn *net.UDPConn
	if err := inNamespace(l.boxes[0].ns, func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 9999})
		return err
	}); err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	sent := uint64(0)
	all := func() {
		for i := range n {
			if _, err := conn.WriteToUDP([]byte{1}, &net.UDPAddr{IP: to.IPv4.AsSlice(), Port: 20000 + i}); err != nil {
				b.Fatal(err)
			}
			if sent++; i%64 == 63 || i == n-1 { // so that no queue runs over
				l.arrived(b, to.IfName, sent)
			}
		}
	}
	all()
	var cached, purged, purge time.Duration
	rounds := 0
	for b.Loop() {
		all()
		start := l.busy(b)
		all()
		cached += l.busy(b) - start
		start = l.busy(b)
		if _, err := control(b.Context(), l.RunDir, purgeCommand); err != nil {
			b.Fatal(err)
		}
		purge += l.busy(b) - start
		start = l.busy(b)
		all()
		purged += l.busy(b) - start
		rounds++
	}
	flows := l.drv.daemon.readTableUsage(b.Context())[tableDatapath].Entries
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(rounds*n) }
	b.ReportMetric(float64(flows), "flows")
	b.ReportMetric(each(purge), "us-purge/flow")
	b.ReportMetric(each(cached), "us-cached/packet")
	b.ReportMetric(each(purged), "us-purged/packet")
	b.ReportMetric(0, "ns/op")
}

// arrived waits until the switch has sent so many packets or more to a port.
func (l *live) arrived(b *testing.B, port string, n uint64) {
	b.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		ports, err := l.drv.conns.sw.PortStats(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		var came uint64
		for _, p := range ports {
			if p.Port == l.drv.flows.pic.numbers[port] {
				came = p.TxPackets
			}
		}
		if came >= n {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d packets have come", came, n)
		}
	}
}
