//go:build integration

package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/lab"
)

// pairUp builds two hosts with a server and a client of one group with a
// policy, so that the traffic is tracked and judged.
func pairUp(t *testing.T, name string) *cluster {
	t.Helper()
	c := up(t, name, 2)
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
	c.wants("c s tcp/80", lab.OK)
	c.wants("s c tcp/80", lab.OK)
	return c
}

// iperf is the part of iperf3's report that the tests look at.
type iperf struct {
	Error string `json:"error"`
	End   struct {
		Sent struct {
			Seconds     float64 `json:"seconds"`
			Bits        float64 `json:"bits_per_second"`
			Retransmits int     `json:"retransmits"`
		} `json:"sum_sent"`
		Received struct {
			Bits float64 `json:"bits_per_second"`
		} `json:"sum_received"`
	} `json:"end"`
	Intervals []struct {
		Sum struct {
			Start float64 `json:"start"`
			Bits  float64 `json:"bits_per_second"`
		} `json:"sum"`
	} `json:"intervals"`
}

// stream runs iperf3 between c and s for some seconds at a rate and with bursts
// that leave a busy machine room.
func (c *cluster) stream(ctx context.Context, seconds int) (iperf, error) {
	var r iperf
	server := c.space("s").Command(ctx, "iperf3", "-s", "-1")
	if err := server.Start(); err != nil {
		return r, err
	}
	defer func() {
		_ = server.Process.Kill() // it ends by itself after one client
		_ = server.Wait()
	}()
	probe := lab.Target{Proto: "tcp", Addr: c.addr("s", "4"), Port: 5201}
	err := lab.Until(ctx, "iperf3 to listen", func(ctx context.Context) error {
		b, err := c.space("s").Command(ctx, "ss", "-Hltn", "sport", "= :5201").CombinedOutput()
		if err == nil && len(b) == 0 {
			err = fmt.Errorf("%s is closed", probe)
		}
		return err
	})
	if err != nil {
		return r, err
	}
	cmd := c.space("c").Command(ctx, "iperf3", "-c", c.addr("s", "4").String(), "-t", strconv.Itoa(seconds), "-b", "20M", "-l", "8K", "--fq-rate", "25M", "-i", "0.1", "--json")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, err
	}
	if r.Error != "" {
		return r, fmt.Errorf("iperf3: %s", r.Error)
	}
	return r, nil
}

// stall is the longest time without a byte, by intervals of 0.1 s.
func (r iperf) stall() time.Duration {
	longest, run := 0, 0
	for _, i := range r.Intervals {
		if run++; i.Sum.Bits > 0 {
			run = 0
		}
		longest = max(longest, run)
	}
	return time.Duration(longest) * 100 * time.Millisecond
}

// flows waits until the stream from c to s is established and then until s has
// received so many more frames: the traffic goes on while something happens.
func (c *cluster) flows(ctx context.Context, frames uint64) error {
	err := lab.Until(ctx, "iperf3's connection", func(ctx context.Context) error {
		b, err := c.space("c").Command(ctx, "ss", "-Htn", "state", "established", "dport", "= :5201").CombinedOutput()
		if err == nil && strings.Count(string(b), "\n") < 2 { // control and data
			err = errors.New("it is not there yet")
		}
		return err
	})
	if err != nil {
		return err
	}
	first, err := c.received("s")
	if err != nil {
		return err
	}
	return lab.Until(ctx, fmt.Sprintf("%d more frames at s", frames), func(context.Context) error {
		now, err := c.received("s")
		if err == nil && now < first+frames {
			err = fmt.Errorf("only %d", now-first)
		}
		return err
	})
}

// received returns how many frames a container has received.
func (c *cluster) received(name string) (n uint64, err error) {
	err = c.space(name).Do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			n = l.Attrs().Statistics.RxPackets
		}
		return err
	})
	return n, err
}

