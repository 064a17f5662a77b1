//go:build integration

package slice

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	drv "github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestRefusedConnectionsCost has a container begin 10,000 connections a second to a
// service without providers, each by a port of its own: netplugin,
// the switch, the sender and all of the machine's softirqs, in which the kernel does
// eBPF's work, take a bounded part of a processor, which the test tells; and another
// container's connections are answered.
func TestRefusedConnectionsCost(t *testing.T) { onOne(t, both, refusedConnectionsCost) }

func refusedConnectionsCost(t *testing.T, driver string) {
	const rounds, each = 300, 100 // a round every 10 ms
	c := up(t, driver, "refuse", 1)
	vip := netip.MustParseAddr("10.1.0.100")
	c.netctl("tenant create blue", "network create -t blue -s 10.1.0.0/24 -g 10.1.0.254 net",
		"service create -t blue -s net -l app=nobody -p 1000:80:TCP --ip "+vip.String()+" web")
	c.add(spec("loud", "h1", "blue/net"), spec("quiet", "h1", "blue/net"), spec("d", "h1", "blue/net"))
	c.wants("quiet d tcp/80", testcluster.OK)
	if err := testcluster.Until(t.Context(), "the service to refuse", func(ctx context.Context) error {
		a := c.space("loud").Probe(ctx, testcluster.Target{Proto: "tcp", Addr: vip, Port: 1000}, time.Second)
		if a.Verdict != testcluster.Refused {
			return fmt.Errorf("it is %s", a)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	h := c.host("h1")
	of := map[string]int{"netplugin": h.Agent().PID, "the sender": os.Getpid()}
	if driver == testcluster.DriverOVS {
		of["ovs-vswitchd"] = h.Switch.Vswitchd().PID
	}
	used := func() map[string]time.Duration {
		out := map[string]time.Duration{}
		for name, pid := range of {
			out[name] = processorTime(t, pid)
		}
		out["the machine's softirqs"] = softirqTime(t)
		return out
	}
	p := c.opening("loud", vip, desired.RouterMAC, model.ProtoTCP)
	share := map[string]map[string]float64{}
	for _, what := range []string{"idle", "10,000 a second"} {
		before, begin := used(), time.Now()
		pace := time.NewTicker(10 * time.Millisecond)
		for i := range rounds {
			if what != "idle" {
				if err := c.floodPorts(t.Context(), "loud", p, each, i*each, false); err != nil {
					t.Fatal(err)
				}
			}
			if i%20 == 0 {
				if a := c.ask("quiet d tcp/80", patience); a.Verdict != testcluster.OK {
					t.Errorf("%s: another container's connection: %s", what, a)
				}
			}
			<-pace.C
		}
		pace.Stop()
		took := time.Since(begin)
		share[what] = map[string]float64{}
		for name, d := range used() {
			share[what][name] = math.Round(1000*(d-before[name]).Seconds()/took.Seconds()) / 1000
		}
		rate := 0.0
		if what != "idle" {
			rate = rounds * each / took.Seconds()
		}
		t.Logf("%s, %s: %.0f connections a second, shares of a processor: %v", driver, what, rate, share[what])
	}
	for name, most := range map[string]float64{"netplugin": 0.1, "ovs-vswitchd": 0.5, "the sender": 0.5, "the machine's softirqs": 1} {
		if n := share["10,000 a second"][name]; n > most {
			t.Errorf("%s takes %.2f of a processor, want at most %.1f", name, n, most)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := testcluster.Until(ctx, "all to be counted", func(context.Context) error { // which the switch does later
		if n := c.drops(h)[drv.DropNoProvider]; n < rounds*each {
			return fmt.Errorf("%d are", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// softirqTime is what all processors have spent in softirqs, by proc(5).
func softirqTime(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	var user, nice, system, idle, wait, irq, softirq int
	if _, err := fmt.Sscanf(string(b), "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softirq); err != nil {
		t.Fatal(err)
	}
	return time.Duration(softirq) * 10 * time.Millisecond
}
