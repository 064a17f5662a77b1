package membership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Schedule says when a member makes snapshots of the store, and where.
type Schedule struct {
	Dir   string        // "" = none are made
	Every time.Duration // 0 = DefaultEvery
	Keep  int           // 0 = DefaultKeep
}

// What a Schedule is when it says nothing.
const (
	DefaultEvery = 6 * time.Hour
	DefaultKeep  = 8

	minEvery = time.Minute
)

const (
	snapshotPrefix = "contiv-store-"
	snapshotSuffix = ".db"
	snapshotTime   = "20060102T150405.000Z"
)

// In is the schedule of a member with that data directory: where nothing else was said, the
// snapshots are in it. A zero Schedule makes none.
func (s Schedule) In(dataDir string) Schedule {
	if s != (Schedule{}) && s.Dir == "" {
		s.Dir = filepath.Join(dataDir, "snapshots")
	}
	return s
}

func (s Schedule) check() error {
	switch {
	case s.Every != 0 && s.Every < minEvery:
		return model.InvalidField("snapshot-every", s.Every, "must be a minute at least")
	case s.Keep < 0:
		return model.InvalidField("snapshot-keep", s.Keep, "must be one at least")
	}
	return nil
}

func (s Schedule) filled() Schedule {
	if s.Every == 0 {
		s.Every = DefaultEvery
	}
	if s.Keep == 0 {
		s.Keep = DefaultKeep
	}
	return s
}

// backups makes snapshots on the schedule. The next one is due a period after the newest
// existing one, so that restarts make neither more nor fewer.
func (m *Health) backups(ctx context.Context) {
	s := m.cfg.Backup.filled()
	for {
		wait := minEvery // after a failure
		due, err := s.due()
		if err == nil && !time.Now().Before(due) {
			_, err = m.Snapshot(ctx)
			if err == nil {
				due = time.Now().Add(s.Every)
			}
		}
		if err == nil {
			wait = max(time.Until(due), 0)
			m.unsaved.Store(nil)
		} else if ctx.Err() == nil {
			m.unsaved.Store(&err)
			m.cfg.Logger.Error("no snapshot of the store was made", "directory", s.Dir, "error", err, "againIn", wait)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// due is when the next snapshot is to be made.
func (s Schedule) due() (time.Time, error) {
	last, err := s.last()
	if err != nil || last.IsZero() || last.After(time.Now()) { // a clock went back: one more does no harm
		return time.Time{}, err
	}
	return last.Add(s.Every), nil
}

// last is when the newest snapshot was made; zero = there is none.
func (s Schedule) last() (time.Time, error) {
	all, err := s.files()
	if err != nil || len(all) == 0 {
		return time.Time{}, err
	}
	text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(all[len(all)-1]), snapshotPrefix), snapshotSuffix)
	last, err := time.Parse(snapshotTime, text)
	if err != nil {
		return time.Time{}, nil //nolint:nilerr // a name of somebody else's
	}
	return last, nil
}

// age is the age of the newest snapshot at a time. Without snapshots it is how long there
// could have been one.
func (s Schedule) age(now, began time.Time) time.Duration {
	last, err := s.last()
	if err != nil || last.IsZero() {
		last = began
	}
	return max(now.Sub(last), 0)
}

// tooOld is how many times as old as snapshots become the newest one may be.
const tooOld = 2

// whyTooOld says that the newest snapshot is too old; "" = it is not.
func (s Schedule) whyTooOld(now, began time.Time) string {
	s = s.filled()
	if age := s.age(now, began); age > tooOld*s.Every {
		return fmt.Sprintf("the newest in %s is %s old", s.Dir, age.Round(time.Minute))
	}
	return ""
}

// files are the snapshots that there are, oldest first.
func (s Schedule) files() ([]string, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries { // sorted by name, so by time
		if n := e.Name(); e.Type().IsRegular() && strings.HasPrefix(n, snapshotPrefix) && strings.HasSuffix(n, snapshotSuffix) {
			all = append(all, filepath.Join(s.Dir, n))
		}
	}
	return all, nil
}

// Snapshot makes a snapshot now, in the schedule's directory, and deletes the oldest ones
// beyond the number to keep. The file is complete or missing, readable by its owner only,
// and can be given to 'netmaster --restore'.
func (m *Health) Snapshot(ctx context.Context) (path string, err error) {
	s := m.cfg.Backup.filled()
	if s.Dir == "" {
		return "", model.Errorf(model.ErrInvalid, "no directory is given for snapshots (--snapshot-dir)")
	}
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("make a snapshot of the store in %s: %w", s.Dir, err)
	}
	// One beside the store must not take the room that the store needs.
	if st := m.Status(); filepath.Dir(s.Dir) == m.dir.path && st.Free < uint64(st.Size)+2*lowSpace { //nolint:gosec // a database's size is not negative
		return fail(fmt.Errorf("the store's disk has %s free: free some space, or give --snapshot-dir on another disk", mb(int64(st.Free)))) //nolint:gosec // disks have less than 8 EiB
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fail(err)
	}
	if left, err := filepath.Glob(filepath.Join(s.Dir, "."+snapshotPrefix+"*")); err == nil {
		for _, l := range left { // of who was killed here
			if err := os.Remove(l); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fail(err)
			}
		}
	}
	r, err := m.server.client.Snapshot(ctx)
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	path = filepath.Join(s.Dir, snapshotPrefix+time.Now().UTC().Format(snapshotTime)+snapshotSuffix)
	if err := durable.Write(path, func(w io.Writer) error {
		_, err := io.Copy(w, r)
		return err
	}); err != nil {
		return fail(err)
	}
	all, err := s.files()
	if err != nil {
		return fail(err)
	}
	i := slices.Index(all, path)
	for _, old := range all[:max(0, min(len(all)-s.Keep, i))] {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fail(err)
		}
	}
	return path, nil
}
