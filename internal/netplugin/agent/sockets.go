package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// socketInterval is how often the file of a socket is looked for.
const socketInterval = time.Second

// socket is a unix socket that runtimes talk to.
type socket struct {
	path, what string
	listener   net.Listener
	handler    http.Handler // nil = socketHandler's
}

// runtimeSockets are where this process is asked: unix sockets for runtimes, and TCP for
// inspection. New and Agent.HandleAt add to them before Run, which serves them; afterwards
// they do not change.
type runtimeSockets struct {
	log      *slog.Logger
	sockets  []*socket               // the CNI plugin's is the first
	adapters map[string]http.Handler // on that, by pattern
	rest     net.Listener            // nil without RESTAddress
}

// add listens on a unix socket; see Agent.HandleAt.
func (k *runtimeSockets) add(ctx context.Context, path, what string, h http.Handler) error {
	l, err := listenUnix(ctx, path)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	k.sockets = append(k.sockets, &socket{path: path, what: what, listener: l, handler: h})
	return nil
}

// serveSocket serves a socket until ctx ends, with its handler or else common. If its file
// was removed, no client can connect any more: another listener takes its place, while
// running requests on the former one go on.
func (k *runtimeSockets) serveSocket(ctx context.Context, s *socket, common http.Handler) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	failed := make(chan error, 1)
	handler := s.handler
	if handler == nil {
		handler = common
	}
	serve := func(l net.Listener) context.CancelFunc {
		ctx, end := context.WithCancel(ctx)
		serving.Go(func() {
			if err := serveHTTP(ctx, l, handler); err != nil {
				select {
				case failed <- err:
				default: // one is enough
				}
			}
		})
		return end
	}
	tick := time.NewTicker(socketInterval)
	defer tick.Stop()
	l, told := s.listener, ""
	end := serve(l)
	defer func() { end() }()
	for {
		select {
		case <-ctx.Done():
			serving.Wait()
			select {
			case err := <-failed:
				return err
			default:
				return nil
			}
		case err := <-failed:
			return err
		case <-tick.C:
		}
		if _, err := os.Lstat(s.path); !os.IsNotExist(err) {
			continue
		}
		next, err := listenUnix(ctx, s.path)
		if err != nil {
			if text := err.Error(); text != told {
				k.log.Error("a socket was removed and cannot be created again", "what", s.what, "socket", s.path, "error", err)
				told = text
			}
			continue
		}
		told = ""
		k.log.Warn("a socket was removed from outside; it is created again", "what", s.what, "socket", s.path)
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false) // it would remove the next one's file
		}
		end()
		l, end = next, serve(next)
	}
}
