package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// leading is a netmaster's part as leader, for tests of absences.
type leading struct {
	c     *harness
	end   context.CancelFunc
	parts sync.WaitGroup
}

// watchHosts runs a watch; stop ends it and the cluster.
func watchHosts(c *harness) (ctx context.Context, w *liveness.Watch, stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	w = c.Hosts.NewHostWatch()
	var running sync.WaitGroup
	running.Go(func() { c.ok(w.Run(ctx)) })
	return ctx, w, func() {
		cancel()
		running.Wait()
		c.stop()
	}
}

func lead(c *harness, w *liveness.Watch, grace time.Duration) *leading {
	c.t.Helper()
	var ctx context.Context
	l := &leading{c: c}
	ctx, l.end = context.WithCancel(c.t.Context())
	_, err := c.st.Update(ctx, func(tx store.Tx) error {
		tx.Delete(cluster.LeaderKey)
		return nil
	})
	c.ok(err)
	rev, err := c.st.Update(ctx, func(tx store.Tx) error { return tx.Create(cluster.LeaderKey, []byte("x"), nil) })
	c.ok(err)
	fence := Leader{Key: cluster.LeaderKey, Create: rev}
	l.parts.Go(func() { c.ok(c.HostLeases.ExpireHosts(ctx, fence)) })
	l.parts.Go(func() { c.ok(c.Hosts.CountAwayTime(ctx, fence, w, grace)) })
	return l
}

func (l *leading) stop() { l.end(); l.parts.Wait() }

// hostsOf has hosts h1 to hN kept, each with an endpoint.
func hostsOf(c *harness, n int) (reports []HostReport) {
	c.put(network("n", "10.1.0.0/16"))
	for i := 1; i <= n; i++ {
		r := reportOf(model.HostName(fmt.Sprint("h", i)), fmt.Sprint("i", i))
		r.Control, r.VTEP, r.Listening = netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), netip.AddrFrom4([4]byte{10, 1, 1, byte(i)}), nil
		_, err := c.HostLeases.RenewHost(c.t.Context(), Admin(), r)
		c.ok(err)
		c.create(endpoint("n", fmt.Sprint("e", i), func(e *model.Endpoint) { e.Host = r.Name }))
		reports = append(reports, r)
	}
	return reports
}

// TestEndpointsAreReleasedAfterTheGraceTime: a host that is away for the grace time loses its endpoints, and no other
// does. The time outlasts leaders, and counts only while one listens and the store is
// there. A host that comes back starts at zero.
func TestEndpointsAreReleasedAfterTheGraceTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testenv.Log
		c := newCluster(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		ctx, w, stop := watchHosts(c)
		reports := hostsOf(c, 3)
		living := reports[1:]
		passes := func(d time.Duration) {
			for ; d > 0; d -= 2 * time.Second {
				for _, r := range living {
					_, _ = c.HostLeases.RenewHost(ctx, Admin(), r)
				}
				pass(2 * time.Second)
			}
		}
		const grace = 10 * time.Minute
		away := func() time.Duration {
			a, _ := c.fresh().Hosts.AwayTime("h1")
			return time.Duration(a.Seconds) * time.Second
		}
		has := func(when string, want int) {
			t.Helper()
			v := c.fresh()
			if n := v.Endpoints.CountOfHost("h1"); n != want || v.Endpoints.CountOfHost("h2") != 1 || v.Endpoints.CountOfHost("h3") != 1 {
				t.Errorf("%s: h1 has %d endpoints, want %d; h2 has %d, h3 has %d", when, n, want, v.Endpoints.CountOfHost("h2"), v.Endpoints.CountOfHost("h3"))
			}
		}

		l := lead(c, w, grace)
		passes(7 * time.Minute)
		first := away()
		if first < 5*time.Minute || first > 7*time.Minute {
			t.Errorf("after 7 minutes it counts as away for %s", first)
		}
		l.stop()
		pass(24 * time.Hour) // there is no leader
		has("without a leader", 1)

		l = lead(c, w, grace)
		pass(time.Second)
		c.st.Unavailable(true)
		passes(20 * time.Minute)
		c.st.Unavailable(false)
		if got := away(); got != first {
			t.Errorf("with the store away the time grew from %s to %s", first, got)
		}
		has("after the store was away", 1)
		passes(2 * time.Minute)
		has("before the grace time is over", 1)
		if got := away(); got <= first || got >= grace {
			t.Errorf("the next leader goes on at %s, after %s", got, first)
		}
		passes(4 * time.Minute)
		has("after the grace time", 0)
		if h, err := c.Hosts.Get(ctx, Admin(), "h1"); err != nil || !h.Known || !h.Away.Evicted {
			t.Errorf("it is not known any more: %+v, %v", h, err)
		}
		passes(30 * time.Minute)
		if n := log.Count("its endpoints are released"); n != 1 {
			t.Errorf("told %d times:\n%s", n, log.String())
		}

		living = reports
		passes(30 * time.Second)
		if got, there := c.fresh().Hosts.AwayTime("h1"); there {
			t.Errorf("it is back, and away: %+v", got)
		}
		c.create(endpoint("n", "again", func(e *model.Endpoint) { e.Host = "h1" }))
		living = reports[1:]
		passes(5 * time.Minute)
		has("away once more", 1)
		l.stop()
		stop()
	})
}

