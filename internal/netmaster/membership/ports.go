package membership

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/soheilhy/cmux"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// helloTime is how long who connects may take until TLS, or a request's header, is there:
// so long a stranger keeps a connection.
const helloTime = 10 * time.Second

// peerTime is how long a request between members may take, a snapshot of the store too.
const peerTime = 5 * time.Minute

// ports are what a member's etcd is reached by. embed's own listeners know no limit by
// address, and one for TLS accepts nothing more after the first error, such as that the
// process has no descriptor left. These serve what embed's do, but for its expvars,
// elections and locks, which nothing of Contiv asks for.
type ports struct {
	peer    net.Listener // nil = no peer port
	clients []*clientPort

	// what they are served with
	config *embed.Config

	served []served      // to clients
	peers  *http.Server  // to other members
	stop   chan struct{} // closed when clients are no longer served
	once   sync.Once
	ready  sync.WaitGroup // until clients are served
	runs   sync.WaitGroup // what serves
	failed chan error     // why one of them does not serve any more
}

// clientPort is one address for clients with TLS, without TLS, or both, which their first
// bytes tell apart.
type clientPort struct {
	net.Listener
	secure, plain bool
}

// served are the two servers of an address: what is asked by gRPC, and the rest.
type served struct {
	web    *http.Server
	rpc    *grpc.Server
	within bool // rpc's connections are web's
}

// openPorts takes the addresses, and moves them out of an etcd's configuration. Errors are
// net's.
func openPorts(ctx context.Context, cfg Config, c *embed.Config) (_ *ports, err error) {
	p := &ports{config: c, stop: make(chan struct{}), failed: make(chan error, 1)}
	defer func() {
		if err != nil {
			p.shut()
		}
	}()
	for _, u := range c.ListenPeerUrls { // one at most
		if p.peer, err = transport.ListenAs(ctx, transport.Peers, u.Host, nil, cfg.Logger); err != nil {
			return nil, err
		}
	}
	at := map[string]*clientPort{}
	for _, u := range c.ListenClientUrls {
		l := at[u.Host]
		if l == nil {
			ln, err := transport.ListenAs(ctx, transport.Store, u.Host, nil, cfg.Logger)
			if err != nil {
				return nil, err
			}
			l = &clientPort{Listener: ln}
			at[u.Host] = l
			p.clients = append(p.clients, l)
		}
		secure := u.Scheme == transport.HTTPS
		l.secure, l.plain = l.secure || secure, l.plain || !secure
	}
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	return p, nil
}

// shut gives the addresses back.
func (p *ports) shut() {
	if p.peer != nil {
		_ = p.peer.Close() // no caller waits for it
	}
	for _, l := range p.clients {
		_ = l.Close()
	}
}

// serve serves the other members from now on, and clients as soon as etcd has found its
// cluster.
func (p *ports) serve(s *etcdserver.EtcdServer, lg *zap.Logger) error {
	if p.peer != nil {
		t, err := p.config.PeerTLSInfo.ServerConfig() // reads the certificate at each handshake
		if err != nil {
			return err
		}
		p.peers = transport.NewServer(etcdhttp.NewPeerHandler(lg, s))
		p.peers.TLSConfig, p.peers.ReadTimeout, p.peers.IdleTimeout = t, peerTime, peerTime
		p.peers.Protocols = new(http.Protocols) // not HTTP/2, whose streams would share a connection
		p.peers.Protocols.SetHTTP1(true)
		p.run("other members", func() error { return p.peers.ServeTLS(deadlineListener{p.peer}, "", "") })
	}
	p.ready.Go(func() {
		select {
		case <-s.ReadyNotify():
		case <-s.StoppingNotify():
			return
		case <-p.stop:
			return
		}
		for _, l := range p.clients {
			if err := p.serveClients(l, s, lg); err != nil {
				p.fail("clients", err)
			}
		}
	})
	return nil
}

// run has what serves run until it is stopped.
func (p *ports) run(whom string, serve func() error) {
	p.runs.Go(func() { p.fail(whom, serve()) })
}

// fail tells that whom are not served any more, unless that was wanted.
func (p *ports) fail(whom string, err error) {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, cmux.ErrServerClosed) || errors.Is(err, cmux.ErrListenerClosed) || errors.Is(err, net.ErrClosed) {
		return
	}
	select {
	case p.failed <- fmt.Errorf("the store no longer serves %s: %w", whom, err):
	default: // one reason is enough
	}
}

