//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// pairUp builds two hosts with a server and a client of one group with a
// policy, so that the traffic is tracked and judged.
func pairUp(t *testing.T, driver, name string, change ...func(*testcluster.Config)) *cluster {
	t.Helper()
	c := up(t, driver, name, 2, change...)
	c.netctl(
		"tenant create blue",
		"network create -t blue -e vxlan -s 10.1.1.0/24 --subnetv6 fd00:1::/64 net",
		"group create -t blue net clients",
		"policy create -t blue p",
		"policy rule-add -t blue -d in -p 1 -j deny p nobody",
		"policy rule-add -t blue -d in -p 10 -g clients -j allow p clients",
		"group create -t blue -p p net servers",
	)
	c.add(spec("c", "h1", "blue/net/clients"), spec("s", "h2", "blue/net/servers"), spec("near", "h1", "blue/net/servers"))
	c.wants("c s tcp/80", testcluster.OK)
	c.wants("s c tcp/80", testcluster.OK)
	return c
}

// TestRestartOfNetpluginLosesNothing checks that killing and starting netplugin, twice on
// each host, loses no packet and breaks no connection (1.x: 7-10 s of traffic).
// A busy machine loses packets without that: the same traffic without a restart,
// before and after, says how many.
func TestRestartOfNetpluginLosesNothing(t *testing.T) { onOne(t, all, restartNetplugin) }

func restartNetplugin(t *testing.T, driver string) {
	c := pairUp(t, driver, "agent")
	// A switch in user space competes with the starting netplugin for the
	// processors that forward, and drops what it has no time for.
	part, slack := 2<<20, 300*time.Millisecond
	if driver == testcluster.DriverEBPF {
		c.load, part, slack = 5, 8<<20, 50*time.Millisecond
	}
	run := func(between func(context.Context, *testcluster.Host) error) (time.Duration, map[string]testcluster.PingStats) {
		return c.traffic(func(ctx context.Context, s *stream) error {
			for range 2 {
				for _, h := range c.Hosts() {
					if err := errors.Join(s.more(ctx, part), between(ctx, h)); err != nil {
						return err
					}
				}
			}
			return s.more(ctx, part)
		})
	}
	var slowest time.Duration
	quiet := func() (time.Duration, map[string]testcluster.PingStats) {
		return run(func(context.Context, *testcluster.Host) error { return nil })
	}
	stall1, pings1 := quiet()
	stall, pings := run(func(ctx context.Context, h *testcluster.Host) error {
		start := time.Now()
		err := h.RestartAgent(ctx)
		slowest = max(slowest, time.Since(start))
		return err
	})
	stall2, pings2 := quiet()
	t.Logf("four restarts, each ready within %v", slowest.Round(time.Millisecond))
	for name, p := range pings {
		// As the quiet runs fared, and a little more: what a restart loses, it loses
		// at a stretch.
		if gap := 2*max(pings1[name].Gap, pings2[name].Gap) + slack; p.Gap > gap || p.Sent < 100 {
			t.Errorf("ping %s: %s; without restarts %s and %s", name, p, pings1[name], pings2[name])
		}
	}
	if bound := 2*max(stall1, stall2) + 2*slack; stall > bound {
		t.Errorf("TCP stood still for %v, without restarts for %v and %v", stall, stall1, stall2)
	}
	c.wants("s c tcp/80", testcluster.OK)
}

// TestFlowsAreBackAfterVswitchdDied checks that flows are back without anyone's help after
// ovs-vswitchd died, that new connections work within 2 s of its start, and
// measures what became of established ones. Where a host talks to netmaster and
// etcd through its switch, it cannot meanwhile; so it cannot here.
func TestFlowsAreBackAfterVswitchdDied(t *testing.T) {
	on(t, 1, []string{testcluster.DriverOVS}, restartVswitchd)
}

func restartVswitchd(t *testing.T, driver string) {
	c := pairUp(t, driver, "vswitchd")
	var down, fresh time.Duration
	survived := "was broken"
	stall, pings := c.traffic(func(ctx context.Context, s *stream) error {
		h := c.host("h2")
		if err := s.more(ctx, 2<<20); err != nil {
			return err
		}
		if err := h.NS.SetLink("ctl0", false); err != nil {
			return err
		}
		start := time.Now()
		if err := h.Switch.RestartVswitchd(ctx); err != nil {
			return err
		}
		back := time.Now()
		down = back.Sub(start)
		err := testcluster.Until(ctx, "a new connection", func(context.Context) error {
			if a := c.ask("c s tcp/80", 100*time.Millisecond); a.Verdict != testcluster.OK {
				return fmt.Errorf("it is %s", a)
			}
			return nil
		})
		fresh = time.Since(back)
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if s.more(short, 1<<20) == nil {
			survived = "went on"
		}
		return errors.Join(err, h.NS.SetLink("ctl0", true))
	})
	t.Logf("ovs-vswitchd dead until ready: %v; first new connection %v after that", down.Round(time.Millisecond), fresh.Round(time.Millisecond))
	if fresh > 2*time.Second {
		t.Errorf("new connections work after %v, want at most 2 s", fresh)
	}
	t.Logf("the established TCP connection stood still for %v and %s; established pings stood still for %v", stall.Round(time.Millisecond), survived, pings["across hosts"].Gap.Round(time.Millisecond))
	c.wants("c s udp/80", testcluster.OK)
	c.wants("s c icmp 6", testcluster.OK)
	c.add(spec("after", "h2", "blue/net/servers"))
	c.wants("c after tcp/80", testcluster.OK)
}