// TestNothingIsReleasedWhileMostHostsAreAway: while more than half of the hosts are away nothing is counted and nothing
// is released, and one event says so; with half of them away it is.
func TestNothingIsReleasedWhileMostHostsAreAway(t *testing.T) {
	for away, want := range map[int]int{2: 2, 3: 4} {
		synctest.Test(t, func(t *testing.T) {
			var log testenv.Log
			c := newCluster(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
			ctx, w, stop := watchHosts(c)
			reports := hostsOf(c, 4)
			l := lead(c, w, time.Minute)
			for range 240 {
				for _, r := range reports[away:] {
					_, _ = c.HostLeases.RenewHost(ctx, Admin(), r)
				}
				pass(2 * time.Second)
			}
			left := 0
			for _, r := range reports {
				left += c.fresh().Endpoints.CountOfHost(r.Name)
			}
			if told := log.Count("more than half of the hosts are away"); left != want || (told == 1) != (want == 4) {
				t.Errorf("%d of 4 hosts are away: %d endpoints are left, want %d; told %d times", away, left, want, told)
			}
			if a, there := c.fresh().Hosts.AwayTime("h1"); !there || a.Evicted == (want == 4) || want == 4 && a.Seconds != 0 {
				t.Errorf("%d of 4 hosts are away: %+v", away, a)
			}
			l.stop()
			stop()
		})
	}
}

// TestLongAwayOfMany: hosts that were away for long keep their endpoints while more than
// half are away, whatever an earlier leader has counted.
func TestLongAwayOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ctx, w, stop := watchHosts(c)
		reports := hostsOf(c, 4)
		_, err := c.st.Update(ctx, func(tx store.Tx) error {
			var errs []error
			for _, r := range reports[:3] {
				errs = append(errs, tables.AwayTimes.Put(tx, tables.AwayTime{Host: r.Name, Seconds: 3600}))
			}
			return errors.Join(errs...)
		})
		c.ok(err)
		l := lead(c, w, time.Minute)
		for range 60 {
			_, _ = c.HostLeases.RenewHost(ctx, Admin(), reports[3])
			pass(2 * time.Second)
		}
		for _, r := range reports {
			if n := c.fresh().Endpoints.CountOfHost(r.Name); n != 1 {
				t.Errorf("%s has %d endpoints left", r.Name, n)
			}
		}
		l.stop()
		stop()
	})
}

