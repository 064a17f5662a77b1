// Command disk mounts a file system over a directory, which is slow, fails or is full on
// request. What it does not refuse is kept as the directory keeps it. It is a module of its
// own, so that no program of ours depends on a FUSE library. test/cluster starts it. Start
// with main, whose comment has its usage.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Usage: disk DATA MOUNTPOINT. It prints a line when it is mounted. Each line on its standard
// input, "SLOW ERRNO", sets how many nanoseconds an fsync takes more, and with which error
// (errno(3), 0 = none) writes and fsyncs fail; the answer, "REFUSED SLOWED", is how many
// calls it has refused and how many fsyncs it has slowed down. It unmounts at the end of its
// input.
func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: disk DATA MOUNTPOINT")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "disk:", err)
		os.Exit(1)
	}
}

// disk is what is asked of it, and what came of that.
type disk struct {
	slow    atomic.Int64 // nanoseconds that an fsync takes more
	errno   atomic.Int64 // of writes and fsyncs; 0 = they succeed
	refused atomic.Int64
	slowed  atomic.Int64
}

func serve(data, at string, in io.Reader, out io.Writer) error {
	d := &disk{}
	root := &fs.LoopbackRoot{Path: data}
	node := func(root *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return &diskNode{fs.LoopbackNode{RootData: root}, d}
	}
	root.NewNode = node //nolint:staticcheck // what takes its place wraps nodes; these are loopback nodes themselves
	root.RootNode = node(root, nil, "", nil)
	second := time.Second
	server, err := fs.Mount(at, root.RootNode, &fs.Options{
		EntryTimeout: &second, AttrTimeout: &second,
		MountOptions: fuse.MountOptions{FsName: "contiv-test", DirectMountStrict: true},
	})
	if err != nil {
		return fmt.Errorf("a FUSE file system cannot be mounted: %w", err)
	}
	fmt.Fprintln(out, "mounted")
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var slow, errno int64
		if _, err := fmt.Sscan(lines.Text(), &slow, &errno); err != nil {
			return fmt.Errorf("%q is not SLOW ERRNO: %w", lines.Text(), err)
		}
		d.slow.Store(slow)
		d.errno.Store(errno)
		fmt.Fprintln(out, d.refused.Load(), d.slowed.Load())
	}
	if err := server.Unmount(); err != nil {
		return err
	}
	server.Wait()
	return nil
}

func (d *disk) refuse() syscall.Errno {
	e := syscall.Errno(d.errno.Load())
	if e != 0 {
		d.refused.Add(1)
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
	if e := n.d.refuse(); e != 0 {
		return 0, e
	}
	return f.(fs.FileWriter).Write(ctx, data, off)
}

func (n *diskNode) Fsync(ctx context.Context, f fs.FileHandle, flags uint32) syscall.Errno {
	if slow := n.d.slow.Load(); slow > 0 {
		n.d.slowed.Add(1)
		select { // an interrupted fsync is done all the same
		case <-time.After(time.Duration(slow)):
		case <-ctx.Done():
		}
	}
	if syscall.Errno(n.d.errno.Load()) == syscall.EIO {
		return n.d.refuse()
	}
	if s, ok := f.(fs.FileFsyncer); ok {
		return s.Fsync(ctx, flags)
	}
	return 0 // of a directory
}

func (n *diskNode) Allocate(ctx context.Context, f fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	if e := n.d.refuse(); e != 0 {
		return e
	}
	return f.(fs.FileAllocater).Allocate(ctx, off, size, mode)
}
