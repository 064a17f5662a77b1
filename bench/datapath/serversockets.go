package main

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// serverSockets are where the servers of a path take connections.
type serverSockets struct {
	fds  []int
	poll int // of several; -1 = one is asked by itself
}

// listen opens the servers' ends.
func listen(p path) (d *serverSockets, err error) {
	d = &serverSockets{poll: -1}
	defer func() {
		if err != nil {
			d.close()
			err = fmt.Errorf("%s: listen: %w", p.name, err)
		}
	}()
	if len(p.servers) == 0 {
		return d, d.open(p.server)
	}
	if d.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return d, err
	}
	for _, ns := range p.servers {
		if err := d.open(ns); err != nil {
			return d, err
		}
		fd := d.fds[len(d.fds)-1]
		if err := unix.EpollCtl(d.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return d, err
		}
	}
	return d, nil
}

func (d *serverSockets) open(ns *testcluster.Namespace) error {
	return ns.Do(func() error {
		fd, err := socket()
		if err != nil {
			return err
		}
		d.fds = append(d.fds, fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
			return err
		}
		return unix.Listen(fd, 1024)
	})
}

// accept returns the next connection, unseen by the Go scheduler; false = there is
// none for seconds, or wake was called.
func (d *serverSockets) accept() (int, bool) {
	if d.poll < 0 {
		return accept(d.fds[0])
	}
	var e unix.EpollEvent
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_WAIT, uintptr(d.poll), uintptr(unsafe.Pointer(&e)), 1, 5000, 0, 0)
		if errno == 0 && n == 1 {
			return accept(int(e.Fd))
		}
		if errno != unix.EINTR {
			return 0, false
		}
	}
}

// wake ends an accept that waits.
func (d *serverSockets) wake() { _ = unix.Shutdown(d.fds[0], unix.SHUT_RDWR) } // it listens: that cannot fail

func (d *serverSockets) close() {
	for _, fd := range d.fds {
		shut(fd)
	}
	if d.poll >= 0 {
		shut(d.poll)
	}
}
