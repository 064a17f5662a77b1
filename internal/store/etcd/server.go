package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	etcdtransport "go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/filelock"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/transport"
)

// lockName is the file of the data directory that a server holds locked.
const lockName = "contiv.lock"

// DefaultListen is where agents look for an etcd by default.
const DefaultListen = "127.0.0.1:2379"

// ServerConfig describes an embedded server.
type ServerConfig struct {
	DataDir string       // required; made when missing, mode 0700
	Listen  string       // host:port; "" = DefaultListen, port 0 = any free one
	Logger  *slog.Logger // required
	// TLS is what clients are served with; nil = plain. The client of Client,
	// inside this process, needs none.
	TLS *transport.Files
}

// scheme is what clients put before its address.
func (c ServerConfig) scheme() string {
	if c.TLS == nil {
		return transport.HTTP
	}
	return transport.HTTPS
}

// Server is an embedded etcd of one member.
type Server struct {
	etcd     atomic.Pointer[embed.Etcd] // nil while it starts
	endpoint string
	dir      string
	log      *slog.Logger
	lock     *os.File
	once     sync.Once
	why      error // it cannot go on; set before died is closed
	died     chan struct{}
	watching sync.WaitGroup
	close    func() error
}

// StartServer starts an embedded etcd and returns when it serves. When
// something answers at the address already, or another process has the data
// directory, the error says what to do about it.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	if cfg.Listen == "" {
		cfg.Listen = DefaultListen
	}
	listen, err := freeAddress(ctx, cfg.Listen)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	s := &Server{endpoint: cfg.scheme() + "://" + listen, dir: cfg.DataDir, log: cfg.Logger, lock: lock, died: make(chan struct{})}
	fail := func(err error) (*Server, error) {
		return nil, fmt.Errorf("start embedded etcd on %s with data in %s: %w", listen, cfg.DataDir, err)
	}
	type started struct {
		etcd *embed.Etcd
		err  error
	}
	done := make(chan started, 1)
	go func() { // it ends by itself where etcd cannot go on: see ender
		e, err := embed.StartEtcd(embedConfig(cfg, listen, ender{s}))
		done <- started{e, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			_ = filelock.Unlock(lock)
			return fail(r.err)
		}
		s.etcd.Store(r.etcd)
	case <-s.died:
		_ = filelock.Unlock(lock)
		return fail(s.why)
	}
	running := s.etcd.Load()
	watch, stopWatch := context.WithCancel(context.WithoutCancel(ctx))
	s.close = sync.OnceValue(func() error {
		stopWatch()
		s.watching.Wait()
		if !s.Broken() { // else it would wait for its own dead parts
			running.Close()
		}
		return filelock.Unlock(s.lock)
	})
	s.watching.Go(func() { s.watchDisk(watch) })
	select {
	case <-running.Server.ReadyNotify():
		return s, nil
	case <-s.died:
		err = s.why
	case err = <-running.Err():
	case <-running.Server.StopNotify():
		err = errors.New("it stopped at once")
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = s.Close()
	return fail(err)
}

func embedConfig(cfg ServerConfig, listen string, end ender) *embed.Config {
	e := embed.NewConfig()
	e.Name = "contiv"
	e.Dir = cfg.DataDir
	client := url.URL{Scheme: cfg.scheme(), Host: listen}
	e.ListenClientUrls = []url.URL{client}
	e.AdvertiseClientUrls = []url.URL{client}
	if t := cfg.TLS; t != nil {
		e.ClientTLSInfo = etcdtransport.TLSInfo{CertFile: t.Cert, KeyFile: t.Key, TrustedCAFile: t.ClientCA, ClientCertAuth: t.ClientCA != ""}
		e.TlsMinVersion = "TLS1.3"
	}
	// The only member has no peers: it listens for none.
	e.ListenPeerUrls = nil
	e.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	e.InitialCluster = e.InitialClusterFromName(e.Name)
	e.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newZap(cfg.Logger, slog.LevelDebug, end))
	e.EnableGRPCGateway = false
	// Old revisions serve mirrors that are behind; more than these re-list.
	e.AutoCompactionMode = embed.CompactorModeRevision
	e.AutoCompactionRetention = "10000"
	e.QuotaBackendBytes = quota
	return e
}

// Endpoint returns the URL of the server for clients.
func (s *Server) Endpoint() string { return s.endpoint }

// Client returns a client inside this process, which spares the network and a
// good part of the latency. It has to be closed before the server.
func (s *Server) Client() *Client {
	e := s.etcd.Load()
	kv := adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(e.Server))
	watch := adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(e.Server))
	return newClient(v3client.New(e.Server), kv, watch, s.endpoint+" (embedded)", Config{Logger: s.log})
}

// Wait returns why the server cannot go on, or nil when ctx has ended.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-s.died:
		return s.why
	case err := <-s.etcd.Load().Err():
		return err
	case <-ctx.Done():
		return nil
	}
}

// Close stops the server and waits for it. Clients have to be closed before, or
// it waits for them for some seconds.
func (s *Server) Close() error { return s.close() }

// freeAddress returns the address with its port filled in, or an error that
// names both choices when something answers there.
func freeAddress(ctx context.Context, addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || port == "" {
		return "", model.InvalidField("etcd-listen", addr, "must be host:port, such as "+DefaultListen)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return "", model.Errorf(model.ErrConflict,
			"start embedded etcd: %s listens on %s already; use it with --etcd-endpoints http://%s, or let the embedded one listen elsewhere with --etcd-listen HOST:PORT",
			whoListens(ctx, addr), addr, addr)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return "", model.Errorf(model.ErrInvalid, "start embedded etcd: this host does not have the address of %s; give one that it has with --etcd-listen HOST:PORT", addr)
	case err != nil:
		return "", fmt.Errorf("start embedded etcd: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// whoListens says what answers at an address, as well as can be seen.
func whoListens(ctx context.Context, addr string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/version", nil)
	if err != nil {
		return "something"
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "something"
	}
	defer resp.Body.Close()
	var v struct {
		Server string `json:"etcdserver"`
	}
	if json.NewDecoder(resp.Body).Decode(&v) != nil || v.Server == "" {
		return "something"
	}
	return "an etcd " + v.Server
}

// lockDir makes the data directory and takes it for this process: a second
// etcd over the same data would wait for the first without a word.
func lockDir(dir string) (*os.File, error) {
	if dir == "" {
		return nil, model.InvalidField("data-dir", dir, "must name a directory")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("start embedded etcd: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start embedded etcd: %w", err)
	}
	if err := filelock.Lock(f); err != nil {
		_ = f.Close()
		if !errors.Is(err, filelock.ErrHeld) {
			return nil, fmt.Errorf("start embedded etcd: lock %s: %w", dir, err)
		}
		return nil, model.Errorf(model.ErrConflict, "start embedded etcd: another process uses %s; stop it, or name another directory with --data-dir", dir)
	}
	return f, nil
}
