package transport

import (
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// MaxConnections are those of all listeners of a kind in a process at a time, if it may
// have enough descriptors. One address has three quarters of them at most: the agents of
// 5,000 hosts behind one address have two or three each.
const MaxConnections = 16384

// maxPeers is the same for Peers, of whom a cluster has a few.
const maxPeers = 2048

// Kind is what a listener is for. Listeners of one kind share a limit, so that clients of
// one kind cannot use up another's.
type Kind int

// The kinds.
const (
	Asked Kind = iota // APIs, status, and joining
	Store             // the embedded store, for its clients
	Peers             // the embedded store, for its other members
	kinds
)

// logInterval is how often it is logged that connections are closed, while they are.
const logInterval = time.Minute

// listenerShares counts the connections of several listeners by the clients' addresses.
type listenerShares struct {
	*Slots

	mu     sync.Mutex
	shut   int       // since it was told
	logged time.Time // zero = never
}

// process counts those of this process's listeners, by kind. An eighth of the descriptors
// is left to the rest of it: files, and what it asks others.
var process = sync.OnceValue(func() [kinds]*listenerShares {
	cur := uint64(math.MaxInt64)
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err == nil {
		cur = l.Cur
	}
	of := func(most, part uint64) *listenerShares { return newShares(int(max(1, min(most, cur/8*part)))) }
	return [kinds]*listenerShares{Asked: of(MaxConnections, 4), Store: of(MaxConnections, 2), Peers: of(maxPeers, 1)}
})

func newShares(all int) *listenerShares {
	return &listenerShares{Slots: NewSlots(all, max(1, all/4*3))}
}

// listen returns a listener that closes connections beyond the shares as soon as they
// come, and says so.
func (s *listenerShares) listen(ln net.Listener, log *slog.Logger) net.Listener {
	return &shared{Listener: ln, shares: s, log: log}
}

// logRefused logs that connections are closed, unless it did so a moment ago.
func (s *listenerShares) logRefused(log *slog.Logger, who netip.Prefix) {
	s.mu.Lock()
	now := time.Now()
	again := s.logged.IsZero() || now.Sub(s.logged) >= logInterval
	s.shut++
	shut := s.shut
	if again {
		s.logged, s.shut = now, 0
	}
	s.mu.Unlock()
	if again {
		all, one := s.Limits()
		open, his := s.InUse(who)
		log.Warn("connections were closed as they came: there are too many", "closed", shut, "last", who.String(),
			"openOfLast", his, "mayBeOfOne", one, "open", open, "mayBe", all)
	}
}

// shared is a listener of which each address has its share.
type shared struct {
	net.Listener
	shares *listenerShares
	log    *slog.Logger
}

// Accept implements net.Listener.
func (l *shared) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		who := clientOf(c.RemoteAddr())
		if give, ok := l.shares.Acquire(who); ok {
			return &countedConn{Conn: c, done: give}, nil
		}
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0) // else the kernel keeps it for a minute; closed it is anyway
		}
		_ = c.Close() // of a connection that nothing was said on
		l.shares.logRefused(l.log, who)
	}
}

// countedConn is a connection that has a place until it is closed.
type countedConn struct {
	net.Conn
	done func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	defer c.done()
	return c.Conn.Close()
}

// clientOf is who is at the other end, as places are shared.
func clientOf(remote net.Addr) netip.Prefix {
	at, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return ClientAt(at.AddrPort().Addr())
}
