//go:build integration

package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/store"
)

// server is a store's server under test, which can be ended and started again where it was.
type server interface {
	address() string // host:port
	end()            // at once, if it can be
	start()
}

// onServer is a cluster's store on a server, each participant behind a link.
type onServer struct {
	server
	t       *testing.T
	client  func(t *testing.T, address string, netmaster bool) store.Store
	compact func(t *testing.T, address string) // forgets all revisions but the present one
	more    []fault
	turn    sync.Mutex // held by the fault that is made of it
	disk    *disk      // that fails, nil = none
}

func (s *onServer) connect(t *testing.T, netmaster bool) (store.Store, wire) {
	t.Helper()
	l := newLink(t, s.address)
	return s.client(t, l.address, netmaster), l
}

func (s *onServer) direct(t *testing.T) store.Store {
	t.Helper()
	return s.client(t, s.address(), false)
}

func (s *onServer) faults() []fault {
	return append([]fault{
		s.alone("the store is ended and comes back", func(*rand.Rand) func() {
			s.end()
			return s.start
		}),
		s.alone("revisions are compacted", func(*rand.Rand) func() {
			s.compact(s.t, s.address())
			return func() {}
		}),
	}, s.more...)
}

// alone is a fault of the store, of which there is one at a time.
func (s *onServer) alone(name string, do func(chance *rand.Rand) (undo func())) fault {
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

// pauses adds the fault that a server that is a process stands still.
func (s *onServer) pauses(p *process) {
	s.more = append(s.more, s.alone("the store is paused", func(*rand.Rand) func() { return p.pause() }))
}

// process is a server that is killed and paused as processes are.
type process struct {
	t      *testing.T
	listen string // host:port
	path   string
	args   []string
	env    []string // nil = this process's
	log    string   // file of what it says

	mu  sync.Mutex
	cmd *exec.Cmd // nil = it does not run
}

// newProcess is a server that listens at an address, not started yet. It ends with the test.
func newProcess(t *testing.T, listen, path string, args ...string) *process {
	t.Helper()
	p := &process{t: t, listen: listen, path: path, args: args, log: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(func() {
		p.end()
		if text := p.said(); t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(path), text[max(0, len(text)-4000):])
		}
	})
	return p
}

func (p *process) address() string { return p.listen }

// said is what it has said so far.
func (p *process) said() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (p *process) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Error(err)
		return
	}
	defer func() { _ = log.Close() }() // the process has it
	p.cmd = exec.CommandContext(context.Background(), p.path, p.args...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = p.env, log, log
	if err := p.cmd.Start(); err != nil {
		p.t.Errorf("%s does not start: %v", p.path, err)
		p.cmd = nil
	}
}

// endBy ends it by a signal, and by SIGKILL where that takes long.
func (p *process) endBy(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(sig) // it may have ended by itself
		late := time.AfterFunc(clientPatience, func() { _ = p.cmd.Process.Kill() })
		_ = p.cmd.Wait()
		late.Stop()
		p.cmd = nil
	}
}

// comeBack starts it again if it has ended by itself.
func (p *process) comeBack() {
	p.mu.Lock()
	var info unix.Siginfo
	if p.cmd != nil { // what ended is left to Wait
		_ = unix.Waitid(unix.P_PID, p.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	}
	p.mu.Unlock()
	if info.Signo != 0 {
		p.end()
		p.start()
	}
}

func (p *process) end() { p.endBy(syscall.SIGKILL) }

// pause stops it where it is; when it returns, all of it stands still. The signal alone
// does not tell: until the one thread that it was given to gets a processor, which on a
// busy machine takes a tenth of a second and more, all others go on.
func (p *process) pause() (undo func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return func() {}
	}
	running := p.cmd.Process
	_ = running.Signal(syscall.SIGSTOP)
	for errors.Is(unix.Waitid(unix.P_PID, running.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	return func() { _ = running.Signal(syscall.SIGCONT) }
}
