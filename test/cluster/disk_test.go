//go:build integration

package cluster

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// disk is a file system over a directory, which is slow, fails or is full when it is
// told to.
type disk struct {
	dir    string       // where it is mounted
	slow   atomic.Int64 // nanoseconds that an fsync takes more
	fails  atomic.Int64 // the errno of writes and fsyncs; 0 = none
	failed atomic.Int64 // how often something was refused
	slowed atomic.Int64 // how many fsyncs took more
}

// newDisk mounts one for the length of a test.
func newDisk(t *testing.T) *disk {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		lacking(t, "there is no /dev/fuse")
	}
	under := t.TempDir()
	d := &disk{dir: filepath.Join(under, "mounted")}
	data := filepath.Join(under, "data")
	for _, dir := range []string{d.dir, data} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	root := &fs.LoopbackRoot{Path: data}
	node := func(root *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return &diskNode{fs.LoopbackNode{RootData: root}, d}
	}
	root.NewNode = node //nolint:staticcheck // what takes its place wraps nodes; these are loopback nodes themselves
	root.RootNode = node(root, nil, "", nil)
	second := time.Second
	server, err := fs.Mount(d.dir, root.RootNode, &fs.Options{
		EntryTimeout: &second, AttrTimeout: &second,
		MountOptions: fuse.MountOptions{FsName: "contiv-test", DirectMountStrict: true},
	})
	if err != nil {
		lacking(t, "a FUSE file system cannot be mounted: "+err.Error())
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Errorf("the disk is not unmounted: %v", err)
			return
		}
		server.Wait()
	})
	return d
}

// diskOf is the disk of a store that fails; nil = none.
func diskOf(st storage) *disk {
	switch st := st.(type) {
	case *onServer:
		return st.disk
	case *members:
		return st.disk
	}
	return nil
}

// met fails a test whose store asked nothing of the disk while that was bad: nothing was
// tried then.
func (d *disk) met(t *testing.T) {
	t.Helper()
	refused, slowed := d.failed.Load(), d.slowed.Load()
	t.Logf("the disk refused %d times and was slow %d times", refused, slowed)
	if refused+slowed == 0 {
		t.Error("the store did not meet the faults of its disk")
	}
}

func (d *disk) refuses() syscall.Errno {
	e := syscall.Errno(d.fails.Load())
	if e != 0 {
		d.failed.Add(1)
	}
	return e
}

// diskNode is a file of the disk.
type diskNode struct {
	fs.LoopbackNode
	d *disk
}

// diskFile is a file that was opened: all that is done with it comes by here, where the
// kernel would go past.
type diskFile struct{ *fs.LoopbackFile }

func (diskFile) PassthroughFd() (int, bool) { return 0, false }

func opened(f fs.FileHandle) fs.FileHandle {
	if l, ok := f.(*fs.LoopbackFile); ok {
		return diskFile{l}
	}
	return f
}

func (n *diskNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, how, e := n.LoopbackNode.Open(ctx, flags)
	return opened(f), how, e
}

func (n *diskNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	i, f, how, e := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	return i, opened(f), how, e
}

var (
	_ fs.NodeOpener    = (*diskNode)(nil)
	_ fs.NodeCreater   = (*diskNode)(nil)
	_ fs.NodeWriter    = (*diskNode)(nil)
	_ fs.NodeFsyncer   = (*diskNode)(nil)
	_ fs.NodeAllocater = (*diskNode)(nil)
)

func (n *diskNode) Write(ctx context.Context, f fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	if e := n.d.refuses(); e != 0 {
		return 0, e
	}
	return f.(fs.FileWriter).Write(ctx, data, off)
}

func (n *diskNode) Fsync(ctx context.Context, f fs.FileHandle, flags uint32) syscall.Errno {
	if slow := n.d.slow.Load(); slow > 0 {
		n.d.slowed.Add(1)
		_ = waiting.Pause(ctx, time.Duration(slow)) // an interrupted fsync is done all the same
	}
	if syscall.Errno(n.d.fails.Load()) == syscall.EIO {
		return n.d.refuses()
	}
	if s, ok := f.(fs.FileFsyncer); ok {
		return s.Fsync(ctx, flags)
	}
	return 0 // of a directory
}

func (n *diskNode) Allocate(ctx context.Context, f fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	if e := n.d.refuses(); e != 0 {
		return e
	}
	return f.(fs.FileAllocater).Allocate(ctx, off, size, mode)
}

// slows has fsyncs take up to 0.2 s more.
func (d *disk) slows(chance *rand.Rand) (undo func()) {
	d.slow.Store(int64(10+chance.IntN(200)) * int64(time.Millisecond))
	return func() { d.slow.Store(0) }
}

// badDisk makes faults of an etcd's disk. An etcd that ends by them comes back when
// they are over, as a service manager would have it.
func badDisk(s *onServer, e *process, d *disk) []fault {
	fails := func(errno syscall.Errno) func(*rand.Rand) func() {
		return func(*rand.Rand) func() {
			d.fails.Store(int64(errno))
			return func() {
				d.fails.Store(0)
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

// TestDisk: the file system keeps what is written, and fails on request.
func TestDisk(t *testing.T) {
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
		d.fails.Store(int64(c.errno))
		err := write()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("errno %d: %v, want %q", c.errno, err, c.want)
		}
	}
	d.slow.Store(int64(30 * time.Millisecond))
	begin := time.Now()
	if err := write(); err != nil || time.Since(begin) < 30*time.Millisecond {
		t.Errorf("a slow write took %s: %v", time.Since(begin), err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "aaa" || d.failed.Load() != 2 {
		t.Errorf("%q is there, and %d were refused: %v", text, d.failed.Load(), err)
	}
}
