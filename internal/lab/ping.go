package lab

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

// PingStats tells how a series of echo requests fared.
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

// Pinger sends echo requests until it is stopped. Its methods may be called in
// parallel.
type Pinger struct {
	to    netip.Addr
	c     *icmp.PacketConn
	stop  chan struct{}
	once  sync.Once
	ended chan struct{} // closed when the last request has been sent
	wg    sync.WaitGroup

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
	p := &Pinger{to: to, stop: make(chan struct{}), ended: make(chan struct{})}
	if err := n.Do(func() (err error) { p.c, err = icmp.ListenPacket(network, any); return err }); err != nil {
		return nil, fmt.Errorf("ping %s: %w", to, err)
	}
	id := int(echoID.Add(1) & 0xffff)
	p.wg.Go(func() { p.receive(proto, id, reply) })
	p.wg.Go(func() {
		defer close(p.ended)
		p.send(interval, id, request)
	})
	return p, nil
}

func (p *Pinger) send(interval time.Duration, id int, request icmp.Type) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for i := 0; ; i++ {
		data := binary.BigEndian.AppendUint32(nil, uint32(i))
		msg, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: id, Seq: i & 0xffff, Data: data}}).Marshal(nil)
		p.mu.Lock()
		p.sentAt, p.answered = append(p.sentAt, time.Now()), append(p.answered, false)
		p.mu.Unlock()
		if err == nil {
			_, err = p.c.WriteTo(msg, &net.IPAddr{IP: p.to.AsSlice()})
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

func (p *Pinger) receive(proto, id int, reply icmp.Type) {
	buf := make([]byte, 1500)
	for {
		k, from, err := p.c.ReadFrom(buf)
		if err != nil {
			return // closed, or past the deadline that Stop set
		}
		m, err := icmp.ParseMessage(proto, buf[:k])
		if err != nil || m.Type != reply || from.(*net.IPAddr).IP.String() != p.to.String() {
			continue
		}
		if e, ok := m.Body.(*icmp.Echo); ok && e.ID == id && len(e.Data) == 4 {
			p.mu.Lock()
			if i := binary.BigEndian.Uint32(e.Data); int(i) < len(p.answered) {
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