// traffic runs iperf3 and pings every 10 ms, over both families and on one
// host, while do runs.
func (c *cluster) traffic(seconds int, do func(ctx context.Context) error) (iperf, map[string]lab.PingStats) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Duration(seconds+30)*time.Second)
	defer cancel()
	pinging, stop := context.WithCancel(ctx)
	defer stop()
	var r iperf
	names := []string{"across hosts", "across hosts, IPv6", "on one host"}
	stats := make([]lab.PingStats, len(names))
	var pings, g errgroup.Group
	for i, to := range []struct{ name, family string }{{"s", "4"}, {"s", "6"}, {"near", "4"}} {
		pings.Go(func() (err error) {
			stats[i], err = c.space("c").Ping(pinging, c.addr(to.name, to.family), 10*time.Millisecond)
			return err
		})
	}
	g.Go(func() (err error) { r, err = c.stream(ctx, seconds); return err })
	g.Go(func() error { return do(ctx) })
	if err := g.Wait(); err != nil {
		c.t.Error(err)
	}
	stop()
	if err := pings.Wait(); err != nil {
		c.t.Error(err)
	}
	out := map[string]lab.PingStats{}
	for i, n := range names {
		out[n] = stats[i]
		c.t.Logf("ping every 10 ms %s: %s", n, stats[i])
	}
	c.t.Logf("iperf3: %.1f Mbit/s for %.1f s, %d retransmits, longest stall %v", r.End.Received.Bits/1e6, r.End.Sent.Seconds, r.End.Sent.Retransmits, r.stall())
	return r, out
}

// TestRestartNetplugin checks that killing and starting netplugin, twice on
// each host, loses no packet and breaks no connection (1.x: 7-10 s of traffic).
// A busy machine loses packets without that, so three tries are made: what a
// restart loses, it loses every time.
func TestRestartNetplugin(t *testing.T) {
	need(t, "/usr/bin/iperf3")
	c := pairUp(t, "agent")
	var lost []string
	for try := range 3 {
		lost = nil
		r, pings := c.traffic(8, func(ctx context.Context) error {
			for range 2 {
				for _, h := range c.Hosts() {
					if err := c.flows(ctx, 1500); err != nil {
						return err
					}
					start := time.Now()
					if err := h.RestartAgent(ctx); err != nil {
						return err
					}
					t.Logf("netplugin of %s killed and ready again after %v", h.Name, time.Since(start).Round(time.Millisecond))
				}
			}
			return nil
		})
		for name, p := range pings {
			if p.Lost() > 0 || p.Sent < 400 {
				lost = append(lost, fmt.Sprintf("ping %s: %s, want none lost of at least 400", name, p))
			}
		}
		if r.stall() > 300*time.Millisecond {
			lost = append(lost, fmt.Sprintf("iperf3 stood still for %v", r.stall()))
		}
		if len(lost) == 0 {
			t.Logf("nothing lost, at try %d", try+1)
			break
		}
	}
	for _, l := range lost {
		t.Error(l)
	}
	c.wants("s c tcp/80", lab.OK)
}

// TestRestartVswitchd checks that flows are back without anyone's help after
// ovs-vswitchd died, that new connections work within 2 s of its start, and
// measures what became of established ones.
func TestRestartVswitchd(t *testing.T) {
	need(t, "/usr/bin/iperf3")
	c := pairUp(t, "vswitchd")
	var down, fresh time.Duration
	r, pings := c.traffic(12, func(ctx context.Context) error {
		h := c.host("h2")
		if err := c.flows(ctx, 3000); err != nil {
			return err
		}
		start := time.Now()
		if err := h.RestartVswitchd(ctx); err != nil {
			return err
		}
		back := time.Now()
		down = back.Sub(start)
		err := lab.Until(ctx, "a new connection", func(context.Context) error {
			if a := c.ask("c s tcp/80", 100*time.Millisecond); a.Verdict != lab.OK {
				return fmt.Errorf("it is %s", a)
			}
			return nil
		})
		fresh = time.Since(back)
		return err
	})
	t.Logf("ovs-vswitchd dead until ready: %v; first new connection %v after that", down.Round(time.Millisecond), fresh.Round(time.Millisecond))
	if fresh > 2*time.Second {
		t.Errorf("new connections work after %v, want at most 2 s", fresh)
	}
	survived := "was broken"
	if n := len(r.Intervals); n > 0 && r.Intervals[n-1].Sum.Bits > 0 {
		survived = fmt.Sprintf("went on after %v", r.stall())
	}
	t.Logf("the established TCP connection %s; established pings stood still for %v", survived, pings["across hosts"].Gap.Round(time.Millisecond))
	c.wants("c s udp/80", lab.OK)
	c.wants("s c icmp 6", lab.OK)
}
