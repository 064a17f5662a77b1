//go:build integration

package slice

import (
	"testing"
	"time"
)

// TestPodRates: a container has the limits that its runtime hands over (the capability
// bandwidth), on real traffic, also when netplugin was killed and started again; others
// beside it have none. Only how long it takes at least is asked: nothing is late on a
// machine that is busy.
func TestPodRates(t *testing.T) {
	shared(t)
	onOne(t, both, podRates)
}

func podRates(t *testing.T, driver string) {
	c := up(t, driver, "rates", 2)
	c.netctl("network create -e vxlan -s 10.1.1.0/24 net")
	limited := spec("slow", "h1", "default/net")
	limited.Bandwidth = map[string]uint64{"ingressRate": 4_000_000, "ingressBurst": 4294967295, "egressRate": 2_000_000, "egressBurst": 80_000}
	c.add(limited, spec("near", "h1", "default/net"), spec("far", "h2", "default/net"))
	const bytes = 500_000
	expect := func(when string) {
		t.Helper()
		for _, tt := range []struct {
			from, to string
			rate     int // bits a second, 0 = no limit
		}{{"slow", "near", 2_000_000}, {"slow", "far", 2_000_000}, {"near", "slow", 4_000_000}, {"far", "slow", 4_000_000}, {"near", "far", 0}} {
			took, err := c.send(tt.from, tt.to, "4", bytes)
			if err != nil {
				t.Fatalf("%s: %s to %s: %v", when, tt.from, tt.to, err)
			}
			// What a burst, and the sockets' and queues' places, take at once is not among it.
			if tt.rate > 0 && took < time.Duration(bytes-50_000)*8*time.Second/time.Duration(tt.rate) {
				t.Errorf("%s: %s to %s: %d bytes took %v at %d bits a second", when, tt.from, tt.to, bytes, took, tt.rate)
			}
			t.Logf("%s: %s to %s: %v", when, tt.from, tt.to, took)
		}
	}
	expect("attached")
	if err := c.host("h1").RestartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("after netplugin's restart")
}
