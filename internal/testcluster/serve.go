package testcluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Serve answers probes inside a container on the given ports ("tcp/80",
// "udp/53"; both families) with the container's name, until the lab is closed
// or stop is called.
func (l *Lab) Serve(container string, ports ...string) (stop func(), err error) {
	ns, err := l.Space(container)
	if err != nil {
		return nil, err
	}
	if stop, err = ns.Serve(container, ports...); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.servers = append(l.servers, stop)
	return stop, nil
}

// Serve answers probes inside the namespace with a name, until stop is called.
func (n *Namespace) Serve(name string, ports ...string) (stop func(), err error) {
	var closers []func() error
	var wg sync.WaitGroup
	stop = sync.OnceFunc(func() {
		for _, c := range closers {
			_ = c() // the listener's loop ends either way
		}
		wg.Wait()
	})
	for _, p := range ports {
		proto, port, ok := strings.Cut(p, "/")
		number, e := strconv.ParseUint(port, 10, 16)
		if !ok || e != nil || proto != "tcp" && proto != "udp" {
			stop()
			return nil, fmt.Errorf("port %q: must be tcp/N or udp/N with N between 1 and 65535", p)
		}
		addr := ":" + strconv.FormatUint(number, 10)
		err = n.Do(func() error {
			var lc net.ListenConfig
			if proto == "tcp" {
				ln, err := lc.Listen(context.Background(), "tcp", "[::]"+addr)
				if err == nil {
					closers = append(closers, ln.Close)
					wg.Go(func() { answerTCP(ln, name) })
				}
				return err
			}
			pc, err := lc.ListenPacket(context.Background(), "udp", "[::]"+addr)
			if err == nil {
				closers = append(closers, pc.Close)
				wg.Go(func() { answerUDP(pc, name) })
			}
			return err
		})
		if err != nil {
			stop()
			return nil, fmt.Errorf("listen on %s in %s: %w", p, name, err)
		}
	}
	return stop, nil
}

// StopServing ends all that Serve opened in this process.
func (l *Lab) StopServing() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, stop := range l.servers {
		stop()
	}
	l.servers = nil
}

// StartServing runs contivlab in the background to answer probes in all
// containers of a lab that outlives this process, and waits until it does.
func (l *Lab) StartServing(ctx context.Context, contivlab string) error {
	p, err := l.processes.start(l.Master, "serve", l.st.Config.Dir, nil, contivlab, "--lab", l.st.Config.Name, "serve")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.ready(ctx, "containers to answer", func(ctx context.Context) error {
		for _, a := range l.Containers() {
			ns, err := l.Space(a.Name)
			if err != nil {
				return err
			}
			for _, port := range a.Listen {
				proto, n, _ := strings.Cut(port, "/")
				k, err := strconv.ParseUint(n, 10, 16)
				if err != nil {
					return err
				}
				t := Target{Proto: proto, Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Port: uint16(k)}
				if got := ns.Probe(ctx, t, time.Second); got.Verdict != OK {
					return fmt.Errorf("%s on %s: %s", a.Name, port, got)
				}
			}
		}
		return nil
	})
}

// answerTCP answers each line of each connection with the name.
func answerTCP(ln net.Listener, name string) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil {
			continue
		}
		mu.Lock()
		open[c] = true
		mu.Unlock()
		wg.Go(func() {
			lines := bufio.NewScanner(c)
			for lines.Scan() {
				if _, err := fmt.Fprintln(c, name); err != nil {
					break
				}
			}
			mu.Lock()
			delete(open, c)
			mu.Unlock()
			c.Close()
		})
	}
	mu.Lock()
	for c := range open {
		c.Close()
	}
	mu.Unlock()
	wg.Wait()
}

// answerUDP answers each datagram with the name.
func answerUDP(pc net.PacketConn, name string) {
	buf := make([]byte, 2048)
	for {
		_, from, err := pc.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = pc.WriteTo([]byte(name+"\n"), from) // lost like any datagram
		}
	}
}
