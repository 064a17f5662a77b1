package agent

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
)

// wayOf is a host whose way to netmaster leads by an interface that may be made and taken
// back.
type wayOf struct {
	t       *testing.T
	dir     string
	now     time.Time
	made    map[string]bool
	down    map[string]int // how often it was taken back; 0 = it is not now
	diverts string         // the network whose interface leads the way elsewhere
	l       *lifeline
	h       *hostchanges.History
}

var netmaster = netip.MustParseAddr("10.9.0.1")

func newWay(t *testing.T) *wayOf {
	t.Helper()
	w := &wayOf{t: t, dir: t.TempDir(), now: time.Unix(1_000_000, 0), made: map[string]bool{}, down: map[string]int{}}
	w.start()
	return w
}

// start starts netplugin, on what an earlier one left.
func (w *wayOf) start() {
	w.h = hostchanges.Open(w.dir, slog.New(slog.DiscardHandler))
	w.l = newLifeline(lifeline{
		netmasters: func() []netip.Addr { return []netip.Addr{netmaster} },
		path: func(to []netip.Addr) map[netip.Addr]string {
			out := map[netip.Addr]string{}
			for _, a := range to {
				out[a] = w.Path()
			}
			return out
		},
		changes: w.h, log: slog.New(slog.DiscardHandler), now: func() time.Time { return w.now },
		follow: func(c hostchanges.Change) error {
			for _, o := range c.Objects {
				if delete(w.down, o); c.State == hostchanges.Reverting {
					w.down[o]++
				} else {
					w.h.Note(c.Kind, o) // as what is made again is noted
				}
			}
			return nil
		},
	})
}

// kill ends netplugin; what is not in its file is lost.
func (w *wayOf) kill() {
	w.h.Save()
	w.l = nil
}

func (w *wayOf) makes(k string) {
	w.made[k] = true
	w.h.Note(hostchanges.Infra, k)
}

func (w *wayOf) Path() string {
	if w.made[w.diverts] && w.down[w.diverts] == 0 {
		return "by the network"
	}
	return "by the gateway"
}

// runs has reports be sent for a time; answers says whether a netmaster answers.
func (w *wayOf) runs(d time.Duration, answers func() bool) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(time.Second) {
		w.l.ask()
		if answers() {
			w.l.answered()
		} else {
			w.l.noAnswer()
		}
	}
}

// isDown checks which interfaces are taken back.
func (w *wayOf) isDown(when string, want ...string) {
	w.t.Helper()
	var got []string
	for _, k := range []string{infraA, infraB} {
		if w.down[k] > 0 {
			got = append(got, k)
		}
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: taken back: %v, want %v", when, got, want)
	}
}

const (
	infraA = "blue:a"
	infraB = "blue:b"
)

var (
	yes = func() bool { return true }
	no  = func() bool { return false }
)

// reached is whether netmaster is reached, by the gateway only.
func (w *wayOf) reached() bool { return w.Path() == "by the gateway" }

// TestChangeThatCutsTheWayIsTakenBack: of the changes since a netmaster answered the newest
// is taken back, and stays back when a netmaster then answers.
func TestChangeThatCutsTheWayIsTakenBack(t *testing.T) {
	w := newWay(t)
	w.runs(10*time.Second, yes)
	w.makes(infraA)
	w.runs(10*time.Second, yes)
	w.diverts = infraB
	w.makes(infraB)
	w.runs(2*time.Minute, w.reached)
	w.isDown("after two minutes", infraB)
	w.runs(10*time.Minute, yes)
	w.isDown("later", infraB)
	w.kill()
	w.start()
	w.runs(10*time.Minute, no)
	w.isDown("netplugin was restarted, and netmaster is away", infraB)
	w.runs(time.Minute, yes)
	w.isDown("at last", infraB)
}

// TestOlderChangeIsTakenBackWhenTheNewestIsHarmless: a change that is taken back in vain is
// applied again, and the next older one since a netmaster answered is tried.
func TestOlderChangeIsTakenBackWhenTheNewestIsHarmless(t *testing.T) {
	w := newWay(t)
	w.runs(10*time.Second, yes)
	w.diverts = infraA
	w.makes(infraA)
	w.runs(time.Second, no)
	w.makes(infraB)
	seen := false
	w.runs(10*time.Minute, func() bool { seen = seen || w.down[infraB] > 0; return w.reached() })
	w.isDown("after ten minutes", infraA)
	if !seen {
		t.Error("the newest was not tried")
	}
}

// TestHarmlessChangeIsAppliedAgain: a change that is taken back in vain is applied again,
// once for all, also across restarts of netplugin.
func TestHarmlessChangeIsAppliedAgain(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		w := newWay(t)
		w.runs(10*time.Second, yes)
		w.diverts = infraA
		w.makes(infraA)
		suspended := 0
		count := func() bool {
			if w.down[infraA] > 0 {
				suspended++
			}
			return false
		}
		w.runs(2*time.Minute, count)
		if restarts {
			w.kill()
			w.start()
		}
		w.runs(10*time.Minute, count)
		w.isDown("at last")
		if suspended == 0 || suspended > int(revertTime/time.Second)+2 {
			t.Errorf("restarts %v: it was down for %d s", restarts, suspended)
		}
	}
}

// TestRestartDuringAnOutageGoesOn: netplugin that is restarted while no netmaster answers
// takes back what an earlier process made, keeps back what that took back, and goes on with
// the next older change.
func TestRestartDuringAnOutageGoesOn(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Second, 40 * time.Second, 60 * time.Second, 70 * time.Second} {
		w := newWay(t)
		w.runs(10*time.Second, yes)
		w.diverts = infraA
		w.makes(infraA)
		w.makes(infraB)
		w.runs(after, w.reached)
		w.kill()
		w.start()
		w.runs(5*time.Minute, w.reached)
		w.isDown(after.String(), infraA)
		w.runs(time.Minute, w.reached)
		w.kill()
		w.start()
		w.runs(time.Minute, w.reached)
		w.isDown(after.String()+" and another restart", infraA)
	}
}

// TestRestartOfNetmasterRollsNothingBack: neither a netmaster that is back within 30 s of a
// change, nor one that is away for long while the path is as it was, has anything taken back.
func TestRestartOfNetmasterRollsNothingBack(t *testing.T) {
	for what, diverts := range map[string]string{"the path changed": infraA, "the path is as it was": "none"} {
		w := newWay(t)
		w.runs(10*time.Second, yes)
		w.diverts = diverts
		w.makes(infraA)
		w.runs(rollbackAfter-2*time.Second, no)
		w.isDown(what + ": within 30 s")
		if diverts != infraA {
			w.runs(10*time.Minute, no)
		}
		w.runs(time.Minute, yes)
		w.isDown(what)
	}
}