// TestReplacedLeaderReleasesNothing: who leads no more counts no host out, notes nothing of absences,
// gives nothing up, and says so.
func TestReplacedLeaderReleasesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ctx, w, stop := watchHosts(c)
		reports := hostsOf(c, 3)
		old := c.leader()
		c.leader()
		fenced := func(what string, task func(context.Context) error) {
			t.Helper()
			short, end := context.WithTimeout(ctx, time.Minute)
			defer end()
			done := make(chan error, 1)
			go func() { done <- task(short) }()
			for range 30 {
				for _, r := range reports {
					_, _ = c.HostLeases.RenewHost(ctx, Admin(), r)
				}
				pass(2 * time.Second)
			}
			if err := <-done; !errors.Is(err, store.ErrFenced) {
				t.Errorf("%s: %v, want %v", what, err, store.ErrFenced)
			}
		}
		absences := func(ctx context.Context) error { return c.Hosts.CountAwayTime(ctx, old, w, time.Minute) }
		_, err := c.st.Update(ctx, func(tx store.Tx) error {
			return tables.AwayTimes.Put(tx, tables.AwayTime{Host: "h2", Seconds: 5})
		})
		c.ok(err)
		fenced("a host that is back", absences)
		if _, there := c.fresh().Hosts.AwayTime("h2"); !there {
			t.Error("it forgot that a host was away")
		}
		c.ok(c.HostLeases.ReleaseHost(ctx, Admin(), "h1", "i1"))
		reports = reports[1:]
		_, err = c.st.Update(ctx, func(tx store.Tx) error {
			tables.AwayTimes.Delete(tx, tables.AwayTimeKey{Host: "h2"})
			return nil
		})
		c.ok(err)
		fenced("a host that is away", absences)
		if a, there := c.fresh().Hosts.AwayTime("h1"); there || c.fresh().Endpoints.CountOfHost("h1") != 1 {
			t.Errorf("it counted or gave up: %+v", a)
		}
		reports = nil
		fenced("hosts that are silent", func(ctx context.Context) error { return c.HostLeases.ExpireHosts(ctx, old) })
		for _, name := range []model.HostName{"h2", "h3"} {
			if got := storedRows(t, c.st, name); !strings.Contains(got, "claim") {
				t.Errorf("it counted %s out, of which is left: %q", name, got)
			}
		}
		stop()
	})
}

// TestSuspendedLeaderDoesNotCountItsPause: a leader whose process was suspended does not count the time in which it
// could not receive heartbeats.
func TestSuspendedLeaderDoesNotCountItsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &between{Store: memory.New()}
		c := New(st, Options{})
		for _, name := range []model.HostName{"h1", "h2"} {
			r := reportOf(name, string(name))
			r.VTEP, r.Listening = netip.MustParseAddr("10.1.1."+string(name[1:])), nil
			if _, err := New(st.Store, Options{}).HostLeases.RenewHost(t.Context(), Admin(), r); err != nil {
				t.Fatal(err)
			}
		}
		fence := Leader{Key: cluster.LeaderKey}
		rev, err := st.Store.Update(t.Context(), func(tx store.Tx) error { return tx.Create(fence.Key, nil, nil) })
		if err != nil {
			t.Fatal(err)
		}
		fence.Create = rev
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.HostLeases.ExpireHosts(ctx, fence) }()
		stand := func() { <-time.After(3 * cluster.ServiceTTL) }
		st.hook.Store(&stand) // within the transaction that counts h1 out
		for range cluster.ServiceTTL / expiryInterval {
			c.Heartbeats.Heard([]model.HostName{"h2"})
			pass(expiryInterval)
		}
		pass(3*cluster.ServiceTTL + 2*expiryInterval)
		for name, want := range map[model.HostName]bool{"h1": false, "h2": true} {
			if got := storedRows(t, st.Store, name); strings.Contains(got, "claim") != want {
				t.Errorf("of %s the store has %q", name, got)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
