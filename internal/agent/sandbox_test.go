package agent

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/attach"
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
		runtime.LockOSThread() // never unlocked: the thread dies with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			ch <- made{err: err}
			return
		}
		f, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
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
