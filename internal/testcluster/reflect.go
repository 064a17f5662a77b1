package testcluster

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// Reflect sends everything back that comes to an address inside the namespace, over
// TCP and UDP, until stop is called, which waits for it to end.
func (n *Namespace) Reflect(ctx context.Context, at string) (stop func(), err error) {
	var l net.Listener
	var p net.PacketConn
	err = n.Do(func() (err error) {
		var lc net.ListenConfig
		if l, err = lc.Listen(ctx, "tcp", at); err != nil {
			return err
		}
		if p, err = lc.ListenPacket(ctx, "udp", at); err != nil {
			err = errors.Join(err, l.Close())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // who counts sees what is missing
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	wg.Go(func() {
		b := make([]byte, 65536)
		for {
			n, from, err := p.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = p.WriteTo(b[:n], from) // lost like any datagram
			}
		}
	})
	return func() {
		cancel()
		_ = errors.Join(l.Close(), p.Close()) // the loops end either way
		wg.Wait()
	}, nil
}
