package membership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// TestFullStoreIsReportedBeforeItIsFull: a store that is getting full is reported before it is full, and Relieve ends
// it.
func TestFullStoreIsReportedBeforeItIsFull(t *testing.T) {
	t.Parallel()
	cfg := config(t, 51, "a")
	cfg.Quota = 12 << 20
	a := start(t, cfg)
	ctx, c := t.Context(), a.server.client
	told := false
	value := strings.Repeat("x", 64<<10)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		if err = ctx.Err(); err == nil {
			_, err = c.Put(ctx, fmt.Sprintf("fill/%d", i), value)
		}
		a.server.etcd.Server.Backend().ForceCommit()
		if s := a.Health.Status(); err == nil && !s.Full && s.SpaceProblem() != "" {
			told = true
		}
	}
	is(t, "a full store", unavailable(err), model.ErrExhausted, "takes no writes")
	if !told {
		t.Error("the store was full without a word before")
	}
	_, _, err = a.Enrolment.NewToken(ctx, 0)
	is(t, "a token of a full store", err, model.ErrExhausted)
	if s := a.Health.Status(); !s.Full || !strings.Contains(s.SpaceProblem(), "takes no writes: delete") {
		t.Errorf("a full store says %+v: %s", s, s.SpaceProblem())
	}
	is(t, "relieving what is in use", a.Health.Defragment(ctx), model.ErrExhausted, "delete what is not needed")
	r, err := c.Delete(ctx, "fill/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(ctx, r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	a.server.etcd.Server.Backend().ForceCommit()
	if err := a.Health.Defragment(ctx); err != nil {
		t.Fatal(err)
	}
	if s := a.Health.Status(); s.Full || s.SpaceProblem() != "" {
		t.Errorf("a relieved store says %+v: %s", s, s.SpaceProblem())
	}
	tokenOf(t, a)
}

// TestMissingSnapshotIsReported: a missing snapshot is reported until one is made.
func TestMissingSnapshotIsReported(t *testing.T) {
	t.Parallel()
	cfg := config(t, 67, "a")
	inTheWay := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Backup = Schedule{Dir: filepath.Join(inTheWay, "snapshots")}
	a := start(t, cfg)
	scrape := func() testenv.Scrape {
		t.Helper()
		r := prometheus.NewRegistry()
		r.MustRegister(a.Collectors()...)
		answer, out := httptest.NewRecorder(), testenv.Scrape{}
		promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		if err := out.Add("netmaster", "m:9999", answer.Body.String()); err != nil {
			t.Fatal(err)
		}
		return out
	}
	eventually(t, "a member that makes no snapshot says so", func(context.Context) error {
		if s := a.Health.Problem(); !strings.Contains(s, "no snapshot of the store was made") || !strings.Contains(s, inTheWay) || !strings.Contains(s, "--snapshot-dir") {
			return fmt.Errorf("it says %q", s)
		}
		return nil
	})
	failed := scrape()
	a.Health.began = time.Now().Add(-13 * time.Hour)
	late := scrape()
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	closed(t, a)
	a = start(t, cfg)
	eventually(t, "one that makes one says nothing", func(context.Context) error {
		if all, err := cfg.Backup.files(); err != nil || len(all) != 1 || a.Health.Problem() != "" {
			return fmt.Errorf("%v, %w, it says %q", all, err, a.Health.Problem())
		}
		return nil
	})
	testenv.AlertsFire(t, scrape(), failed, "ContivSnapshotFails")
	testenv.AlertsFire(t, failed, late, "ContivSnapshotOld")
}

// TestSnapshotsFollowTheSchedule: they are made on the schedule, whole and for their owner only, the
// oldest go; a store that was restored from one is the member's again.
func TestSnapshotsFollowTheSchedule(t *testing.T) {
	t.Parallel()
	cfg := config(t, 61, "a")
	cfg.Backup = Schedule{Dir: filepath.Join(t.TempDir(), "snapshots"), Keep: 2}
	a := start(t, cfg)
	ctx := t.Context()
	eventually(t, "the first snapshot", func(context.Context) error {
		if all, err := cfg.Backup.files(); err != nil || len(all) != 1 {
			return errors.Join(errors.New("there is none"), err)
		}
		return nil
	})
	c, err := etcd.New(etcd.Config{Endpoints: []string{"http://" + cfg.Client}, Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Update(ctx, func(tx store.Tx) error {
		return errors.Join(tables.Globals.Put(tx, model.DefaultGlobal()), tables.Incarnations.Put(tx, store.Incarnation{ID: "id", Generation: 1}))
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(cfg.Backup.Dir, "."+snapshotPrefix+"x.db.new-1")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var last string
	for range 3 {
		if last, err = a.Health.Snapshot(ctx); err != nil {
			t.Fatal(err)
		}
	}
	all, err := cfg.Backup.files()
	if err != nil || len(all) != 2 || all[1] != last {
		t.Errorf("of four, two are kept: %v, %v; the last is %s", all, err, last)
	}
	if entries, err := os.ReadDir(cfg.Backup.Dir); err != nil || len(entries) != 2 {
		t.Errorf("what a kill left is there: %v, %v", entries, err)
	}
	if st, err := os.Stat(last); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if due, err := cfg.Backup.filled().due(); err != nil || time.Until(due) < DefaultEvery-patient || time.Until(due) > DefaultEvery {
		t.Errorf("the next is due at %v, %v", due, err)
	}
	for late, want := range map[time.Duration]string{-time.Hour: "", time.Hour: "is 13h0m0s old"} {
		s := cfg.Backup
		if got := s.whyTooOld(time.Now().Add(2*DefaultEvery+late), time.Now()); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%v after two intervals: %q", late, got)
		}
	}
	former := fingerprint(a.peers.auth.Load())
	closed(t, a)
	r, err := Restore(ctx, RestoreConfig{File: last, DataDir: cfg.Dir, Logger: cfg.Logger, Now: time.Now(), NewAuthorities: true})
	if err != nil || r.ID != "id" || r.Generation < 2 {
		t.Fatalf("restored %+v, %v", r, err)
	}
	// It may have moved meanwhile, too.
	cfg.Peer = address(62, 23801)
	cfg.PeerListen = cfg.Peer
	a = start(t, cfg)
	if fingerprint(a.peers.auth.Load()) == former {
		t.Error("whoever has the former cluster's authority is let in to the restored one")
	}
	infos, err := a.Roster.List(ctx)
	if err != nil || len(infos) != 1 || infos[0].Peer != cfg.Peer || infos[0].Name != "a" || !infos[0].isAlive() {
		t.Errorf("members: %+v, %v", infos, err)
	}
	closed(t, a)
	rec, err := Recover(ctx, cfg)
	if err != nil || rec.ID != "id" || rec.Generation <= r.Generation || len(rec.Lost) != 0 {
		t.Errorf("recovered %+v, %v", rec, err)
	}
}
