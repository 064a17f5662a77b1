package transport

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soheilhy/cmux"
)

// firstBytes is how long a client may take to show whether it speaks TLS.
const firstBytes = 5 * time.Second

// sharedListener is one of two listeners at an address, which is let go when both are closed: so
// each server sees its own closing, and not the other's.
type sharedListener struct {
	net.Listener
	open   *atomic.Int32 // halves
	shared sync.Once
}

func (h *sharedListener) Close() (err error) {
	h.shared.Do(func() {
		if h.open.Add(-1) == 0 {
			err = h.Listener.Close()
		}
	})
	return err
}

// ListenBoth listens on TCP at one address for who speaks TLS and who does not. It ends
// when both listeners are closed, within firstBytes. Its connections are limited as
// Listen's are. The error is net's.
func ListenBoth(ctx context.Context, addr string, server *tls.Config, log *slog.Logger) (secure, plain net.Listener, err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	mux := cmux.New(process()[Asked].listen(ln, log))
	mux.SetReadTimeout(firstBytes)
	open := new(atomic.Int32)
	open.Store(2)
	secure = tls.NewListener(&sharedListener{Listener: mux.Match(cmux.TLS()), open: open}, server)
	plain = &sharedListener{Listener: mux.Match(cmux.Any()), open: open}
	go func() { _ = mux.Serve() }() // it ends when the listeners are closed, which is its error
	return secure, plain, nil
}
