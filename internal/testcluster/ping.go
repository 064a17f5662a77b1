package testcluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// PingStats tells how a series of requests fared.
type PingStats struct {
	Sent, Received int
	// Gap is the longest time between two answered requests with lost ones, and only
	// such, between them; GapAt is when it began.
	Gap   time.Duration
	GapAt time.Time
	// Answered is when the last request that was answered was sent.
	Answered time.Time
}

// Lost is the number of requests without a reply.
func (s PingStats) Lost() int { return s.Sent - s.Received }

func (s PingStats) String() string {
	return fmt.Sprintf("%d sent, %d lost, longest gap %v", s.Sent, s.Lost(), s.Gap.Round(time.Millisecond))
}

// Ping sends echo requests at a fixed interval from inside the namespace until
// ctx ends, waits one more second for replies, and counts. Each request is sent
// once: a lost packet counts.
func (n *Namespace) Ping(ctx context.Context, to netip.Addr, interval time.Duration) (PingStats, error) {
	p, err := n.StartPing(to, interval)
	if err != nil {
		return PingStats{}, err
	}
	select {
	case <-ctx.Done():
	case <-p.ended:
	}
	err = p.Stop()
	return p.Between(time.Time{}, time.Now()), err
}

// Pinger sends requests until it is stopped. Its methods may be called in
// parallel.
type Pinger struct {
	to    string
	c     net.PacketConn
	peer  net.Addr
	stop  chan struct{}
	once  sync.Once
	ended chan struct{} // closed when the last request has been sent
	wg    sync.WaitGroup
	// request is the n-th message, and which tells which one an answer is to.
	request func(n int) ([]byte, error)
	which   func(answer []byte) (n uint32, ok bool)

	mu       sync.Mutex
	sentAt   []time.Time
	answered []bool
	err      error // of sending; it ended the series
}

// StartPing begins to send echo requests at a fixed interval from inside the
// namespace, each once.
func (n *Namespace) StartPing(to netip.Addr, interval time.Duration) (*Pinger, error) {
	network, any, proto := "ip4:icmp", "0.0.0.0", 1
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if to.Is6() {
		network, any, proto = "ip6:ipv6-icmp", "::", 58
		request, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	id := int(echoID.Add(1) & 0xffff)
	p := &Pinger{
		to: to.String(), peer: &net.IPAddr{IP: to.AsSlice()},
		request: func(i int) ([]byte, error) {
			data := binary.BigEndian.AppendUint32(nil, uint32(i))
			return (&icmp.Message{Type: request, Body: &icmp.Echo{ID: id, Seq: i & 0xffff, Data: data}}).Marshal(nil)
		},
		which: func(answer []byte) (uint32, bool) {
			m, err := icmp.ParseMessage(proto, answer)
			if err != nil || m.Type != reply {
				return 0, false
			}
			e, ok := m.Body.(*icmp.Echo)
			if !ok || e.ID != id || len(e.Data) != 4 {
				return 0, false
			}
			return binary.BigEndian.Uint32(e.Data), true
		},
	}
	return p, n.begin(p, interval, func() (err error) { p.c, err = icmp.ListenPacket(network, any); return err })
}

// StartDatagrams is StartPing by UDP, from one port, to somebody who sends back what
// comes, a service for example.
func (n *Namespace) StartDatagrams(to netip.AddrPort, interval time.Duration) (*Pinger, error) {
	p := &Pinger{
		to: to.String(), peer: net.UDPAddrFromAddrPort(to),
		request: func(i int) ([]byte, error) { return binary.BigEndian.AppendUint32(nil, uint32(i)), nil },
		which: func(answer []byte) (uint32, bool) {
			if len(answer) != 4 {
				return 0, false
			}
			return binary.BigEndian.Uint32(answer), true
		},
	}
	return p, n.begin(p, interval, func() (err error) {
		p.c, err = new(net.ListenConfig).ListenPacket(context.Background(), "udp", ":0")
		return err
	})
}

// begin opens a pinger's socket inside the namespace and starts it.
func (n *Namespace) begin(p *Pinger, interval time.Duration, open func() error) error {
	p.stop, p.ended = make(chan struct{}), make(chan struct{})
	if err := n.Do(open); err != nil {
		return fmt.Errorf("ping %s: %w", p.to, err)
	}
	p.wg.Go(p.receive)
	p.wg.Go(func() {
		defer close(p.ended)
		p.send(interval)
	})
	return nil
}

func (p *Pinger) send(interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for i := 0; ; i++ {
		msg, err := p.request(i)
		p.mu.Lock()
		p.sentAt, p.answered = append(p.sentAt, time.Now()), append(p.answered, false)
		p.mu.Unlock()
		if err == nil {
			_, err = p.c.WriteTo(msg, p.peer)
		}
		if err != nil {
			p.mu.Lock()
			p.err = err
			p.mu.Unlock()
			return
		}
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
	}
}

func (p *Pinger) receive() {
	buf := make([]byte, 1500)
	for {
		k, from, err := p.c.ReadFrom(buf)
		if err != nil {
			return // closed, or past the deadline that Stop set
		}
		if from.String() != p.peer.String() {
			continue
		}
		if i, ok := p.which(buf[:k]); ok {
			p.mu.Lock()
			if int(i) < len(p.answered) {
				p.answered[i] = true
			}
			p.mu.Unlock()
		}
	}
}

// Stop ends the series, waits one second for replies, and returns the error
// that ended it before.
func (p *Pinger) Stop() error {
	p.once.Do(func() { close(p.stop) })
	<-p.ended
	_ = p.c.SetReadDeadline(time.Now().Add(time.Second)) // its failure shows as lost replies
	p.wg.Wait()
	err := p.c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := errors.Join(p.err, err); err != nil {
		return fmt.Errorf("ping %s: %w", p.to, err)
	}
	return nil
}

// LostAt lists when the unanswered requests of a span were sent.
func (p *Pinger) LostAt(from, to time.Time) (out []time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first, _ := slices.BinarySearchFunc(p.sentAt, from, time.Time.Compare)
	for i := first; i < len(p.sentAt) && !p.sentAt[i].After(to); i++ {
		if !p.answered[i] {
			out = append(out, p.sentAt[i])
		}
	}
	return out
}

// Between tells how the requests sent in a span fared.
func (p *Pinger) Between(from, to time.Time) PingStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s PingStats
	last := -1
	first, _ := slices.BinarySearchFunc(p.sentAt, from, time.Time.Compare)
	for i := first; i < len(p.sentAt) && !p.sentAt[i].After(to); i++ {
		s.Sent++
		if !p.answered[i] {
			continue
		}
		s.Received++
		if last >= 0 && i > last+1 {
			if gap := p.sentAt[i].Sub(p.sentAt[last]); gap > s.Gap {
				s.Gap, s.GapAt = gap, p.sentAt[last]
			}
		}
		last = i
	}
	if last >= 0 {
		s.Answered = p.sentAt[last]
	}
	return s
}
