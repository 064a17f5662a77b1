//go:build integration

package slice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

const (
	day = 24 * time.Hour
	// attachSoon is how long a host may take, on a busy machine too, to attach a container.
	attachSoon = 20 * time.Second
)

// clocked is a secure cluster whose clocks can be set.
type clocked struct {
	*securing
	steps  int
	before []string // what the doctor finds while all clocks are right
}

// TestWrongClocksLoseNothing: netmaster and netplugins whose clocks are set by an hour and a day, forwards
// and back: of one host, of netmaster, of all. Nothing of what runs is lost or given up,
// containers are attached, a change waits on to be confirmed, who joins by a netmaster whose
// clock is ahead works when that is right again, and the doctor tells of each clock that
// differs until it does no more.
func TestWrongClocksLoseNothing(t *testing.T) {
	if !conformance.Full() {
		t.Skip("some minutes, and the library is compiled anew: -full")
	}
	set := filepath.Join(t.TempDir(), "bin")
	if err := testcluster.BuildWithClocks(t.Context(), ".", set); err != nil {
		t.Fatal(err)
	}
	on(t, 1, both, func(t *testing.T, driver string) {
		c := pairUp(t, driver, "clock", func(cfg *testcluster.Config) {
			cfg.Embedded, cfg.Consul, cfg.BinDir = true, "", set
			cfg.MasterArgs = append(cfg.MasterArgs, "--evict-after", "1m")
		})
		x := &clocked{securing: secured(c)}
		if err := x.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		var err error
		if x.before, err = x.finds(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("with clocks that are right the doctor finds: %q", x.before)
		most := 0
		if driver == testcluster.DriverOVS {
			most = 100 // a switch in user space drops what it has no time for; a cut would be more
		}
		for _, step := range []struct {
			name string
			do   func(context.Context) error
		}{{"a host's clock", x.ofHost}, {"all clocks", x.ofAll}, {"netmaster's clock", x.ofMaster}} {
			c.losesAtMost(most, step.name, func(ctx context.Context) error {
				if err := step.do(ctx); err != nil {
					return fmt.Errorf("%s: %w", step.name, err)
				}
				return nil
			})
		}
	})
}

// finds asks the doctor, and returns what it says without the clocks' differences.
func (x *clocked) finds(ctx context.Context, clocks ...string) (rest []string, err error) {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = testcluster.Until(limited, fmt.Sprintf("the doctor to tell of %q", clocks), func(context.Context) error {
		out, failed := x.anna(ctx, "doctor", "--json") // its code says that there are findings
		var d api.Diagnosis
		if err := json.NewDecoder(strings.NewReader(out[max(0, strings.IndexByte(out, '{')):])).Decode(&d); err != nil {
			return fmt.Errorf("%w: %w: %s", err, failed, out)
		}
		told := []string{}
		rest = nil
		for _, f := range d.Findings {
			if how, ok := strings.CutPrefix(f.Text, "its clock is "); ok {
				told = append(told, f.Where+": "+strings.TrimSuffix(how, " the answering netmaster's"))
			} else if !strings.HasPrefix(f.Text, "unconfirmed: ") { // of ofAll
				rest = append(rest, f.Where+": "+f.Text)
			}
		}
		if len(told) != len(clocks) || d.Answered != d.Hosts {
			return errors.New(out)
		}
		for i, t := range told {
			// By how much is known to the seconds in which it was asked.
			where, of, _ := strings.Cut(clocks[i], ": ")
			if !strings.HasPrefix(t, where+": ") || !offsetsAgree(t[len(where)+2:], of) {
				return fmt.Errorf("it says %q, want %q: %s", t, clocks[i], out)
			}
		}
		if x.before != nil {
			if besides := slices.DeleteFunc(slices.Clone(rest), func(f string) bool { return slices.Contains(x.before, f) }); len(besides) > 0 {
				return fmt.Errorf("it finds besides %q", besides)
			}
		}
		return nil
	})
	return append([]string{}, rest...), err
}

// offsetsAgree compares "59m59s ahead of" with "1h0m0s ahead of".
func offsetsAgree(got, want string) bool {
	g, gSide, _ := strings.Cut(got, " ")
	w, wSide, _ := strings.Cut(want, " ")
	x, err1 := time.ParseDuration(g)
	y, err2 := time.ParseDuration(w)
	return err1 == nil && err2 == nil && gSide == wSide && (x-y).Abs() < 10*time.Second
}

// works has all hosts attach a container, at once, and looks for what a clock may have ended.
func (x *clocked) works(ctx context.Context, clocks ...string) error {
	for _, h := range x.Hosts() {
		x.steps++
		began := time.Now()
		if err := x.securing.works(ctx, fmt.Sprint("clock", x.steps), h); err != nil {
			return err
		}
		if took := time.Since(began); took > attachSoon {
			return fmt.Errorf("%s attached a container within %v", h.Name, took)
		}
	}
	if _, err := x.finds(ctx, clocks...); err != nil {
		return err
	}
	out, err := x.anna(ctx, "endpoint", "ls", "-q")
	if n := len(strings.Fields(out)); err != nil || n != len(x.Containers()) {
		return fmt.Errorf("%d of %d endpoints are left: %w %s", n, len(x.Containers()), err, out)
	}
	return nil
}

// sets has the clock of some be ahead by each of these times, works after each, and does
// something at some of them.
func (x *clocked) sets(ctx context.Context, set func(time.Duration) error, differ func(by string) []string, at map[time.Duration]func(context.Context) error) error {
	for _, ahead := range []time.Duration{-time.Hour, -day, time.Hour, day, 0} {
		if err := set(ahead); err != nil {
			return err
		}
		var clocks []string
		switch {
		case ahead > 0:
			clocks = differ(ahead.String() + " ahead of")
		case ahead < 0:
			clocks = differ(ahead.Abs().String() + " behind")
		}
		err := x.works(ctx, clocks...)
		if do := at[ahead]; do != nil && err == nil {
			if err = do(ctx); err == nil {
				err = x.works(ctx, clocks...)
			}
		}
		if err != nil {
			return fmt.Errorf("%v ahead: %w", ahead, err)
		}
	}
	return nil
}

// ofHost sets h2's clock, and restarts its netplugin meanwhile.
func (x *clocked) ofHost(ctx context.Context) error {
	h := x.Hosts()[1]
	again := func(ctx context.Context) error { return errors.Join(h.KillAgent(), x.joins(ctx, h)) }
	return x.sets(ctx, h.SetClock, func(by string) []string { return []string{"host h2: " + by} },
		map[time.Duration]func(context.Context) error{-day: again, day: again})
}

// ofAll sets all clocks, while a change waits to be confirmed.
func (x *clocked) ofAll(ctx context.Context) error {
	line := "policy rule-add -t blue -d in -p 20 -j deny -l udp -P 80 --confirm-within 30m p clocks"
	if out, err := x.anna(ctx, strings.Fields(line)...); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	rule := func(want testcluster.Verdict) error {
		return testcluster.Until(ctx, "the rule to decide", func(context.Context) error {
			if a := x.ask("c s udp/80", time.Second); a.Verdict != want {
				return fmt.Errorf("it is %s, want %s", a, want)
			}
			return nil
		})
	}
	waits := func(ctx context.Context) error {
		id, err := x.anna(ctx, "pending", "-q")
		if id = strings.TrimSpace(id); err != nil || id == "" || strings.Contains(id, "\n") {
			return fmt.Errorf("waiting changes: %q %w", id, err)
		}
		return rule(testcluster.Denied)
	}
	confirmed := func(ctx context.Context) error {
		if err := waits(ctx); err != nil {
			return err
		}
		id, err := x.anna(ctx, "pending", "-q")
		if err != nil {
			return err
		}
		for _, line := range []string{"confirm " + id, "policy rule-rm -t blue p clocks"} {
			if out, err := x.anna(ctx, strings.Fields(line)...); err != nil {
				return fmt.Errorf("%s: %w: %s", line, err, out)
			}
		}
		return rule(testcluster.OK)
	}
	return x.sets(ctx, func(ahead time.Duration) error {
		err := x.SetMasterClock(ahead)
		for _, h := range x.Hosts() {
			err = errors.Join(err, h.SetClock(ahead))
		}
		return err
	}, func(string) []string { return nil }, map[time.Duration]func(context.Context) error{-day: waits, day: confirmed})
}

// ofMaster sets netmaster's clock, and restarts netmaster meanwhile. A host joins while the
// clock is ahead, and a token of that time is refused when it is right again.
func (x *clocked) ofMaster(ctx context.Context) error {
	again := func(ctx context.Context) error { return x.netmaster(ctx, x.anna, "--secure") }
	token := func(ctx context.Context) (string, error) {
		out, err := x.anna(ctx, "cluster", "token", "-q", "--host", "h2")
		return strings.TrimSpace(out), err
	}
	door, late := net.JoinHostPort(x.addr, "9005"), ""
	joins := func(ctx context.Context) error {
		h := x.Hosts()[1]
		mine, err := token(ctx)
		if err != nil {
			return fmt.Errorf("%w: %s", err, mine)
		}
		if late, err = token(ctx); err != nil {
			return fmt.Errorf("%w: %s", err, late)
		}
		return errors.Join(h.KillAgent(), x.joins(ctx, h, "--join", door, "--token", mine))
	}
	if err := x.sets(ctx, x.SetMasterClock, func(by string) []string {
		other := strings.NewReplacer("ahead of", "behind", "behind", "ahead of").Replace(by)
		return []string{"host h1: " + other, "host h2: " + other}
	}, map[time.Duration]func(context.Context) error{-day: again, day: joins}); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := x.Master.Command(limited, filepath.Join(x.Config().BinDir, "netplugin"), "--host", "h2", "--driver", "fake", "--ctrl-ip", x.addr,
		"--join", door, "--token", late, "--state-dir", x.t.TempDir(), "--rest-address", "none").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "since a clock was set") {
		return fmt.Errorf("a token that was made while netmaster's clock was ahead: %w: %s", err, out)
	}
	return nil
}
