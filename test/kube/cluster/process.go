package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// grace is how long a process has to end after SIGTERM before it is killed. The API
// server waits a minute for watches that are open; it keeps nothing that a kill loses.
const grace = 2 * time.Second

// logTail is how many bytes of a process's log an error shows, at most.
const logTail = 3000

// process is a daemon that this package started.
type process struct {
	name string
	log  string // path
	cmd  *exec.Cmd
	stop func() // ends it, and returns when it has ended
	done chan struct{}
	err  error // why it ended; read after done
}

// start runs argv with its output in dir/name.log, until stop is called or the
// calling process ends. It returns an error if it cannot be started.
func start(dir, name string, argv ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background()) // ended by stop
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	p.cmd = cmd
	p.stop = sync.OnceFunc(func() {
		cancel()
		<-p.done
	})
	started := make(chan error, 1)
	go func() {
		// Pdeathsig follows the thread that forked: it must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		_ = log.Close() // the child has its own
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// failed tells how the process fares beside err: that it ended, and the end of its log.
func (p *process) failed(err error) error {
	select {
	case <-p.done:
		err = errors.Join(err, fmt.Errorf("%s has ended: %w", p.name, orEnded(p.err)))
	default:
	}
	text, rerr := os.ReadFile(p.log)
	if rerr != nil {
		return errors.Join(err, rerr)
	}
	end := string(text[max(0, len(text)-logTail):])
	return fmt.Errorf("%w; the end of %s:\n%s", err, p.log, strings.TrimSpace(end))
}

// orEnded names an end without an error.
func orEnded(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}
