package liveness

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// known are the hosts of a cluster.
type known []model.HostName

func (k known) List() (out []model.Host) {
	for _, name := range k {
		out = append(out, model.Host{Name: name})
	}
	return out
}

func (known) TooManyAway(map[model.HostName]bool) bool { return false }

func write(t *testing.T, st store.Store, fn func(store.Tx) error) {
	t.Helper()
	if _, err := st.Update(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// agentOf registers a host as its agent does.
func agentOf(t *testing.T, st store.Store, name model.HostName, vtep string) *cluster.Registration {
	t.Helper()
	write(t, st, func(tx store.Tx) error {
		return tables.HostStatuses.Put(tx, tables.HostStatus{Host: name, Updated: "2026-11-21T00:00:00Z", Ready: true})
	})
	reg, err := cluster.Register(context.Background(), st, cluster.Service{ServiceName: cluster.ServiceAgent, HostAddr: vtep, Port: 4789, Hostname: string(name)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

func closed(t *testing.T, reg *cluster.Registration) {
	t.Helper()
	if err := reg.Close(); err != nil {
		t.Error(err)
	}
}

// pass lets a bubble's time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestLeaderLogsHostsOnce: the leader logs once that a host went, and once that it is
// back; not when it has only just begun to lead.
func TestLeaderLogsHostsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testenv.Log
		st := memory.New()
		one, two := agentOf(t, st, "one", "10.0.0.1"), agentOf(t, st, "two", "10.0.0.2")
		w := NewWatch(st, NewHeartbeats(st), known{"one", "two"}, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		closed(t, one) // away before anybody leads
		running.Go(func() { w.ReportEvents(ctx) })
		synctest.Wait()
		if n := log.Count("host is"); n != 0 {
			t.Errorf("logged at once: %s", log.String())
		}
		expect := func(away, back int) {
			t.Helper()
			pass(cluster.ServiceTTL + 1)
			if a, b := log.Count("a host is away"), log.Count("a host is back"); a != away || b != back {
				t.Errorf("logged away %d and back %d times, want %d and %d:\n%s", a, b, away, back, log.String())
			}
		}
		expect(1, 0)
		expect(1, 0)
		closed(t, two)
		expect(2, 0)
		two = agentOf(t, st, "two", "10.0.0.2")
		expect(2, 1)
		if alive, statuses := w.Seen(); len(alive) != 1 || !alive["two"] || len(statuses) != 2 {
			t.Errorf("seen %v, %v", alive, statuses)
		}
		if heard := w.StatusArrivals(); len(heard) != 2 || !heard["one"].Listed || heard["two"].Listed || time.Since(heard["two"].At) > time.Since(heard["one"].At) {
			t.Errorf("heard of %v", heard)
		}
		write(t, st, func(tx store.Tx) error {
			tables.HostStatuses.Delete(tx, "one")
			return nil
		})
		synctest.Wait()
		if _, statuses := w.Seen(); len(statuses) != 1 {
			t.Errorf("seen after the removal: %v", statuses)
		}
		closed(t, two)
		cancel()
		running.Wait()
	})
}

// TestHeartbeatsCountForTheWrittenLease: a heartbeat counts if it is of the lease that this netmaster has written,
// is reported to the leader until that has it, and is forgotten with the host.
func TestHeartbeatsCountForTheWrittenLease(t *testing.T) {
	st := memory.New()
	hb := NewHeartbeats(st)
	lease := tables.HostLease{Host: "h1", Installation: "i", Kept: true}
	if hb.Beat(lease) || !hb.Last("h1").IsZero() {
		t.Error("a heartbeat of an unknown lease counts")
	}
	hb.Add(lease)
	other := lease
	other.Installation = "j"
	if !hb.Beat(lease) || hb.Beat(other) || hb.Last("h1").IsZero() {
		t.Error("heartbeats of the lease do not count, or those of another do")
	}
	hb.Heard([]model.HostName{"h2"})
	names := hb.TakeUnreported()
	if !slices.Equal(names, []model.HostName{"h1", "h2"}) || len(hb.TakeUnreported()) > 0 {
		t.Errorf("unreported are %v, or are not taken", names)
	}
	hb.Forget("h1")
	hb.Requeue(names)
	if names := hb.TakeUnreported(); !slices.Equal(names, []model.HostName{"h2"}) || hb.Beat(lease) {
		t.Errorf("unreported are %v, or a forgotten host counts", names)
	}
	if hb.SetLeaderLost(errors.New("no route")); !errors.Is(hb.LeaderLost(), model.ErrUnavailable) {
		t.Errorf("without a leader: %v", hb.LeaderLost())
	}
	if hb.SetLeaderLost(nil); hb.LeaderLost() != nil {
		t.Errorf("with a leader: %v", hb.LeaderLost())
	}
}
