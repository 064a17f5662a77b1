//go:build integration

package cluster

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// etcdServer is an etcd under test that can be ended and started again where it was.
type etcdServer interface {
	address() string // host:port
	end()            // at once, if it can be
	start()
}

// onEtcd is a cluster's store on an etcd, each participant behind a link.
type onEtcd struct {
	etcdServer
	t    *testing.T
	more []fault
	turn sync.Mutex // held by the fault that is made of it
}

func (s *onEtcd) open(t *testing.T, address string) *etcd.Client {
	t.Helper()
	c, err := etcd.New(etcd.Config{Endpoints: []string{"http://" + address}, Timeout: clientPatience, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *onEtcd) connect(t *testing.T, _ bool) (store.Store, wire) {
	t.Helper()
	l := newLink(t, s.address)
	return s.open(t, l.address), l
}

func (s *onEtcd) direct(t *testing.T) store.Store { t.Helper(); return s.open(t, s.address()) }

func (s *onEtcd) faults() []fault {
	return append([]fault{
		s.alone("the store is ended and comes back", func(*rand.Rand) func() {
			s.end()
			return s.start
		}),
		s.alone("revisions are compacted", func(*rand.Rand) func() {
			s.compact()
			return func() {}
		}),
	}, s.more...)
}

// alone is a fault of the store, of which there is one at a time.
func (s *onEtcd) alone(name string, do func(chance *rand.Rand) (undo func())) fault {
	return fault{name, func(_ context.Context, chance *rand.Rand) func() {
		if !s.turn.TryLock() {
			return nil
		}
		undo := do(chance)
		return func() {
			undo()
			s.turn.Unlock()
		}
	}}
}

// compact forgets all revisions but the present one.
func (s *onEtcd) compact() {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.address()}, DialTimeout: clientPatience, Logger: nil})
	if err != nil {
		s.t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), clientPatience)
	defer cancel()
	r, err := c.Get(ctx, tables.StatePrefix, clientv3.WithCountOnly(), clientv3.WithPrefix())
	if err == nil {
		_, err = c.Compact(ctx, r.Header.Revision)
	}
	if err != nil && !strings.Contains(err.Error(), "compacted") {
		s.t.Logf("not compacted: %v", err)
	}
}

// embeddedEtcd is the one of netmaster, inside this process. It ends in order.
type embeddedEtcd struct {
	t      *testing.T
	dir    string
	mu     sync.Mutex
	listen string
	server *etcd.Server
}

func (e *embeddedEtcd) address() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.listen
}

func (e *embeddedEtcd) start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := etcd.StartServer(ctx, etcd.ServerConfig{DataDir: e.dir, Listen: e.listen, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		e.t.Errorf("the embedded etcd does not come back: %v", err)
		return
	}
	e.server, e.listen = s, strings.TrimPrefix(s.Endpoint(), "http://")
}

func (e *embeddedEtcd) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server != nil {
		_ = e.server.Close() // it waits for clients for some seconds, and then cuts them off
		e.server = nil
	}
}

// etcdProcess is an installed etcd, which is killed and paused as processes are.
type etcdProcess struct {
	t            *testing.T
	path, dir    string
	client, peer string

	mu  sync.Mutex
	cmd *exec.Cmd // nil = it does not run
	log *os.File
}

func newEtcdProcess(t *testing.T, dir string) *etcdProcess {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		lacking(t, "etcd is not installed: apt-get install etcd-server")
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	e := &etcdProcess{t: t, path: path, dir: dir, client: storetest.FreePort(t), peer: storetest.FreePort(t), log: log}
	t.Cleanup(func() {
		e.end()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("etcd said:\n%s", text[max(0, len(text)-4000):])
		}
	})
	return e
}

func (e *etcdProcess) address() string { return e.client }

func (e *etcdProcess) start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cmd = exec.CommandContext(context.Background(), e.path, "--name", "s-test", "--data-dir", e.dir,
		"--listen-client-urls", "http://"+e.client, "--advertise-client-urls", "http://"+e.client,
		"--listen-peer-urls", "http://"+e.peer, "--initial-advertise-peer-urls", "http://"+e.peer,
		"--initial-cluster", "s-test=http://"+e.peer)
	e.cmd.Stdout, e.cmd.Stderr = e.log, e.log
	if err := e.cmd.Start(); err != nil {
		e.t.Errorf("etcd does not start: %v", err)
		e.cmd = nil
	}
}

func (e *etcdProcess) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cmd != nil {
		_ = e.cmd.Process.Kill() // it may have ended by itself
		_ = e.cmd.Wait()
		e.cmd = nil
	}
}

// pause stops it where it is.
func (e *etcdProcess) pause() (undo func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cmd == nil {
		return func() {}
	}
	p := e.cmd.Process
	_ = p.Signal(syscall.SIGSTOP)
	return func() { _ = p.Signal(syscall.SIGCONT) }
}
