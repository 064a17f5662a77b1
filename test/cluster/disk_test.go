//go:build integration

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// disk is a file system over a directory, which is slow, fails or is full on request: a
// program of its own (test/cluster/disk).
type disk struct {
	dir string // where it is mounted

	mu      sync.Mutex
	in      io.Writer
	answers *bufio.Scanner
	slow    time.Duration // that an fsync takes more
	errno   syscall.Errno // of writes and fsyncs; 0 = none
}

// newDisk mounts one for the length of a test.
func newDisk(t *testing.T) *disk {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		skipUnlessCI(t, "there is no /dev/fuse")
	}
	under := t.TempDir()
	program, data := filepath.Join(under, "disk"), filepath.Join(under, "data")
	d := &disk{dir: filepath.Join(under, "mounted")}
	if out, err := exec.CommandContext(t.Context(), "go", "-C", "disk", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the disk: %v: %s", err, out)
	}
	for _, dir := range []string{d.dir, data} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, data, d.dir) // it ends with its input, after what runs on it
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.in, d.answers = in, bufio.NewScanner(out)
	if !d.answers.Scan() {
		skipUnlessCI(t, fmt.Sprint(cmd.Wait(), ": ", stderr.String()))
	}
	t.Cleanup(func() {
		_ = in.Close() // its end tells
		if err := cmd.Wait(); err != nil {
			t.Errorf("the disk: %v: %s", err, stderr.String())
		}
	})
	return d
}

// tell sets what the disk does, and returns what it has done.
func (d *disk) tell(change func()) (refused, slowed int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
	if _, err := fmt.Fprintln(d.in, int64(d.slow), int(d.errno)); err != nil {
		return 0, 0, err
	}
	if !d.answers.Scan() {
		return 0, 0, errors.New("the disk has ended")
	}
	_, err = fmt.Sscan(d.answers.Text(), &refused, &slowed)
	return refused, slowed, err
}

// fails has writes and fsyncs fail; 0 = no more.
func (d *disk) fails(errno syscall.Errno) { _, _, _ = d.tell(func() { d.errno = errno }) } // met tells whether it was so

func (d *disk) slowDown(by time.Duration) { _, _, _ = d.tell(func() { d.slow = by }) } // likewise

// diskOf returns the disk under a store that fails; nil = none.
func diskOf(st storage) *disk {
	switch st := st.(type) {
	case *onServer:
		return st.disk
	case *members:
		return st.disk
	}
	return nil
}

// faults counts calls that were refused or slow.
func (d *disk) faults(t *testing.T) int {
	t.Helper()
	refused, slowed, err := d.tell(func() {})
	if err != nil {
		t.Fatal(err)
	}
	return refused + slowed
}

// met fails a test whose store asked nothing of the disk while that was bad: nothing was
// tried then.
func (d *disk) met(t *testing.T) {
	t.Helper()
	n := d.faults(t)
	t.Logf("the disk refused or slowed down %d calls", n)
	if n == 0 {
		t.Error("the store did not meet the faults of its disk")
	}
}

// slows has fsyncs take up to 0.2 s more.
func (d *disk) slows(chance *rand.Rand) (undo func()) {
	d.slowDown(time.Duration(10+chance.IntN(200)) * time.Millisecond)
	return func() { d.slowDown(0) }
}

// badDisk makes faults of an etcd's disk. An etcd that ends by them comes back when
// they are over, as a service manager would have it.
func badDisk(s *onServer, e *process, d *disk) []fault {
	fails := func(errno syscall.Errno) func(*rand.Rand) func() {
		return func(*rand.Rand) func() {
			d.fails(errno)
			return func() {
				d.fails(0)
				e.end()
				e.start()
			}
		}
	}
	return []fault{
		s.alone("the disk is slow", d.slows),
		s.alone("the disk fails", fails(syscall.EIO)),
		s.alone("the disk is full", fails(syscall.ENOSPC)),
	}
}

// TestDiskKeepsWritesAndFailsOnRequest: the file system keeps what is written, and fails on request.
func TestDiskKeepsWritesAndFailsOnRequest(t *testing.T) {
	d := newDisk(t)
	file := filepath.Join(d.dir, "x")
	write := func() error {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.WriteString("a"); err != nil {
			return err
		}
		return f.Sync()
	}
	for _, c := range []struct {
		errno syscall.Errno
		want  string
	}{{0, ""}, {syscall.EIO, "input/output error"}, {syscall.ENOSPC, "no space left"}, {0, ""}} {
		d.fails(c.errno)
		err := write()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("errno %d: %v, want %q", c.errno, err, c.want)
		}
	}
	d.slowDown(30 * time.Millisecond)
	begin := time.Now()
	if err := write(); err != nil || time.Since(begin) < 30*time.Millisecond {
		t.Errorf("a slow write took %s: %v", time.Since(begin), err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "aaa" || d.faults(t) != 3 {
		t.Errorf("%q is there, and %d were refused or slow: %v", text, d.faults(t), err)
	}
}
