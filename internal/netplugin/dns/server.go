package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// Config is what a Server needs. Log is required.
type Config struct {
	Upstreams  []netip.AddrPort // resolvers to ask; nil = those of ResolvConf
	ResolvConf string           // empty = /etc/resolv.conf
	Log        *slog.Logger
	// Asked tells which server a question was meant for, before the host redirected
	// it here. The question came over network, "udp" or "tcp", from a remote
	// address to the local address at. Nil, or an error: not known.
	Asked func(network string, from, at netip.AddrPort) (netip.AddrPort, error)

	now func() time.Time // of tests
}

// Server is one host's name server. Its methods are safe for concurrent use.
type Server struct {
	cfg       Config
	names     *names
	cache     *cache
	upstreams *upstreams
	flights   singleflight.Group
	underWay  forwardLimit
	loop      loop
	count     counters
	work      sync.WaitGroup // beside the answers
}

// New returns a Server that knows no clients yet and refuses all.
func New(cfg Config) *Server {
	if cfg.now == nil {
		cfg.now = time.Now
	}
	if cfg.ResolvConf == "" {
		cfg.ResolvConf = ResolvConf
	}
	s := &Server{cfg: cfg, names: newNames(), cache: newCache(cacheBytes, cfg.now), underWay: forwardLimit{by: map[netip.Addr]int{}}}
	s.upstreams = &upstreams{fixed: cfg.Upstreams, path: cfg.ResolvConf, now: cfg.now, log: cfg.Log, changed: s.cache.clear}
	return s
}

// Update takes the names and the local ports of a desired state.
func (s *Server) Update(h desired.Host) { s.names.update(h) }

// Sockets are where a Server listens, on one address and port, and beside it on
// others.
type Sockets struct {
	UDP    net.PacketConn
	TCP    net.Listener
	Beside []Sockets
}

// Addr is the address of the first two sockets.
func (l Sockets) Addr() netip.AddrPort { return l.TCP.Addr().(*net.TCPAddr).AddrPort() }

// Close closes all; Serve does it too.
func (l Sockets) Close() error {
	err := errors.Join(l.UDP.Close(), l.TCP.Close())
	for _, o := range l.Beside {
		err = errors.Join(err, o.Close())
	}
	return err
}

// Listen opens the sockets on a port of an address, which need not be there
// yet; port 0 = one that is free for both.
func Listen(ctx context.Context, addr netip.AddrPort) (Sockets, error) {
	lc := net.ListenConfig{Control: freeBind}
	var last error
	for range 10 { // the port that is free for one may be taken for the other
		tcp, err := lc.Listen(ctx, "tcp", addr.String())
		if err != nil {
			return Sockets{}, fmt.Errorf("listen for names: %w", err)
		}
		l := Sockets{TCP: tcp}
		if l.UDP, err = lc.ListenPacket(ctx, "udp", l.Addr().String()); err == nil {
			return l, nil
		}
		last = errors.Join(fmt.Errorf("listen for names: %w", err), tcp.Close())
		if addr.Port() != 0 {
			break
		}
	}
	return Sockets{}, last
}

// freeBind lets a socket have an address that the host gets later.
func freeBind(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) }); e != nil {
		return e
	}
	return err
}

// Serve answers on the sockets until ctx ends, then closes them; questions under
// way are given up. It returns nil after ctx's end.
func (s *Server) Serve(ctx context.Context, l Sockets) error {
	all := append([]Sockets{l}, l.Beside...)
	var addrs []netip.AddrPort
	var servers []*dns.Server
	for _, x := range all {
		addrs = append(addrs, x.Addr())
		servers = append(servers, &dns.Server{PacketConn: x.UDP}, &dns.Server{Listener: newConnLimit(x.TCP, s.names)})
	}
	s.upstreams.listen(addrs...)
	inner, stop := context.WithCancel(ctx)
	defer stop()
	started := make(chan struct{}, len(servers))
	failed := make(chan error, len(servers))
	for _, srv := range servers {
		srv.Handler = handler{s, inner}
		srv.UDPSize = dns.MaxMsgSize >> 4
		srv.ReadTimeout, srv.WriteTimeout = 2*time.Second, 2*time.Second
		srv.IdleTimeout = func() time.Duration { return 5 * time.Second }
		srv.NotifyStartedFunc = func() { started <- struct{}{} }
		srv.MsgAcceptFunc = s.accept
		srv.MsgInvalidFunc = func([]byte, error) { s.count.malformed.Add(1) }
		go func() { failed <- srv.ActivateAndServe() }()
	}
	ended := 0
	var err error
	for up := 0; up < len(servers) && ended == 0; { // a server can be shut down only once it is up
		select {
		case <-started:
			up++
		case err = <-failed:
			ended++
		}
	}
	if ended == 0 {
		select {
		case <-ctx.Done():
		case err = <-failed:
			ended++
		}
	}
	stop()
	for _, srv := range servers {
		_ = srv.ShutdownContext(context.WithoutCancel(ctx)) // one that has ended says so
	}
	_ = l.Close() // most often they are closed already
	for ; ended < len(servers); ended++ {
		err = errors.Join(err, <-failed)
	}
	s.work.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve names: %w", err)
}

// accept decides by its header whether a message is parsed at all, and counts the
// messages that are not.
func (s *Server) accept(h dns.Header) dns.MsgAcceptAction {
	a := dns.DefaultMsgAcceptFunc(h)
	if a != dns.MsgAccept {
		s.count.malformed.Add(1)
	}
	return a
}

// The bounds of TCP connections.
const (
	maxConns          = 256
	maxConnsPerClient = 16
)

// connLimit is a listener that closes connections from addresses that are no local
// port's, and connections beyond the bounds.
type connLimit struct {
	net.Listener
	names *names

	open *transport.Slots
}

func newConnLimit(l net.Listener, n *names) *connLimit {
	return &connLimit{Listener: l, names: n, open: transport.NewSlots(maxConns, maxConnsPerClient)}
}

// Accept implements net.Listener.
func (l *connLimit) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		addr := addrOf(c.RemoteAddr())
		if _, ok := l.names.asker(addr); ok {
			if free, ok := l.open.Acquire(netip.PrefixFrom(addr, addr.BitLen())); ok {
				return &limitedConn{Conn: c, free: free}, nil
			}
		}
		_ = c.Close() // nothing was read
	}
}

type limitedConn struct {
	net.Conn
	free func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.free()
	return c.Conn.Close()
}
