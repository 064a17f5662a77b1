package ebpf

import (
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// thread runs functions one after another on one thread, in one namespace and
// on one processor, so that packets are processed in the order they are sent.
type thread struct {
	work chan func()
	done chan struct{}
}

func newThread(t testing.TB, ns string) *thread {
	t.Helper()
	th := &thread{make(chan func()), make(chan struct{})}
	ready := make(chan error, 1)
	go func() {
		defer close(th.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		h, err := netns.GetFromName(ns)
		if err == nil {
			err = netns.Set(h)
			h.Close()
		}
		var set unix.CPUSet
		set.Set(0)
		if err == nil {
			err = unix.SchedSetaffinity(0, &set)
		}
		ready <- err
		for fn := range th.work {
			fn()
		}
	}()
	t.Cleanup(func() { close(th.work); <-th.done })
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return th
}

func (th *thread) do(fn func()) {
	done := make(chan struct{})
	th.work <- func() { defer close(done); fn() }
	<-done
}
