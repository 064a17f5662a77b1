package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

const (
	// simulateWord has the program be the simulated agents.
	simulateWord = "simulate"
	// calm is how long a cluster is looked at in which nothing happens.
	calm = 10 * time.Second
	// grace is how long after the last change agents may take to have it.
	grace = time.Minute
)

// one builds a cluster, measures, and writes a report.
func (o *options) one(ctx context.Context, r row) (rep *report, err error) {
	fmt.Fprintf(os.Stderr, "%s: %d agents, %d networks on %d hosts each, %d endpoints, %d rules, %d tenants, %g changes a second for %s\n",
		r.name, r.Agents, r.Networks, r.Spread, r.Endpoints, r.Rules, r.Tenants, r.Changes, r.For)
	begun := time.Now()
	cfg := testcluster.Config{Name: "scale", BinDir: o.bin}
	if o.real != "none" {
		cfg.Hosts, cfg.Driver = 1, o.real
	} else {
		cfg.Driver = testcluster.DriverOVS // needs nothing where there is no host
	}
	if missing := cfg.Missing(); len(missing) > 0 {
		return nil, errors.New(strings.Join(missing, "; "))
	}
	rep = begin(ctx, r)
	l, err := testcluster.Up(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Down()) }()
	dir, err := os.MkdirTemp("", "scale-") // short: sockets are in it
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := o.measure(ctx, r, l, dir, rep); err != nil {
		return nil, err
	}
	rep.Load[1] = stats.Load()
	rep.Busy = stats.Busy(rep.Load[0], o.busyLoad)
	rep.Whole = time.Since(begun).Seconds()
	if o.out != "" {
		if err := stats.WriteJSON(filepath.Join(o.out, "scale"), rep.Row, rep); err != nil {
			return nil, err
		}
	}
	return rep, nil
}

func (o *options) measure(ctx context.Context, r row, l *testcluster.Lab, dir string, rep *report) (err error) {
	c, err := l.Masters.API()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := fill(ctx, c, r.sizes); err != nil {
		return err
	}
	begun := time.Now()
	relay := ""
	if o.relay {
		relay = l.Masters.MasterURL()
	}
	s, err := start(ctx, l, orders{Sizes: r.sizes, Store: l.Store.StoreURL(), Dir: dir, Heap: o.heap, Relay: relay, First: r.first})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	rep.Ready = time.Since(begun).Seconds()
	if o.real != "none" {
		if _, err := l.AddContainer(ctx, testcluster.ContainerSpec{Name: "one", Host: l.Hosts()[0].Name, Tenant: r.tenant(0), Network: networkName(0), Group: groupName(0)}); err != nil {
			return err
		}
	}
	pids := map[string]int{"agents": s.pid, "load": os.Getpid()}
	for name, p := range l.Processes() {
		pids[strings.TrimPrefix(name, "h1-")] = p.PID
	}
	quiet, err := s.over(pids, func() error { return waiting.Pause(ctx, calm) })
	if err != nil {
		return err
	}
	rep.Quiet = quiet.rates(rep.agents(), 0)
	if !r.first {
		if err := s.ask(question{Begin: true}); err != nil {
			return err
		}
		u := &churn{z: r.sizes, c: c, tell: s.ask, chance: rand.New(rand.NewPCG(1, 2))} //nolint:gosec // the same each time
		busy, err := s.over(pids, func() (err error) {
			rep.API, err = u.run(ctx)
			return err
		})
		if err != nil {
			return err
		}
		rep.Busily = busy.rates(r.Agents, len(u.took))
	}
	rep.Memory = map[string]float64{}
	for name, pid := range pids {
		if name != "load" {
			if rep.Memory[name], err = stats.Anonymous(pid); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(os.Stderr, "  waiting for the last changes, and collecting the heap")
	a, err := s.get(question{Finish: grace})
	if err != nil {
		return err
	}
	rep.Arrivals, rep.Heap, rep.Said = a.Arrivals, a.Heap/1e6, a.Said
	return nil
}

// simulation is the process of simulated agents.
type simulation struct {
	pid int
	cmd *testcluster.Command
	in  io.WriteCloser
	out *bufio.Scanner

	mu sync.Mutex // one question at a time
}

// start returns when all agents have all that there is.
func start(ctx context.Context, l *testcluster.Lab, o orders) (*simulation, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	s := &simulation{cmd: l.Master.Command(ctx, self, simulateWord, string(b))}
	s.cmd.Stderr = os.Stderr
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewScanner(out)
	s.out.Buffer(nil, 1<<20)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.pid = s.cmd.Process.Pid
	if _, err := s.hear(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// ask puts a question that has no answer.
func (s *simulation) ask(q question) error {
	b, err := json.Marshal(q)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.in.Write(append(b, '\n'))
	return err
}

func (s *simulation) get(q question) (answer, error) {
	if err := s.ask(q); err != nil {
		return answer{}, err
	}
	return s.hear()
}

func (s *simulation) hear() (a answer, err error) {
	if !s.out.Scan() {
		if err = s.out.Err(); err == nil {
			err = errors.New("the process of simulated agents has ended")
		}
		return a, err
	}
	return a, json.Unmarshal(s.out.Bytes(), &a)
}

func (s *simulation) close() error { return errors.Join(s.in.Close(), s.cmd.Wait()) }

// reading is what was used and counted so far.
type reading struct {
	at       time.Duration
	counts   counts
	used     map[string]time.Duration // processor time
	switches map[string]int64         // of threads: how often they were woken, or made room
}

// over returns what was used while f ran.
func (s *simulation) over(pids map[string]int, f func() error) (reading, error) {
	before, err := s.read(pids)
	if err != nil {
		return reading{}, err
	}
	if err := f(); err != nil {
		return reading{}, err
	}
	r, err := s.read(pids)
	if err != nil {
		return reading{}, err
	}
	r.at -= before.at
	a, b := &r.counts, before.counts
	a.Batches, a.Events, a.Payload, a.Passes, a.Wire = a.Batches-b.Batches, a.Events-b.Events, a.Payload-b.Payload, a.Passes-b.Passes, a.Wire-b.Wire
	for name := range r.used {
		r.used[name] -= before.used[name]
		r.switches[name] -= before.switches[name]
	}
	return r, nil
}

func (s *simulation) read(pids map[string]int) (reading, error) {
	a, err := s.get(question{Counts: true})
	r := reading{at: now(), counts: a.Counts, used: map[string]time.Duration{}, switches: map[string]int64{}}
	for name, pid := range pids {
		r.used[name], r.switches[name] = stats.UsedBy(pid), switches(pid)
	}
	return r, err
}

// switches is how often the kernel had a thread of a process give the processor up,
// which it did of itself as often as it waited. Threads that have ended are not counted.
func switches(pid int) (n int64) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return 0
	}
	for _, f := range files {
		n += int64(stats.Field(f, "voluntary_ctxt_switches:"))
	}
	return n
}
