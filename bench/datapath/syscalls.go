package main

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// raw makes a system call on a buffer that the Go scheduler does not see: the
// threads here do what a C program's would. A result of 0 is the end of a stream.
func raw(call uintptr, fd int, b []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if errno == 0 {
			return int(n), nil
		}
		if errno != unix.EINTR {
			return 0, errno
		}
	}
}

// address is what connect(2) wants of an IPv4 server.
func address(a netip.Addr, port uint16) *unix.RawSockaddrInet4 {
	be := binary.BigEndian.AppendUint16(nil, port)
	return &unix.RawSockaddrInet4{Family: unix.AF_INET, Port: binary.NativeEndian.Uint16(be), Addr: a.As4()}
}

// dial is connect(2), unseen by the Go scheduler.
func dial(fd int, to *unix.RawSockaddrInet4) error {
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(to)), unsafe.Sizeof(*to))
	if errno != 0 {
		return errno
	}
	return nil
}

// accept is accept4(2), unseen by the Go scheduler; false = the listener was shut.
func accept(l int) (int, bool) {
	for {
		s, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(l), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
		if errno == 0 {
			return int(s), true
		}
		if errno != unix.EINTR {
			return 0, false
		}
	}
}

// send is sendto(2), unseen by the Go scheduler.
func send(fd int, b []byte, to *unix.RawSockaddrInet4) error {
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
			0, uintptr(unsafe.Pointer(to)), unsafe.Sizeof(*to))
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return errno
		}
	}
}

// receive is recvfrom(2), unseen by the Go scheduler.
func receive(fd int, b []byte, from *unix.RawSockaddrInet4) (int, error) {
	size := uint32(unsafe.Sizeof(*from))
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
			0, uintptr(unsafe.Pointer(from)), uintptr(unsafe.Pointer(&size)))
		if errno == 0 {
			return int(n), nil
		}
		if errno != unix.EINTR {
			return 0, errno
		}
	}
}
