package agent

import (
	"context"
	"net"
	"os"
	"sync"
	"time"
)

// socketLook is how often the file of the CNI socket is looked for.
const socketLook = time.Second

// serveSocket serves the CNI socket until ctx ends. When somebody has removed
// its file, nobody reaches the listener any more: another one takes its place,
// while requests under way on the former go on.
func (a *Agent) serveSocket(ctx context.Context) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	failed := make(chan error, 1)
	handler := a.socketHandler()
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
	tick := time.NewTicker(socketLook)
	defer tick.Stop()
	l, told := a.socket, ""
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
		if _, err := os.Lstat(a.cfg.Socket); !os.IsNotExist(err) {
			continue
		}
		next, err := listenUnix(ctx, a.cfg.Socket)
		if err != nil {
			if text := err.Error(); text != told {
				a.log.Error("the CNI socket was removed and cannot be made again", "socket", a.cfg.Socket, "error", err)
				told = text
			}
			continue
		}
		told = ""
		a.log.Warn("somebody has removed the CNI socket; it is made again", "socket", a.cfg.Socket)
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false) // it would remove the next one's file
		}
		end()
		l, end = next, serve(next)
	}
}
