package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// processes starts and ends the processes of a lab.
type processes struct {
	*core
	spawn  *spawner
	opened bool // the lab is another process's, which ends what this one starts
}

// Process is a daemon of the lab. It is identified by pid and start time, so
// that a number which the kernel gave to another process is never mistaken.
type Process struct {
	Name  string   `json:"name"`
	PID   int      `json:"pid"`
	Start uint64   `json:"start"` // clock ticks after boot, proc(5)
	Log   string   `json:"log"`
	Argv  []string `json:"argv"`

	mu   sync.Mutex
	done chan struct{} // closed once waited for; nil when it is not our child
	err  error
}

// spawner starts children from one thread that lives as long as the lab:
// Pdeathsig follows the thread that forked, not the process.
type spawner struct {
	work chan func(alone error)
	once sync.Once
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func(alone error))}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		alone := unix.Unshare(unix.CLONE_FS)
		for f := range s.work {
			f(alone)
		}
	}()
	return s
}

func (s *spawner) close() { s.once.Do(func() { close(s.work) }) }

// start starts argv inside a namespace with output to a log file. When detached
// the process outlives this one, otherwise the kernel ends it with this one. The flags
// are those of clone(2): further namespaces that it begins.
func (s *spawner) start(ns *Namespace, name, dir string, env []string, flags uintptr, argv []string, detach bool) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()                                     // the child has its own
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...) // it is ended by Stop, Kill or Pdeathsig
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: flags}
	if !detach && ns.machine == nil { // what is in a machine ends with its first process
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	back, err := home()
	if err != nil {
		return nil, err
	}
	var backTo *machine
	if ns.machine != nil {
		if backTo, err = homeMachine(); err != nil {
			return nil, err
		}
	}
	started := make(chan error, 1)
	s.work <- func(alone error) {
		if err := errors.Join(alone, unix.Setns(int(ns.h), unix.CLONE_NEWNET)); err != nil {
			started <- err
			return
		}
		leave, err := ns.joinCgroup()
		if err != nil {
			started <- errors.Join(err, unix.Setns(int(back), unix.CLONE_NEWNET))
			return
		}
		if err = ns.machine.enter(); err == nil {
			err = cmd.Start()
		}
		started <- errors.Join(err, unix.Setns(int(back), unix.CLONE_NEWNET), backTo.enter(), leave())
	}
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Name: name, PID: cmd.Process.Pid, Log: log.Name(), Argv: argv, done: make(chan struct{})}
	p.Start, _ = startTime(p.PID) // gone already: Wait tells why
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(p.done)
	}()
	pid := strconv.Itoa(p.PID) + "\n"
	return p, os.WriteFile(filepath.Join(dir, name+".pid"), []byte(pid), 0o644)
}

// startTime reads when a process started, field 22 of /proc/PID/stat.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	stat := string(b)
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // the name in parentheses may hold spaces
	if len(f) < 20 {
		return 0, fmt.Errorf("read start time of process %d: short stat line", pid)
	}
	if threads := f[17]; f[0] == "Z" && (threads == "0" || threads == "1") { // with more, files and locks are still held
		return 0, os.ErrNotExist
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// Alive reports whether the process still runs.
func (p *Process) Alive() bool {
	if p == nil || p.PID == 0 {
		return false
	}
	if p.done != nil {
		select {
		case <-p.done:
			return false
		default:
			return true
		}
	}
	t, err := startTime(p.PID)
	return err == nil && t == p.Start
}

// Signal sends a signal, if the process is still the one that was started.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Alive() {
		return fmt.Errorf("signal %s: %w", p.Name, os.ErrProcessDone)
	}
	return syscall.Kill(p.PID, sig)
}

// Wait returns when the process has ended or ctx has.
func (p *Process) Wait(ctx context.Context) error {
	if p.done != nil {
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to end: %w", p.Name, ctx.Err())
		}
	}
	return until(ctx, p.Name+" to end", func(context.Context) error {
		if p.Alive() {
			return errors.New("it still runs")
		}
		return nil
	})
}

// Stop asks the process to end (SIGTERM) and kills it after grace.
func (p *Process) Stop(grace time.Duration) error {
	if !p.Alive() {
		return nil
	}
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = syscall.Kill(p.PID, syscall.SIGCONT) // a paused process must hear it; one that ended need not
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if p.Wait(ctx) == nil {
		return nil
	}
	return p.Kill()
}

// Kill ends the process at once and waits until it is gone.
func (p *Process) Kill() error {
	if !p.Alive() {
		return nil
	}
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return p.Wait(ctx)
}

// Tail returns the end of the process's log.
func (p *Process) Tail(lines int) string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return tail(string(b), lines)
}

// failed wraps err with how the process fares and the end of its log.
func (p *Process) failed(err error) error {
	state := "runs"
	if !p.Alive() {
		p.mu.Lock()
		state = fmt.Sprintf("has ended (%v)", p.err)
		p.mu.Unlock()
	}
	return fmt.Errorf("%w; %s %s, the end of %s:\n%s", err, p.Name, state, p.Log, p.Tail(15))
}

// ready waits until check passes; it gives up at once when the process ends.
func (p *Process) ready(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.done:
			cancel(fmt.Errorf("%s ended", p.Name))
		case <-ctx.Done():
		}
	}()
	if err := until(ctx, what, check); err != nil {
		return p.failed(err)
	}
	return nil
}

// until asks check again and again, with growing pauses up to 50 ms, until it
// passes or ctx ends; then the error tells what check said last, before it was cut short.
func until(ctx context.Context, what string, check func(context.Context) error) error {
	again := waiting.NewRetry(waiting.BackoffConfig{Base: time.Millisecond, Max: 50 * time.Millisecond})
	last, asked := errors.New("never asked"), false
	for ctx.Err() == nil {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || !asked {
			last, asked = err, true
		}
		_ = again.Pause(ctx) // the loop sees the end
	}
	return fmt.Errorf("wait for %s: %w (last: %w)", what, context.Cause(ctx), last)
}

// Until waits for a condition: it asks check again and again until it returns
// nil or ctx ends.
func Until(ctx context.Context, what string, check func(context.Context) error) error {
	return until(ctx, what, check)
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "    " + strings.Join(all, "\n    ")
}
