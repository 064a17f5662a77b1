package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// rule measures the time from a rule's API call to its effect on running
// traffic: datagrams every 0.2 ms from one container to another on another host.
func (b *bench) rule(ctx context.Context) error {
	l, err := b.lab(ctx, testcluster.Config{Name: "benchrule", Hosts: 2})
	if err != nil {
		return err
	}
	if err := rig.Netctl(ctx, l,
		"tenant create t", "network create -t t -e vxlan -s 10.1.1.0/24 net", "policy create -t t p",
		"group create -t t net clients", "group create -t t -p p net servers",
	); err != nil {
		return err
	}
	var addr netip.Addr
	for _, s := range []testcluster.ContainerSpec{{Name: "c", Host: "h1", Group: "clients"}, {Name: "s", Host: "h2", Group: "servers"}} {
		s.Tenant, s.Network = "t", "net"
		a, err := l.AddContainer(ctx, s)
		if err != nil {
			return err
		}
		addr = a.IPv4
	}
	f, err := newFlood(l, "s", netip.AddrPortFrom(addr, 7000))
	if err != nil {
		return err
	}
	defer f.stop()
	c, err := l.Masters.API()
	if err != nil {
		return err
	}
	defer c.Close()
	deny := api.Rule{TenantName: "t", PolicyName: "p", RuleID: "1", Direction: "in", Action: "deny", Protocol: "udp", Port: 7000, Priority: 1}
	var closing, opening, closeCall, openCall []time.Duration
	for range b.n(60) {
		if err := f.flowing(ctx); err != nil {
			return err
		}
		start := time.Now()
		if _, err := c.Rules().Create(ctx, deny); err != nil {
			return err
		}
		closeCall = append(closeCall, time.Since(start))
		last, err := f.waitIdle(ctx, 300*time.Millisecond)
		if err != nil {
			return err
		}
		closing = append(closing, max(last.Sub(start), 0))
		start = time.Now()
		if err := c.Rules().Delete(ctx, "t:p:1"); err != nil {
			return err
		}
		openCall = append(openCall, time.Since(start))
		first, err := f.after(ctx, start)
		if err != nil {
			return err
		}
		opening = append(opening, first.Sub(start))
	}
	b.detail("close", closing)
	b.detail("open", opening)
	b.report.table(fmt.Sprintf("From the API call to the last, or the first, packet (ms; %d times; datagrams every 0.2 ms across hosts)", len(closing)),
		"change", "p50", "p99", "most", "of which the API call, p50", "1.x")
	b.report.row("close: deny added", ms(percentile(closing, .5)), ms(percentile(closing, .99)), ms(percentile(closing, 1)), ms(percentile(closeCall, .5)), "7")
	b.report.row("open: deny removed", ms(percentile(opening, .5)), ms(percentile(opening, .99)), ms(percentile(opening, 1)), ms(percentile(openCall, .5)), "34")
	return nil
}

// flood sends datagrams at a steady pace and remembers the last that arrived.
type flood struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	last   time.Time
	came   chan struct{} // signalled at each arrival
}

const pace = 200 * time.Microsecond

// newFlood sends from container c to an address of another one.
func newFlood(l *testcluster.Lab, container string, to netip.AddrPort) (*flood, error) {
	from, err := l.Space("c")
	if err != nil {
		return nil, err
	}
	at, err := l.Space(container)
	if err != nil {
		return nil, err
	}
	var in net.PacketConn
	if err := at.Do(func() (err error) {
		in, err = (&net.ListenConfig{}).ListenPacket(context.Background(), "udp4", to.String())
		return err
	}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	out, err := from.Dial(ctx, "udp4", to.String())
	if err != nil {
		cancel()
		return nil, errors.Join(err, in.Close())
	}
	f := &flood{cancel: func() { cancel(); in.Close(); out.Close() }, came: make(chan struct{}, 1)}
	f.wg.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		msg := make([]byte, 8)
		for k := uint64(0); ; k++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				binary.BigEndian.PutUint64(msg, k)
				_, _ = out.Write(msg) // lost like any datagram
			}
		}
	})
	f.wg.Go(func() {
		buf := make([]byte, 64)
		for {
			if _, _, err := in.ReadFrom(buf); err != nil {
				return // closed
			}
			f.mu.Lock()
			f.last = time.Now()
			f.mu.Unlock()
			select {
			case f.came <- struct{}{}:
			default:
			}
		}
	})
	return f, nil
}

func (f *flood) stop() { f.cancel(); f.wg.Wait() }

// after waits for a datagram that arrives after t and returns when it did.
func (f *flood) after(ctx context.Context, t time.Time) (time.Time, error) {
	limit := time.After(10 * time.Second)
	for {
		select {
		case <-f.came:
			f.mu.Lock()
			last := f.last
			f.mu.Unlock()
			if last.After(t) {
				return last, nil
			}
		case <-limit:
			return time.Time{}, errors.New("no datagram for 10 s")
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// flowing waits until datagrams have come for a twentieth of a second on end.
func (f *flood) flowing(ctx context.Context) error {
	begin := time.Now()
	for time.Since(begin) < 50*time.Millisecond {
		if _, err := f.after(ctx, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// waitIdle waits until nothing has come for some time and returns when the last did.
func (f *flood) waitIdle(ctx context.Context, quiet time.Duration) (time.Time, error) {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	limit := time.After(10 * time.Second)
	for {
		select {
		case <-f.came:
			timer.Reset(quiet)
		case <-timer.C:
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.last, nil
		case <-limit:
			return time.Time{}, errors.New("datagrams still come after 10 s")
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}
