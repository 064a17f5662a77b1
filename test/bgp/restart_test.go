//go:build integration

package bgp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/netplugin/bgp"
)

// speakerEnv makes the test program a speaker: what its value says.
const speakerEnv = "CONTIV_TEST_BGP_SPEAKER"

// speaker is a speaker that has a process to lose.
type speaker struct {
	Config     bgp.Config
	Announced  []bgp.Announcement
	Restarting bool
}

// speak is the speaker's process, which somebody kills.
func speak() int {
	var s speaker
	err := json.Unmarshal([]byte(os.Getenv(speakerEnv)), &s)
	if err == nil {
		var sp *bgp.Speaker
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		if sp, err = bgp.Start(context.Background(), s.Config, bgp.Options{Log: log, Restarting: s.Restarting}); err == nil {
			err = sp.Announce(context.Background(), s.Announced)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	select {}
}

// start starts it; what it returns kills it.
func (s speaker) start(t *testing.T) (kill func()) {
	t.Helper()
	what, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c := exec.CommandContext(context.Background(), "/proc/self/exe")
	c.Env = append(os.Environ(), speakerEnv+"="+string(what))
	c.Stdout, c.Stderr = &log, &log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill = func() {
		if killed {
			return
		}
		killed = true
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()         // killed
		if t.Failed() {
			t.Logf("speaker: %s", log.String())
		}
	}
	t.Cleanup(kill)
	return kill
}

// In one configuration FRR keeps the routes of a speaker that is killed and comes
// back, whose BFD falls silent too, and drops those of a host that is dead.
func TestRoutersKeepRoutesOverARestart(t *testing.T) {
	need(t)
	frr(t)
	vtysh(t, "configure terminal", "router bgp 65100", "neighbor 10.0.0.1 bfd 5 500 500")
	in := follow(t, "frr")
	s := speaker{Config: config(), Announced: []bgp.Announcement{announcement("10.7.0.9/32")}}
	s.Config.Neighbors = s.Config.Neighbors[:1]
	s.Config.Neighbors[0].BFD = &bgp.BFD{Interval: 500 * time.Millisecond, Multiple: 5} // slow, since so may be the machine
	bfdUp := func(up bool) {
		t.Helper()
		until(t, fmt.Sprintf("BFD (up: %t)", up), func() (bool, string) {
			out := vtysh(t, "show bfd peers json")
			var peers []struct{ Status string }
			if err := json.Unmarshal([]byte(out), &peers); err != nil {
				return false, out
			}
			return len(peers) == 1 && (peers[0].Status == "up") == up, out
		})
	}
	kill := s.start(t)
	in.wait(t, "10.7.0.9", true)
	bfdUp(true)
	again := func(what string, noticed bool) {
		t.Helper()
		kill()
		if noticed {
			bfdUp(false)
		}
		s.Restarting = true
		prefix := fmt.Sprintf("10.7.1.%d", len(s.Announced))
		s.Announced = append(s.Announced, announcement(prefix+"/32"))
		kill = s.start(t)
		in.wait(t, prefix, true)
		bfdUp(true)
		if at := in.went("10.7.0.9"); !at.IsZero() {
			t.Fatalf("%s: the route went at %s", what, at)
		}
	}
	again("back before BFD noticed", false)
	again("back after BFD noticed", true)

	begin := time.Now()
	run(t, "ip", "-n", "sw", "link", "set", "host0", "nomaster")
	t.Cleanup(func() { run(t, "ip", "-n", "sw", "link", "set", "host0", "master", "bridge0") })
	t.Logf("a dead host's route went after %s", in.wait(t, "10.7.0.9", false).Sub(begin))
}
