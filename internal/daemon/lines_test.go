package daemon

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// writeLines writes lines that all have to get there.
func writeLines(t *testing.T, l Lines, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if err := l.Write(t.Context(), []byte(line)); err != nil {
			t.Errorf("write %q: %v", line, err)
		}
	}
}

// holds expects a file's text.
func holds(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v, want %q", path, got, err, want)
	}
}

// openLines opens what ends with the test.
func openLines(t *testing.T, to string) Lines {
	t.Helper()
	l, err := OpenLines(to, "auto", "tag")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestLinesAreAppendedAcrossRestarts: lines are appended to a file of its owner's alone, across
// restarts; a line that a dead writer left half stays alone.
func TestLinesAreAppendedAcrossRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flow.log")
	writeLines(t, openLines(t, path), "one", "two")
	writeLines(t, openLines(t, path), "three")
	holds(t, path, "one\ntwo\nthree\n")
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if err := os.WriteFile(path, []byte("one\nha"), 0o600); err != nil {
		t.Fatal(err)
	}
	writeLines(t, openLines(t, path), "two")
	holds(t, path, "one\nha\ntwo\n")
}

// TestMovedLineFileIsReopened: what is moved away is left, at once when told, and soon
// when not.
func TestMovedLineFileIsReopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flow.log")
	l := openLines(t, path)
	move := func(to string) {
		if err := os.Rename(path, path+to); err != nil {
			t.Fatal(err)
		}
	}
	writeLines(t, l, "one")
	move(".1")
	writeLines(t, l, "two")
	l.Reopen()
	writeLines(t, l, "three")
	move(".2")
	l.(*lineFile).checkedAt = time.Now().Add(-lineFileCheckInterval) // without a signal
	writeLines(t, l, "four")
	holds(t, path+".1", "one\ntwo\n")
	holds(t, path+".2", "three\n")
	holds(t, path, "four\n")
}

// TestUnwritableLinesAreErrors: what cannot be written is an error that names the file,
// and passes with its cause; nothing is waited for.
func TestUnwritableLinesAreErrors(t *testing.T) {
	dir := t.TempDir()
	fails := func(l Lines, what string) {
		t.Helper()
		if err := l.Write(t.Context(), []byte("lost")); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want an error with %q", err, what)
		}
	}
	later := filepath.Join(dir, "later", "flow.log")
	l := openLines(t, later)
	fails(l, later)
	if err := os.Mkdir(filepath.Dir(later), 0o700); err != nil {
		t.Fatal(err)
	}
	writeLines(t, l, "here")
	holds(t, later, "here\n")

	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	fails(openLines(t, fifo), "not a regular file")
	fails(openLines(t, dir), dir)

	f := l.(*lineFile)
	f.full, f.checkedAt = f.checkSpace(), time.Now()
	if f.full != nil {
		t.Skipf("the disk of the test is full: %v", f.full)
	}
	f.full = os.ErrDeadlineExceeded // as a look that found no room
	fails(l, os.ErrDeadlineExceeded.Error())
	f.checkedAt = time.Time{} // the next look finds it
	writeLines(t, l, "again")
	holds(t, later, "here\nagain\n")
}

// TestFullDiskLeavesNoPartialLine: a file system without room is left what it has, and what fits
// only in part is not taken for a line.
func TestFullDiskLeavesNoPartialLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flow.log")
	l := openLines(t, path)
	writeLines(t, l, "one")
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 6, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	err := l.Write(t.Context(), []byte("two"))
	if back := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); back != nil {
		t.Fatal(back)
	}
	if err == nil {
		t.Error("a line that does not fit was written")
	}
	writeLines(t, l, "three")
	holds(t, path, "one\ntw\nthree\n")
	const mib = 1 << 20
	for _, fs := range []struct {
		free, size uint64
		ok         bool
	}{{100 * mib, 1 << 40, true}, {99 * mib, 1 << 40, false}, {1 * mib, 10 * mib, true}, {0, 10 * mib, false}} {
		if err := checkReserve(path, fs.free, fs.size); (err == nil) != fs.ok {
			t.Errorf("%d of %d MiB are free: %v", fs.free/mib, fs.size/mib, err)
		}
	}
}

// TestSyslogLinesArriveOnceTheServerIsBack: lines arrive whole, and again once the server is back; while
// it is away each is an error at once.
func TestSyslogLinesArriveOnceTheServerIsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	listen := func() net.PacketConn {
		c, err := new(net.ListenConfig).ListenPacket(t.Context(), "unixgram", path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	receive := func(c net.PacketConn) string {
		buf := make([]byte, 2*MaxLine)
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	l := openLines(t, "unix://"+path)
	long := `{"a":"` + strings.Repeat("x", MaxLine-8) + `"}`
	server := listen()
	writeLines(t, l, long)
	if got := receive(server); !strings.HasPrefix(got, "<30>") || !strings.HasSuffix(got, ": "+long) || !strings.Contains(got, " tag[") {
		t.Errorf("received %.80q...", got)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(path) // as a server that went in order
	if err := l.Write(context.Background(), []byte("lost")); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("without a server: %v", err)
	}
	server = listen()
	defer server.Close()
	writeLines(t, l, "two")
	if got := receive(server); !strings.HasSuffix(got, ": two") {
		t.Errorf("received %q", got)
	}
}

// TestBadLineFilesAreRefused refuses what is no place for lines.
func TestBadLineFilesAreRefused(t *testing.T) {
	for to, ok := range map[string]bool{
		"/var/log/x": true, "syslog": true, "udp://127.0.0.1": true, "tcp://127.0.0.1:514": true, "unix:///dev/log": true,
		"x.log": false, "": false, "http://x": false, "udp://": false, "syslog://": false,
	} {
		if err := CheckLines(to); (err == nil) != ok {
			t.Errorf("CheckLines(%q) = %v", to, err)
		}
		if _, err := OpenLines(to, "auto", "tag"); (err == nil) != ok {
			t.Errorf("OpenLines(%q) = %v", to, err)
		}
	}
}
