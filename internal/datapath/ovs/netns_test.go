package ovs

import (
	"os"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

var interrupt os.Signal = unix.SIGINT

// inNamespace runs fn on a thread in a namespace; sockets that it makes stay there.
func inNamespace(name string, fn func() error) error {
	res := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		h, err := netns.GetFromName(name)
		if err == nil {
			defer h.Close()
			err = netns.Set(h)
		}
		if err == nil {
			err = fn()
		}
		res <- err
	}()
	return <-res
}
