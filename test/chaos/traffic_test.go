//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// The rates of what goes on all the while.
const (
	pingEvery  = 10 * time.Millisecond
	talkEvery  = 20 * time.Millisecond
	knockEvery = 20 * time.Millisecond
)

// talk is a TCP connection on which a line goes to and fro.
type talk struct {
	name string

	mu     sync.Mutex
	broken []string
	trips  int
}

// converse keeps one connection, and another one when it breaks.
func (k *talk) converse(ctx context.Context, from *testcluster.Namespace, to netip.AddrPort) {
	for ctx.Err() == nil {
		err := k.one(ctx, from, to)
		if ctx.Err() != nil {
			return
		}
		k.mu.Lock()
		k.broken = append(k.broken, fmt.Sprintf("%s: %v", time.Now().Format("15:04:05.000"), err))
		k.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (k *talk) one(ctx context.Context, from *testcluster.Namespace, to netip.AddrPort) error {
	dialing, cancel := context.WithTimeout(ctx, 5*time.Second)
	c, err := from.Dial(dialing, "tcp", to.String())
	cancel()
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	tick := time.NewTicker(talkEvery)
	defer tick.Stop()
	buf := make([]byte, 64)
	for range tick.C {
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return err
		}
		if _, err := c.Write([]byte("who\n")); err != nil {
			return err
		}
		if _, err := c.Read(buf); err != nil {
			return err
		}
		k.mu.Lock()
		k.trips++
		k.mu.Unlock()
	}
	return nil
}

// taken returns how the connection was lost since it was last asked.
func (k *talk) taken() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.broken
	k.broken = nil
	return out
}

// knocks are datagrams that must not arrive: each names its sender.
type knocks struct {
	mu   sync.Mutex
	seen map[string]int
	last map[string]time.Time
}

// listen counts what comes to a port of a container.
func (k *knocks) listen(ctx context.Context, at *testcluster.Namespace, port int) error {
	var pc net.PacketConn
	err := at.Do(func() (err error) {
		pc, err = new(net.ListenConfig).ListenPacket(ctx, "udp4", fmt.Sprintf("0.0.0.0:%d", port))
		return err
	})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { pc.Close() })
	go func() {
		buf := make([]byte, 256)
		for {
			n, _, err := pc.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				k.mu.Lock()
				k.seen[string(buf[:n])]++
				k.last[string(buf[:n])] = time.Now()
				k.mu.Unlock()
			}
		}
	}()
	return nil
}

// knock sends a datagram every now and then; refusals and lost links are no
// reason to end.
func knock(ctx context.Context, from *testcluster.Namespace, name string, to netip.AddrPort) error {
	var pc net.PacketConn
	err := from.Do(func() (err error) { pc, err = new(net.ListenConfig).ListenPacket(ctx, "udp4", "0.0.0.0:0"); return err })
	if err != nil {
		return err
	}
	go func() {
		defer pc.Close()
		tick := time.NewTicker(knockEvery)
		defer tick.Stop()
		for {
			_, _ = pc.WriteTo([]byte(name), net.UDPAddrFromAddrPort(to)) // what is denied may be refused
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return nil
}

// from returns how many datagrams of a sender have come.
func (k *knocks) from(name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen[name]
}

// taken returns what has come since it was last asked, in words.
func (k *knocks) taken() (out []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, n := range k.seen {
		out = append(out, fmt.Sprintf("%d datagrams %s, the last at %s", n, name, k.last[name].Format("15:04:05.000")))
	}
	clear(k.seen)
	return out
}
