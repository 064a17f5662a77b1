package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// PingStats tells how a series of echo requests fared.
type PingStats struct {
	Sent, Received int
	// Gap is the longest time between two requests that were answered with none
	// answered in between; GapAt is when it began.
	Gap   time.Duration
	GapAt time.Time
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
	network, any, proto := "ip4:icmp", "0.0.0.0", 1
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if to.Is6() {
		network, any, proto = "ip6:ipv6-icmp", "::", 58
		request, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	var c *icmp.PacketConn
	if err := n.Do(func() (err error) { c, err = icmp.ListenPacket(network, any); return err }); err != nil {
		return PingStats{}, fmt.Errorf("ping %s: %w", to, err)
	}
	id := int(echoID.Add(1) & 0xffff)
	var mu sync.Mutex
	answered := map[uint32]bool{}
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 1500)
		for {
			k, from, err := c.ReadFrom(buf)
			if err != nil {
				return // closed, or past the deadline set below
			}
			m, err := icmp.ParseMessage(proto, buf[:k])
			if err != nil || m.Type != reply || from.(*net.IPAddr).IP.String() != to.String() {
				continue
			}
			if e, ok := m.Body.(*icmp.Echo); ok && e.ID == id && len(e.Data) == 4 {
				mu.Lock()
				answered[binary.BigEndian.Uint32(e.Data)] = true
				mu.Unlock()
			}
		}
	})
	var sentAt []time.Time
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var err error
	for ctx.Err() == nil && err == nil {
		data := binary.BigEndian.AppendUint32(nil, uint32(len(sentAt)))
		var msg []byte
		if msg, err = (&icmp.Message{Type: request, Body: &icmp.Echo{ID: id, Seq: len(sentAt) & 0xffff, Data: data}}).Marshal(nil); err != nil {
			break
		}
		if _, err = c.WriteTo(msg, &net.IPAddr{IP: to.AsSlice()}); err != nil {
			break
		}
		sentAt = append(sentAt, time.Now())
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Second)) // its failure shows as lost replies
	wg.Wait()
	if err := errors.Join(err, c.Close()); err != nil {
		return PingStats{}, fmt.Errorf("ping %s: %w", to, err)
	}
	s := PingStats{Sent: len(sentAt), Received: len(answered)}
	last := -1
	for i := range sentAt {
		if !answered[uint32(i)] {
			continue
		}
		if last >= 0 && i > last+1 {
			if gap := sentAt[i].Sub(sentAt[last]); gap > s.Gap {
				s.Gap, s.GapAt = gap, sentAt[last]
			}
		}
		last = i
	}
	return s, nil
}
