package l2announce

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// port answers on one interface.
type port struct {
	index   int
	mac     net.HardwareAddr
	sockets []*os.File
	groups  int // a socket that is a member of the groups of IPv6 addresses; -1 = there is none
	member  map[netip.Addr]bool
	until   atomic.Pointer[map[netip.Addr]time.Time] // for which it answers, till when
	dead    atomic.Bool                              // a socket is of no use any more
	reading sync.WaitGroup
}

// solicitations passes neighbour solicitations alone.
var solicitations = []bpf.Instruction{
	bpf.LoadAbsolute{Off: etherLen + 6, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: icmpv6, SkipTrue: 3},
	bpf.LoadAbsolute{Off: etherLen + ipv6Len, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: neighbourSolicitation, SkipTrue: 1},
	bpf.RetConstant{Val: 2048},
	bpf.RetConstant{Val: 0},
}

// openPort begins to listen, and answers for nothing yet.
func openPort(index int, mac net.HardwareAddr) (*port, error) {
	p := &port{index: index, mac: mac, groups: -1, member: map[netip.Addr]bool{}}
	p.until.Store(&map[netip.Addr]time.Time{})
	for _, kind := range []uint16{etherARP, etherIPv6} {
		f, err := listen(index, kind)
		if err != nil {
			p.close()
			return nil, err
		}
		p.sockets = append(p.sockets, f)
	}
	for _, f := range p.sockets {
		p.reading.Go(func() { p.read(f) })
	}
	return p, nil
}

// listen opens a packet socket on an interface.
func listen(index int, kind uint16) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // it hears nothing yet
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("packets of kind %#x of interface %d", kind, index)) //nolint:gosec // a descriptor
	if kind == etherIPv6 {
		raw, err := bpf.Assemble(solicitations)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		filter := make([]unix.SockFilter, len(raw))
		for i, x := range raw {
			filter[i] = unix.SockFilter{Code: x.Op, Jt: x.Jt, Jf: x.Jf, K: x.K}
		}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil { //nolint:gosec // a handful
			return nil, errors.Join(fmt.Errorf("filter packets: %w", err), f.Close())
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: kind<<8 | kind>>8, Ifindex: index}); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on interface %d: %w", index, err), f.Close())
	}
	return f, nil
}

// read answers what is asked until the socket is closed.
func (p *port) read(f *os.File) {
	buf := make([]byte, 2048)
	for {
		n, err := f.Read(buf)
		switch {
		case errors.Is(err, unix.ENETDOWN): // it may come up again
			continue
		case err != nil:
			p.dead.Store(true)
			return
		}
		if out := answer(buf[:n], p.mac, p.answersFor); out != nil {
			_, _ = f.Write(out) // who asks asks again
		}
	}
}

// answersFor reports whether it answers for an address now.
func (p *port) answersFor(a netip.Addr) bool {
	until, ok := (*p.until.Load())[a]
	return ok && time.Now().Before(until)
}

// answerFor has it answer for some addresses, and for no others.
func (p *port) answerFor(until map[netip.Addr]time.Time) error {
	p.until.Store(&until)
	for a := range p.member {
		if _, still := until[a]; !still {
			_ = p.join(a, unix.IPV6_LEAVE_GROUP) // it may have gone with the interface
			delete(p.member, a)
		}
	}
	for a := range until {
		if a.Is6() && !p.member[a] {
			if err := p.join(a, unix.IPV6_JOIN_GROUP); err != nil {
				return fmt.Errorf("listen for ARP and neighbour discovery for %s: %w", a, err)
			}
			p.member[a] = true
		}
	}
	return nil
}

// join enters or leaves the group in which an IPv6 address is asked for: the interface
// and switches pass it.
func (p *port) join(a netip.Addr, how int) error {
	g := solicited(a)
	for o := range p.member {
		if o != a && solicited(o) == g { // another one's too
			return nil
		}
	}
	if p.groups < 0 {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		p.groups = fd
	}
	return unix.SetsockoptIPv6Mreq(p.groups, unix.IPPROTO_IPV6, how, &unix.IPv6Mreq{Multiaddr: g.As16(), Interface: uint32(p.index)}) //nolint:gosec // an index
}

// announce tells the neighbours of an address.
func (p *port) announce(a netip.Addr) error {
	f := p.sockets[0]
	if a.Is6() {
		f = p.sockets[1]
	}
	_, err := f.Write(Announcement(p.mac, a))
	return err
}

// isUsableFor reports whether it is still of use for an interface.
func (p *port) isUsableFor(mac net.HardwareAddr) bool {
	return !p.dead.Load() && bytes.Equal(p.mac, mac)
}

func (p *port) close() {
	for _, f := range p.sockets {
		_ = f.Close() // nothing is lost
	}
	p.reading.Wait()
	if p.groups >= 0 {
		_ = unix.Close(p.groups)
	}
}