// serveClients begins to serve at an address, as etcd does: gRPC by itself where it is
// plain, and within HTTP/2 where TLS is.
func (p *ports) serveClients(l *clientPort, s *etcdserver.EtcdServer, lg *zap.Logger) error {
	told := http.NewServeMux()
	etcdhttp.HandleVersion(told, s)
	etcdhttp.HandleMetrics(told)
	etcdhttp.HandleHealth(lg, told, s)
	mux := cmux.New(l)
	mux.SetReadTimeout(helloTime)
	if l.plain {
		web, rpc := transport.NewServer(told), v3rpc.Server(s, nil, nil, p.options()...)
		p.served = append(p.served, served{web: web, rpc: rpc})
		http1, http2 := mux.Match(cmux.HTTP1()), mux.Match(cmux.HTTP2())
		p.run("clients", func() error { return web.Serve(http1) })
		p.run("clients", func() error { return rpc.Serve(http2) })
	}
	if l.secure {
		t, err := p.config.ClientTLSInfo.ServerConfig()
		if err != nil {
			return err
		}
		rpc := v3rpc.Server(s, nil, nil, p.options()...) // TLS is the HTTP server's
		web := transport.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				rpc.ServeHTTP(w, r)
				return
			}
			told.ServeHTTP(w, r)
		}))
		web.TLSConfig, web.HTTP2 = t, &http.HTTP2Config{MaxConcurrentStreams: int(min(p.config.MaxConcurrentStreams, math.MaxInt32))}
		web.ReadTimeout, web.IdleTimeout = 0, 0 // watches have no end
		p.served = append(p.served, served{web: web, rpc: rpc, within: true})
		var ln net.Listener = l
		if l.plain {
			ln = mux.Match(cmux.TLS())
		}
		p.run("clients", func() error { return web.ServeTLS(ln, "", "") })
	}
	if l.plain {
		p.run("clients", mux.Serve)
	}
	return nil
}

// options are the gRPC server options of embed, without v3rpc's.
func (p *ports) options() []grpc.ServerOption {
	c := p.config
	return append([]grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: c.GRPCKeepAliveMinTime}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: c.GRPCKeepAliveInterval, Timeout: c.GRPCKeepAliveTimeout}),
	}, c.GRPCAdditionalServerOptions...)
}

// graces are how long requests may still take when the store stops.
const (
	clientGrace = 2 * time.Second
	peerGrace   = time.Second
)

// stopClients ends serving clients; requests under way are answered, for a moment.
func (p *ports) stopClients() {
	p.once.Do(func() { close(p.stop) })
	p.ready.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), clientGrace)
	defer cancel()
	var ending sync.WaitGroup
	for _, s := range p.served {
		ending.Go(func() {
			_ = s.web.Shutdown(ctx)
			if s.within { // nothing of it is left but what lasts, such as mirrors' watches
				s.rpc.Stop()
			} else {
				late := context.AfterFunc(ctx, s.rpc.Stop)
				s.rpc.GracefulStop()
				late()
			}
			_ = s.web.Close()
		})
	}
	ending.Wait()
	for _, l := range p.clients {
		_ = l.Close() // it may never have been served
	}
}

// close ends serving the other members, after clients and after etcd, and waits for all.
func (p *ports) close() {
	if p.peers != nil {
		ctx, cancel := context.WithTimeout(context.Background(), peerGrace)
		defer cancel()
		_ = p.peers.Shutdown(ctx)
		_ = p.peers.Close()
	}
	p.shut()
	p.runs.Wait()
}

// deadlineListener is a listener for members: who hears nothing, or takes nothing, for as long as
// etcd says is given up, so that the streams to a member that is gone end.
type deadlineListener struct{ net.Listener }

// Accept implements net.Listener.
func (l deadlineListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &deadlineConn{Conn: c}, nil
}

// deadlineConn keeps to the deadlines that it is given too, for TLS and requests.
type deadlineConn struct {
	net.Conn
	mu    sync.Mutex
	until time.Time // of reading, as was asked for; zero = none
}

// Read implements net.Conn.
func (c *deadlineConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	at := time.Now().Add(rafthttp.ConnReadTimeout)
	if !c.until.IsZero() && c.until.Before(at) {
		at = c.until
	}
	err := c.Conn.SetReadDeadline(at)
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// Write implements net.Conn.
func (c *deadlineConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(rafthttp.ConnWriteTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// SetReadDeadline implements net.Conn.
func (c *deadlineConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = t
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *deadlineConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
