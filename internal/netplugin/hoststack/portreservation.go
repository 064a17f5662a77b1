package hoststack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// HostPort is a port of the host: of one of its addresses, or of all of a family
// (0.0.0.0, ::).
type HostPort struct {
	Proto model.Protocol
	Addr  netip.Addr
	Port  uint16
}

func (p HostPort) String() string {
	if p.Addr == netip.IPv4Unspecified() {
		return fmt.Sprintf("%d/%s", p.Port, p.Proto)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(p.Addr, p.Port), p.Proto)
}

// Holder reserves ports of the host for containers by bound sockets, as a serving process
// would. A port that a process has cannot be reserved, and a process that binds a reserved
// port gets "address in use". The sockets receive only packets to ::1, which Holder relays
// to the container. Any goroutine may use it.
type Holder struct {
	mu      sync.Mutex
	sockets map[HostPort]socket
	room    chan struct{} // of relays

	// Only tests set these.
	most int // relayed at once; 0 = maxRelayed
	dial func(ctx context.Context, network, to string) (net.Conn, error)
}

// socket holds a port.
type socket struct {
	fd    int    // without a relay; -1 = the kernel has none of that protocol
	relay *relay // nil = nothing is passed on
}

// Reserve reserves a port that leads to a container's; one that is held already is fine.
// ErrExists: the port is in use; ErrInvalid: this host does not have the address.
func (h *Holder) Reserve(p HostPort, to netip.AddrPort) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.sockets[p]; ok {
		if s.relay != nil {
			s.relay.setTarget(to)
		}
		return nil
	}
	fd, err := reserve(p)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return model.Errorf(model.ErrExists, "host port %s: address already in use by a process of this host or a port that another engine publishes", p)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return model.Errorf(model.ErrInvalid, "host port %s: this host has no address %s", p, p.Addr)
	case err != nil:
		return fmt.Errorf("take host port %s: %w", p, err)
	}
	if h.sockets == nil {
		h.sockets, h.room = map[HostPort]socket{}, make(chan struct{}, cmp.Or(h.most, maxRelayed))
	}
	s := socket{fd: fd}
	if needsRelay(p) {
		dial := h.dial
		if dial == nil {
			dial = (&net.Dialer{Control: markRelayed}).DialContext
		}
		if s.relay, err = newRelay(fd, p.Proto, to, h.room, dial); err != nil {
			return fmt.Errorf("take host port %s: %w", p, err)
		}
	}
	h.sockets[p] = s
	return nil
}

// Any reports whether a port is held.
func (h *Holder) Any() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sockets) > 0
}

// Keep gives up all ports that are not wanted any more.
func (h *Holder) Keep(wanted map[HostPort]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.sockets, func(p HostPort, s socket) bool {
		if wanted[p] {
			return false
		}
		switch {
		case s.relay != nil:
			s.relay.close()
		case s.fd >= 0:
			_ = unix.Close(s.fd) // it has no data to lose
		}
		return true
	})
}

// reserve opens a socket that has a port and takes nothing but, of a port that is
// relayed, what is sent to ::1.
func reserve(p HostPort) (fd int, err error) {
	kind := unix.SOCK_STREAM
	if p.Proto == model.ProtoUDP {
		kind = unix.SOCK_DGRAM
	}
	family := unix.AF_INET
	if p.Addr.Is6() {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, int(p.Proto))
	if p.Proto == model.ProtoSCTP && (errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT)) {
		return -1, nil // then no process has the port either
	}
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	filter, backlog := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}, 0 // keeps 0 bytes: drops
	if needsRelay(p) {
		filter, backlog = toLoopback(), unix.SOMAXCONN
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		return -1, err
	}
	if kind == unix.SOCK_STREAM {
		// Connections that ended a moment ago do not count; the price is that only a
		// socket that listens keeps others out.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return -1, err
		}
	}
	if p.Addr.Is6() { // IPv4 has a socket of its own, if it is wanted
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return -1, err
		}
		err = unix.Bind(fd, &unix.SockaddrInet6{Port: int(p.Port), Addr: p.Addr.As16()})
	} else {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(p.Port), Addr: p.Addr.As4()})
	}
	if err != nil {
		return -1, err
	}
	if kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, backlog)
	}
	return fd, err
}
