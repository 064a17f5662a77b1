package hoststack

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// The kernel takes packets to ::1 from no interface but lo, so it cannot translate
// connections to ::1 as it does those to 127.0.0.1 (route_localnet; IPv6 has no such
// setting): a container's answers would not get there. So netplugin passes them on.

// Bounds of what is passed on, for all ports together: any process of the host may
// begin it.
const (
	maxRelayed  = 512              // connections of TCP, and senders of UDP
	relayedIdle = 90 * time.Second // without a datagram either way, a sender of UDP is forgotten
	relayDial   = 10 * time.Second // for a container to take a connection
)

// relayMark is the mark of what is passed on: policies judge it, as they do what the kernel
// translates. It has none of the bits of kube-proxy and kubelets (desired.OwnMark).
const relayMark = 0xc0ff2e37

// markRelayed gives a socket that mark.
func markRelayed(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, relayMark) })
	return errors.Join(err, failed)
}

// relay passes on what comes to a held port at ::1.
type relay struct {
	dial func(ctx context.Context, network, to string) (net.Conn, error)
	room chan struct{} // one for each that is passed on
	ctx  context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex
	to    netip.AddrPort
	conns map[io.Closer]bool // all that are open
}

// needsRelay reports whether connections to ::1 reach a port's socket and netplugin relays
// them. It does not relay SCTP, which may have several addresses.
func needsRelay(p HostPort) bool {
	return p.Proto != model.ProtoSCTP && (p.Addr == netip.IPv6Unspecified() || p.Addr == netip.IPv6Loopback())
}

// toLoopback takes packets to ::1 and drops all others, which the kernel translates.
func toLoopback() []unix.SockFilter {
	const network = 0xfff00000 // SKF_NET_OFF: from the network header
	var program []unix.SockFilter
	for i, word := range []uint32{0, 0, 0, 1} {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: network + dst6.offset + uint32(4*i)},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: word, Jf: uint8(2*(3-i) + 1)})
	}
	return append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff}, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K})
}

// newRelay passes on what comes to a bound socket, which it takes over.
func newRelay(fd int, proto model.Protocol, to netip.AddrPort, room chan struct{}, dial func(ctx context.Context, network, to string) (net.Conn, error)) (*relay, error) {
	f := os.NewFile(uintptr(fd), "held port")
	defer func() { _ = f.Close() }() // what follows has a descriptor of its own
	r := &relay{dial: dial, room: room, to: to, conns: map[io.Closer]bool{}}
	r.ctx, r.end = context.WithCancel(context.Background())
	if proto == model.ProtoUDP {
		c, err := net.FilePacketConn(f)
		if err != nil {
			return nil, err
		}
		r.open(c)
		r.wg.Go(func() { r.datagrams(c.(*net.UDPConn)) })
		return r, nil
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	r.open(l)
	r.wg.Go(func() { r.connections(l) })
	return r, nil
}

// setTarget says where the container is.
func (r *relay) setTarget(to netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
}

// close ends everything that is passed on, and waits for it.
func (r *relay) close() {
	r.end()
	r.mu.Lock()
	for c := range r.conns {
		_ = c.Close() // it has no data to lose
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// open notes what close has to close, or closes it when that was already.
func (r *relay) open(c io.Closer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		_ = c.Close()
		return
	}
	r.conns[c] = true
}

func (r *relay) closeConn(c io.Closer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
	_ = c.Close()
}

// dialContainer opens a connection to the container.
func (r *relay) dialContainer(network string) (net.Conn, error) {
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.ctx, relayDial)
	defer cancel()
	return r.dial(ctx, network, to.String())
}

// pauseAfterError waits a moment after a failure, such as too many open files; false = it has
// ended.
func (r *relay) pauseAfterError(err error) bool {
	if errors.Is(err, net.ErrClosed) {
		return false
	}
	select {
	case <-r.ctx.Done():
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

func (r *relay) connections(l net.Listener) {
	defer r.closeConn(l)
	for {
		c, err := l.Accept()
		if err != nil {
			if !r.pauseAfterError(err) {
				return
			}
			continue
		}
		r.open(c)
		select {
		case r.room <- struct{}{}:
		case <-r.ctx.Done():
			return
		}
		r.wg.Go(func() {
			defer func() { <-r.room }()
			defer r.closeConn(c)
			r.connection(c.(*net.TCPConn))
		})
	}
}

func (r *relay) connection(c *net.TCPConn) {
	up, err := r.dialContainer("tcp")
	if err != nil {
		_ = c.SetLinger(0) // a reset, as the container's would be
		return
	}
	r.open(up)
	defer r.closeConn(up)
	var both sync.WaitGroup
	pass := func(to, from *net.TCPConn) {
		_, _ = io.Copy(to, from) // either end hears of it by the end of its connection
		_ = to.CloseWrite()
	}
	both.Go(func() { pass(up.(*net.TCPConn), c) })
	pass(c, up.(*net.TCPConn))
	both.Wait()
}

func (r *relay) datagrams(c *net.UDPConn) {
	defer r.closeConn(c)
	var mu sync.Mutex
	senders := map[netip.AddrPort]net.Conn{} // their sockets towards the container
	b := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			if !r.pauseAfterError(err) {
				return
			}
			continue
		}
		mu.Lock()
		up := senders[from]
		mu.Unlock()
		if up == nil {
			select {
			case r.room <- struct{}{}:
			default:
				continue // as on a link that is full
			}
			if up, err = r.dialContainer("udp"); err != nil {
				<-r.room
				continue
			}
			r.open(up)
			mu.Lock()
			senders[from] = up
			mu.Unlock()
			r.wg.Go(func() {
				defer func() { <-r.room }()
				defer r.closeConn(up)
				r.forwardReplies(c, up, from)
				mu.Lock()
				delete(senders, from)
				mu.Unlock()
			})
		}
		_ = up.SetReadDeadline(time.Now().Add(relayedIdle))
		_, _ = up.Write(b[:n]) // a datagram may be lost
	}
}

// forwardReplies passes a container's datagrams on to a sender until neither sends any more.
func (r *relay) forwardReplies(c *net.UDPConn, up net.Conn, to netip.AddrPort) {
	b := make([]byte, 1<<16)
	for {
		n, err := up.Read(b)
		if err != nil {
			return
		}
		_ = up.SetReadDeadline(time.Now().Add(relayedIdle))
		_, _ = c.WriteToUDPAddrPort(b[:n], to) // a datagram may be lost
	}
}
