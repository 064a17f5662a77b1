package agent

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// sandbox is a container's network namespace.
type sandbox struct {
	path string
	file *os.File
}

// newSandbox makes a namespace that lives as long as the test.
func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	type made struct {
		f   *os.File
		err error
	}
	ch := make(chan made)
	go func() {
		runtime.LockOSThread() // unlocked only where the thread is as before; else it dies with the goroutine
		before, err := os.Open("/proc/thread-self/ns/net")
		if err == nil {
			err = unix.Unshare(unix.CLONE_NEWNET)
		}
		if err != nil {
			ch <- made{err: err}
			return
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		// The process's first thread outlives its goroutine, and would keep the namespace.
		if back := unix.Setns(int(before.Fd()), unix.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread()
		} else {
			err = errors.Join(err, back)
		}
		_ = before.Close() // it was read from nowhere
		ch <- made{f, err}
	}()
	m := <-ch
	if m.err != nil {
		t.Fatal(m.err)
	}
	s := &sandbox{path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), m.f.Fd()), file: m.f}
	t.Cleanup(s.close)
	return s
}

func (s *sandbox) close() { _ = s.file.Close() } // a second time fails, as it should

func request(container string, s *sandbox) attach.Request {
	return attach.Request{
		Key: attach.Key{Container: container, IfName: "eth0"}, Netns: s.path,
		Tenant: "blue", Source: attach.SourceCNI, Config: "conf1",
	}
}
