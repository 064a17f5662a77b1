package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// sink is a Sink that fails on request.
type sink struct {
	bytes.Buffer
	err error
}

func (s *sink) Write(line []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.Buffer.Write(line)
}

// lines reads what was written; each must be an Entry, and nothing else.
func lines(t *testing.T, text string) []Entry {
	t.Helper()
	var all []Entry
	for line := range strings.Lines(text) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var e Entry
		if err := d.Decode(&e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			t.Fatalf("more than an entry in a line: %q", line)
		}
		all = append(all, e)
	}
	return all
}

// TestRecordHoldsWhateverClientsSend: a line holds what was recorded, whatever texts clients send.
func TestRecordHoldsWhateverClientsSend(t *testing.T) {
	s := &sink{}
	l := New(s, slog.New(slog.DiscardHandler))
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("x", 3600))
	l.now = func() time.Time { return now }
	want := Entry{
		Who: "an\nna\x00", How: "oidc", ID: "i", Role: "viewer", From: "10.0.0.1", Method: "PUT", Route: "/a", Objects: []Object{{"network", "blue:\"net\""}},
		Before: 3, After: 4, Status: 200, Result: Done,
	}
	l.Record(want)
	many := Entry{Result: Done, Who: strings.Repeat("\x01", 1<<20), Why: "\xff", Objects: make([]Object, 1000)}
	many.Objects[5].Key = strings.Repeat("\x02", 1<<20)
	l.Record(many)
	got := lines(t, s.String())
	if len(got) != 2 {
		t.Fatalf("%d lines", len(got))
	}
	want.Time = now.UTC()
	if d := cmp.Diff(want, got[0]); d != "" {
		t.Error(d)
	}
	if e := got[1]; len(e.Objects) != MaxObjects || e.More != 1000-MaxObjects || len(e.Who) > maxText+3 || len(e.Objects[5].Key) > maxText+3 || e.Why != "?" {
		t.Errorf("not cut: %d objects, %d more", len(e.Objects), e.More)
	}
	if len(many.Objects) != 1000 || len(many.Objects[5].Key) != 1<<20 {
		t.Error("the caller's entry was changed")
	}
}

// TestFullDiskIsCountedAndNumbered: lines that cannot be written are logged and counted, and the next line that
// can be written has their number.
func TestFullDiskIsCountedAndNumbered(t *testing.T) {
	var told bytes.Buffer
	s := &sink{}
	l := New(s, slog.New(slog.NewTextHandler(&told, nil)))
	now := time.Now()
	l.now = func() time.Time { return now }
	s.err = unix.ENOSPC
	for range 5 {
		l.Record(Entry{Result: Done})
	}
	if l.Lost() != 5 || !errors.Is(l.Err(), unix.ENOSPC) || strings.Count(told.String(), "\n") != 1 || !strings.Contains(told.String(), "no space left") {
		t.Errorf("lost %d, %v, told %q", l.Lost(), l.Err(), told.String())
	}
	now = now.Add(repeatErrorEvery)
	l.Record(Entry{Result: Done})
	if strings.Count(told.String(), "\n") != 2 {
		t.Errorf("after a while: told %q", told.String())
	}
	s.err = nil
	l.Record(Entry{Result: Done})
	l.Record(Entry{Result: Done})
	got := lines(t, s.String())
	if len(got) != 2 || got[0].Lost != 6 || got[1].Lost != 0 || l.Err() != nil || l.Lost() != 6 || !strings.Contains(told.String(), "written again") {
		t.Errorf("%+v, %v, lost %d, told %q", got, l.Err(), l.Lost(), told.String())
	}
}

// TestFloodOfRefusalsKeepsChanges: a flood of refusals does not push out changes, which are all there.
func TestFloodOfRefusalsKeepsChanges(t *testing.T) {
	s := &sink{}
	l := New(s, slog.New(slog.DiscardHandler))
	now := time.Now()
	l.now = func() time.Time { return now }
	for i := range 10_000 {
		l.Record(Entry{Result: Refused})
		if i%100 == 0 {
			l.Record(Entry{Result: Done})
		}
	}
	count, omitted := map[string]int{}, int64(0)
	for _, e := range lines(t, s.String()) {
		count[e.Result]++
		omitted += e.Omitted
	}
	omitted += l.omitted
	if count[Done] != 100 || count[Refused] != refusalsBurst || omitted != 10_000-refusalsBurst {
		t.Errorf("%v, %d omitted", count, omitted)
	}
	now = now.Add(time.Second)
	l.Record(Entry{Result: Refused})
	if got := lines(t, s.String()); got[len(got)-1].Result != Refused {
		t.Error("a second later a refusal is still omitted")
	}
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode().Perm()
}

// TestRotationKeepsTheLastLines: whatever lengths lines have, files stay below their bound, and what
// is left are the last lines, whole and in order.
func TestRotationKeepsTheLastLines(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		dir := t.TempDir()
		path := filepath.Join(dir, "audit.log")
		limit, keep := int64(100+rng.IntN(400)), 1+rng.IntN(4)
		f, err := OpenFile(path, limit, keep)
		if err != nil {
			t.Fatal(err)
		}
		var wrote []string
		for i := range 200 {
			line := fmt.Sprintf("%d %s\n", i, strings.Repeat("x", rng.IntN(90)))
			if n, err := f.Write([]byte(line)); err != nil || n != len(line) {
				t.Fatal(n, err)
			}
			wrote = append(wrote, line)
			if rng.IntN(20) == 0 { // a restart
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
				if f, err = OpenFile(path, limit, keep); err != nil {
					t.Fatal(err)
				}
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) > keep+1 {
				t.Fatalf("%d files, %v", len(entries), err)
			}
		}
		var text strings.Builder
		for i := keep; i >= 0; i-- {
			name := path
			if i > 0 {
				name = f.rotatedPath(i)
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if int64(len(data)) > limit || mode(t, name) != 0o600 {
				t.Fatalf("%s has %d bytes of %d, mode %v", name, len(data), limit, mode(t, name))
			}
			text.Write(data)
		}
		if !strings.HasSuffix(strings.Join(wrote, ""), "\n"+text.String()) {
			t.Fatal("what is left is not what was written last")
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTornLinesAreEnded: a disk that takes a part of a line leaves no part of it; a line that
// was torn by a loss of power is ended.
func TestTornLinesAreEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte("torn"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(path, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if mode(t, path) != 0o600 {
		t.Error("a file that was there stays readable by others")
	}
	write := f.write
	f.write = func(file *os.File, b []byte) (int, error) {
		n, _ := write(file, b[:len(b)/2])
		return n, unix.ENOSPC
	}
	if n, err := f.Write([]byte("half of it\n")); n != 0 || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%d, %v", n, err)
	}
	f.write = write
	if _, err := f.Write([]byte("whole\n")); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "torn\nwhole\n" {
		t.Errorf("%q", got)
	}
	for _, away := range []func() error{func() error { return os.Remove(path) }, func() error { return os.Rename(path, path+".x") }} {
		if err := away(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("again\n")); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != "again\n" {
			t.Errorf("moved away: %q", got)
		}
	}
}

func TestBadAuditFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.Symlink(filepath.Join(dir, "other"), link), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"relative", dir, link, fifo, "/dev/full", filepath.Join(dir, "none", "x")} {
		if f, err := OpenFile(path, 0, 0); err == nil {
			t.Errorf("%s was opened", path)
			_ = f.Close()
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "other")); err == nil {
		t.Error("a link was followed")
	}
}
