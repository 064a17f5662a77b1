package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/bench/rig"
)

// ipOfTCP and ipOfUDP turn payload into bytes of IP: full segments with timestamps, and
// datagrams of udpSize bytes.
const (
	ipOfTCP = 1500.0 / 1448
	udpSize = 1400
	udpAnd4 = 28 // bytes of a datagram's headers
	ipOfUDP = (udpSize + udpAnd4) / float64(udpSize)
)

// result is what one run of traffic made.
type result struct {
	seconds []float64       // Mbit/s of IP in each second after the first
	shares  []float64       // of each stream, of the whole
	waits   []time.Duration // round trips of probes that came back, sorted
	lost    int             // probes that did not
}

// counted adds up what a receiver's streams got.
type counted struct {
	streams []atomic.Uint64 // bytes of payload
	factor  float64         // which makes bytes of IP of them
	// probes are the bytes of IP of probes, which pass the same queue: at 1 Mbit/s they are
	// 1.5 % of it.
	probes atomic.Uint64
}

// sum is in bytes of IP.
func (c *counted) sum() float64 {
	var n uint64
	for i := range c.streams {
		n += c.streams[i].Load()
	}
	return float64(n)*c.factor + float64(c.probes.Load())
}

// perSecond reads a counter each second; the first second, with the burst, is left out.
func perSecond(ctx context.Context, c *counted, seconds int) (r result) {
	start := time.Now()
	last, at := 0.0, start
	begun := make([]uint64, len(c.streams))
	for i := range seconds + 1 {
		select {
		case <-ctx.Done():
			return r
		case <-time.After(time.Until(start.Add(time.Duration(i+1) * time.Second))):
		}
		now, n := time.Now(), c.sum()
		if i > 0 {
			r.seconds = append(r.seconds, (n-last)*8/1e6/now.Sub(at).Seconds())
		} else {
			for s := range begun {
				begun[s] = c.streams[s].Load()
			}
		}
		last, at = n, now
	}
	var all float64
	for s := range begun {
		n := float64(c.streams[s].Load() - begun[s])
		r.shares, all = append(r.shares, n), all+n
	}
	for s := range r.shares {
		r.shares[s] /= max(all, 1)
	}
	return r
}

// tcp sends streams from one container to another, and probes beside them.
func (r host) tcp(ctx context.Context, from, to, streams int, control string, seconds int) (result, error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var ln net.Listener
	if err := r.Containers[to].Do(func() (err error) {
		ln, err = (&net.ListenConfig{}).Listen(ctx, "tcp4", ":0")
		return err
	}); err != nil {
		return result{}, err
	}
	defer ln.Close()
	c := &counted{streams: make([]atomic.Uint64, streams), factor: ipOfTCP}
	wg.Go(func() {
		for i := range streams {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = conn.Close() }() // likewise
				for b := make([]byte, 256<<10); ctx.Err() == nil; {
					n, err := conn.Read(b)
					if err != nil {
						return
					}
					c.streams[i].Add(uint64(n))
				}
			})
		}
	})
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) { err = setCongestion(int(fd), control) }), err)
	}}
	dialer.SetMultipathTCP(false)
	at := fmt.Sprintf("%s:%d", rig.Address(to), ln.Addr().(*net.TCPAddr).Port)
	for range streams {
		var conn net.Conn
		if err := r.Containers[from].Do(func() (err error) {
			conn, err = dialer.DialContext(ctx, "tcp4", at)
			return err
		}); err != nil {
			return result{}, err
		}
		wg.Go(func() {
			<-ctx.Done()
			_ = conn.Close()
		})
		wg.Go(func() {
			for b := make([]byte, 128<<10); ; {
				if _, err := conn.Write(b); err != nil {
					return
				}
			}
		})
	}
	waits := make(chan result, 1)
	wg.Go(func() { waits <- r.probe(ctx, from, to, time.Duration(seconds)*time.Second, &c.probes) })
	out := perSecond(ctx, c, seconds)
	probes := <-waits
	out.waits, out.lost = probes.waits, probes.lost
	return out, ctx.Err()
}

// probe sends a small datagram every 50 ms, which the other side echoes. It adds the IP
// bytes of the datagrams that arrive to arrived.
func (r host) probe(ctx context.Context, from, to int, last time.Duration, arrived *atomic.Uint64) (out result) {
	var in, conn *net.UDPConn
	err := r.Containers[to].Do(func() (err error) {
		in, err = net.ListenUDP("udp4", &net.UDPAddr{})
		return err
	})
	if err != nil {
		return out
	}
	defer func() { _ = in.Close() }() // a measurement is over
	err = r.Containers[from].Do(func() (err error) {
		conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: rig.Address(to).AsSlice(), Port: in.LocalAddr().(*net.UDPAddr).Port})
		return err
	})
	if err != nil {
		return out
	}
	defer func() { _ = conn.Close() }() // likewise
	go func() {
		for b := make([]byte, 100); ; {
			n, from, err := in.ReadFromUDP(b)
			if err != nil {
				return
			}
			arrived.Add(uint64(n) + udpAnd4)
			_, _ = in.WriteToUDP(b[:n], from)
		}
	}()
	sent := 0
	got := make(chan time.Duration, 4096)
	go func() {
		defer close(got)
		for b := make([]byte, 100); ; {
			if _, err := conn.Read(b); err != nil {
				return
			}
			got <- time.Since(time.Unix(0, int64(binary.BigEndian.Uint64(b))))
		}
	}()
	end, tick := time.After(last), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
sending:
	for {
		select {
		case <-ctx.Done():
			break sending
		case <-end:
			break sending
		case <-tick.C:
		}
		b := make([]byte, 64)
		binary.BigEndian.PutUint64(b, uint64(time.Now().UnixNano()))
		if _, err := conn.Write(b); err == nil {
			sent++
		}
	}
	_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)) // the last ones' way back; a socket takes it
	for d := range got {
		out.waits = append(out.waits, d)
	}
	slices.Sort(out.waits)
	out.lost = sent - len(out.waits)
	return out
}

// udp sends datagrams at a third more than a rate.
func (r host) udp(ctx context.Context, from, to int, mbit float64, seconds int) (result, error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var in, conn *net.UDPConn
	if err := r.Containers[to].Do(func() (err error) {
		if in, err = net.ListenUDP("udp4", &net.UDPAddr{}); err == nil {
			err = in.SetReadBuffer(8 << 20)
		}
		return err
	}); err != nil {
		return result{}, err
	}
	defer func() { _ = in.Close() }() // a measurement is over
	if err := r.Containers[from].Do(func() (err error) {
		conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: rig.Address(to).AsSlice(), Port: in.LocalAddr().(*net.UDPAddr).Port})
		return err
	}); err != nil {
		return result{}, err
	}
	defer func() { _ = conn.Close() }() // likewise
	c := &counted{streams: make([]atomic.Uint64, 1), factor: ipOfUDP}
	wg.Go(func() {
		<-ctx.Done()
		_ = in.Close()
	})
	wg.Go(func() {
		for b := make([]byte, 2000); ; {
			n, err := in.Read(b)
			if err != nil {
				return
			}
			c.streams[0].Add(uint64(n))
		}
	})
	wg.Go(func() {
		b, start, sent := make([]byte, udpSize), time.Now(), 0.0
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			for due := time.Since(start).Seconds() * mbit * 1e6 / 8 * 4 / 3; sent < due && ctx.Err() == nil; sent += udpSize {
				_, _ = conn.Write(b)
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	return perSecond(ctx, c, seconds), ctx.Err()
}

func setCongestion(fd int, name string) error {
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}
