//go:build integration

package slice

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// TestFlowLogSurvivesAFlood has one container open some 10,000 connections a second that a rule
// logs, equal ones and all different, beside another container that opens few. netplugin
// uses a bounded part of a processor, and the few are still logged, since each container
// has a share (docs/reference/restrictions.md).
func TestFlowLogSurvivesAFlood(t *testing.T) { onOne(t, both, flowLogFlood) }

func flowLogFlood(t *testing.T, driver string) {
	const (
		rounds, each = 300, 100 // a round every 10 ms
		quiet        = 15
		most         = 0.35 // of a processor
	)
	path := filepath.Join(t.TempDir(), "flow.log")
	c := up(t, driver, "fflood", 1, func(cfg *testcluster.Config) { cfg.AgentArgs = []string{"--flow-log", path} })
	c.netctl("tenant create blue", "network create -t blue -e vxlan -s 10.1.1.0/24 net")
	web, db := map[string]string{"app": "web"}, map[string]string{"app": "db"}
	c.add(labelled("loud", "h1", web), labelled("quiet", "h1", web), labelled("d", "h1", db))
	c.policy("db", "--label", "app=db", "--rule", "in allow app=web log")
	c.wants("loud d tcp/80", testcluster.OK)
	c.wants("quiet d tcp/80", testcluster.OK)
	pid, calm := c.host("h1").Agent().PID, c.scrape()
	for _, different := range []bool{false, true} {
		seen := len(flowLines(t, path))
		begin, before := time.Now(), processorTime(t, pid)
		done := make(chan error, 1)
		go func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			p := c.opening("loud", c.addr("d", "4"), c.mac("d"), model.ProtoTCP)
			for i := range rounds {
				err := c.floodPorts(t.Context(), "loud", p, each, i*each, different)
				if err != nil {
					done <- err
					return
				}
				<-pace.C
			}
			done <- nil
		}()
		pace := time.NewTicker(200 * time.Millisecond)
		defer pace.Stop()
		for range quiet {
			<-pace.C
			if a := c.ask("quiet d tcp/80", time.Second); a.Verdict != testcluster.OK {
				t.Errorf("beside the flood: %s", a)
			}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		took := time.Since(begin)
		used := (processorTime(t, pid) - before).Seconds() / took.Seconds()
		var told map[string]uint64
		lost, lines := uint64(0), 0
		deadline := time.Now().Add(5 * time.Second)
		for tick := time.NewTicker(100 * time.Millisecond); ; <-tick.C {
			told, lost = map[string]uint64{}, 0
			list := flowLines(t, path)[seen:]
			lines = len(list)
			for _, e := range list {
				if e.Event == api.FlowLost {
					lost += e.Count
				}
				told[e.From.Container] += e.Count
			}
			if told["bfflood"+driver[:1]+"-quiet"] >= quiet || time.Now().After(deadline) {
				tick.Stop()
				break
			}
		}
		t.Logf("%s, all different %v: %d packets in %v: netplugin %.0f %% of a processor, %d lines, told %v, %d lost",
			driver, different, rounds*each, took.Round(time.Millisecond), 100*used, lines, told, lost)
		if n := told["bfflood"+driver[:1]+"-quiet"]; n < quiet*3/4 {
			t.Errorf("of the quiet container's %d connections %d are told", quiet, n)
		}
		if told["bfflood"+driver[:1]+"-loud"] == 0 {
			t.Error("nothing of the loud container is told")
		}
		if used > most {
			t.Errorf("netplugin takes %.0f %% of a processor", 100*used)
		}
	}
	c.alertsFire(calm, c.scrapedWhen("lines to be lost", map[string]float64{"contiv_netplugin_flow_log_lost_total": 1}), "ContivFlowLogLoses")
	c.spoofs()
}

// spoofs has a container send packets by another's address, 1,500 and more a minute in the
// time that is played: an alert fires.
func (c *cluster) spoofs() {
	c.t.Helper()
	play := testenv.Replay{Minutes: 1, Steps: []testenv.Scrape{testenv.Scrape(c.scrape())}}
	p := c.opening("loud", c.addr("d", "4"), c.mac("d"), model.ProtoTCP)
	p.Src = c.addr("quiet", "4")
	for minute := 1; minute < 10; minute++ {
		var now scraped
		c.until("forged packets to be counted", func(ctx context.Context) error {
			if err := c.floodPorts(ctx, "loud", p, 200, 0, false); err != nil { // as many as Open vSwitch takes at once
				return err
			}
			now = c.scrape()
			if n, _ := now.of(`contiv_netplugin_drops_total reason="spoof"`); n < float64(1500*minute) {
				return fmt.Errorf("%v are", n)
			}
			return nil
		})
		play.Steps = append(play.Steps, testenv.Scrape(now))
	}
	play.Fires(c.t, len(play.Steps)-1, "ContivSpoofing")
	play.Run(c.t)
}

// processorTime is what a process has used of processors, by proc(5).
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	ticks := 0
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
