package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Association is a client's end of an association.
type Association struct {
	*os.File
	sent uint32
}

// socketOfSCTP makes one that gives up on lost packets soon, so that what is dropped is
// known in seconds; from is what it is bound to, invalid = all addresses.
func socketOfSCTP(from netip.AddrPort) (fd int, err error) {
	family, local := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(from.Port())})
	if from.Addr().IsValid() {
		family, local = sockaddr(from)
	}
	if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP); err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	// struct sctp_rtoinfo: association, initial, max, min; struct sctp_initmsg: streams
	// out and in, attempts, max timeout; struct sctp_assocparams: association, how often
	// something is sent again before the association ends, and 14 bytes more.
	rto := binary.NativeEndian.AppendUint32(nil, 0)
	for _, ms := range []uint32{500, 1000, 200} {
		rto = binary.NativeEndian.AppendUint32(rto, ms)
	}
	var initmsg []byte
	for _, v := range []uint16{0, 0, 4, 500} {
		initmsg = binary.NativeEndian.AppendUint16(initmsg, v)
	}
	params := append(binary.NativeEndian.AppendUint16(make([]byte, 4), 1000), make([]byte, 14)...)
	const rtoInfo, assocInfo, initMsg = 0, 1, 2 // linux/sctp.h
	err = errors.Join(
		unix.SetsockoptString(fd, unix.IPPROTO_SCTP, rtoInfo, string(rto)),
		unix.SetsockoptString(fd, unix.IPPROTO_SCTP, assocInfo, string(params)),
		unix.SetsockoptString(fd, unix.IPPROTO_SCTP, initMsg, string(initmsg)),
		unix.Bind(fd, local),
	)
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) (family int, sa unix.Sockaddr) {
	if a.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// Associate connects from an address of a container; invalid = from all of them.
func (s Stacks) Associate(container int, from netip.Addr, to netip.AddrPort) (*Association, error) {
	a := &Association{}
	err := s.In(container, func() error {
		fd, err := socketOfSCTP(netip.AddrPortFrom(from, 0))
		if err != nil {
			return err
		}
		if !from.IsValid() {
			to = netip.AddrPortFrom(netip.AddrFrom16(to.Addr().As16()), to.Port())
		}
		_, sa := sockaddr(to)
		if err := unix.Connect(fd, sa); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			_ = unix.Close(fd)
			return err
		}
		a.File = os.NewFile(uintptr(fd), "sctp "+to.String())
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := a.connected(); err != nil {
		_ = a.Close()
		return nil, err
	}
	return a, nil
}

// connected waits until the association stands.
func (a *Association) connected() error {
	_ = a.SetDeadline(time.Now().Add(5 * time.Second))
	raw, err := a.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(p, 0); err != nil || n == 0 {
			return false
		}
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if failed = err; err == nil && code != 0 {
			failed = unix.Errno(code)
		}
		return true
	})
	return errors.Join(err, failed)
}

// echo sends a message and waits for the same one; those of former tries may come first.
func (a *Association) echo(within time.Duration) error {
	_ = a.SetDeadline(time.Now().Add(within))
	a.sent++
	if err := binary.Write(a, binary.BigEndian, a.sent); err != nil {
		return err
	}
	for {
		var got uint32
		if err := binary.Read(a, binary.BigEndian, &got); err != nil || got == a.sent {
			return err
		}
	}
}

func (a *Association) mustEcho(t testing.TB, what string) {
	t.Helper()
	if err := a.echo(time.Minute); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// Bulk sends a megabyte in messages of many packets, which the stack may join to
// segments, and wants it back.
func (s Stacks) Bulk(t testing.TB, from netip.Addr, to netip.AddrPort) {
	t.Helper()
	a := s.passes(t, "bulk", from, to)
	_ = a.SetDeadline(time.Now().Add(2 * time.Minute))
	sent := make([]byte, 1<<20)
	for i := range sent {
		sent[i] = byte(i * i >> 7)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for rest := sent; len(rest) > 0; rest = rest[1<<15:] {
			if _, err := a.Write(rest[:1<<15]); err != nil {
				t.Errorf("send: %v", err)
				return
			}
		}
	})
	got := make([]byte, len(sent))
	if n, err := io.ReadFull(a, got); err != nil {
		t.Errorf("after %d bytes: %v", n, err)
	} else if !bytes.Equal(got, sent) {
		t.Error("what came back is not what was sent")
	}
}

// EchoSCTP listens at an address of a container, or at all (invalid), and sends back what
// comes.
func (s Stacks) EchoSCTP(t testing.TB, container int, at netip.AddrPort) {
	t.Helper()
	var l *os.File
	if err := s.In(container, func() error {
		fd, err := socketOfSCTP(at)
		if err != nil {
			return err
		}
		if err := unix.Listen(fd, 64); err != nil {
			_ = unix.Close(fd)
			return err
		}
		l = os.NewFile(uintptr(fd), "sctp listener")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	echoes(t, l, func() (io.ReadWriteCloser, error) {
		raw, err := l.SyscallConn()
		if err != nil {
			return nil, err
		}
		var c *os.File
		var failed error
		err = raw.Read(func(fd uintptr) bool {
			var n int
			if n, _, failed = unix.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC); failed == nil {
				c = os.NewFile(uintptr(n), "sctp server")
			}
			return !errors.Is(failed, unix.EAGAIN)
		})
		return c, errors.Join(err, failed)
	})
}

func (s Stacks) echoTCP(t testing.TB, container int, port uint16) {
	t.Helper()
	var l net.Listener
	if err := s.In(container, func() (err error) {
		l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", ":"+strconv.Itoa(int(port)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	echoes(t, l, func() (io.ReadWriteCloser, error) { return l.Accept() })
}

// echoes sends back what comes to each that is accepted, until the test ends.
func echoes(t testing.TB, l io.Closer, accept func() (io.ReadWriteCloser, error)) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []io.Closer
	wg.Go(func() {
		for {
			c, err := accept()
			if err != nil {
				return
			}
			mu.Lock()
			all = append(all, c)
			mu.Unlock()
			wg.Go(func() {
				b := make([]byte, 1<<16)
				for {
					n, err := c.Read(b)
					if n > 0 && err == nil {
						_, err = c.Write(b[:n])
					}
					if n == 0 || err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range all {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
}

// tcp tries a connection by TCP.
func (s Stacks) tcp(container int, to netip.AddrPort) error {
	return s.In(container, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		c, err := new(net.Dialer).DialContext(ctx, "tcp", to.String())
		if err == nil {
			err = c.Close()
		}
		return err
	})
}
