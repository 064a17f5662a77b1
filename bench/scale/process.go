package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// orders are what the process of simulated agents is begun with.
type orders struct {
	Sizes sizes  `json:"sizes"`
	Store string `json:"store"` // URL
	Dir   string `json:"dir"`   // for state directories and sockets; short
	Heap  string `json:"heap"`  // file for a profile of the heap; empty = none
	Relay string `json:"relay"` // URL of the netmaster that agents mirror from; empty = from the store
	First bool   `json:"first"` // only the first agent is begun, and the others are not there
}

// question is what the process is asked, one a line.
type question struct {
	Begin    bool          `json:"begin,omitempty"`  // arrivals are written down from now on
	Counts   bool          `json:"counts,omitempty"` // answer with counts
	Finish   time.Duration `json:"finish,omitempty"` // wait so long at most for what is missing, and answer with all
	Addr     netip.Addr    `json:"addr,omitzero"`    // the API has answered
	Gone     bool          `json:"gone,omitempty"`
	Asked    time.Duration `json:"asked,omitempty"`
	Answered time.Duration `json:"answered,omitempty"`
	Wanted   int           `json:"wanted,omitempty"`
}

// answer is what it says, one a line.
type answer struct {
	Counts   counts         `json:"counts,omitzero"`
	Arrivals arrivals       `json:"arrivals,omitzero"`
	Heap     float64        `json:"heap,omitempty"` // bytes of one agent
	Said     map[string]int `json:"said,omitempty"` // warnings and errors
}

// patience bounds the wait for agents to have what there is.
const patience = 30 * time.Minute

// simulate runs agents until its input ends.
func simulate(ctx context.Context, o orders, in io.Reader, out io.Writer) error {
	debug.SetMemoryLimit(int64(stats.Field("/proc/meminfo", "MemTotal:") * 1024 * 3 / 4)) // before the machine swaps, or kills, it collects more often
	before := heap()
	s := &shared{news: newNews(), relay: o.Relay}
	agents, err := s.beginAll(ctx, o)
	defer func() {
		var ending sync.WaitGroup
		for _, a := range agents {
			if a != nil {
				ending.Go(func() { _ = a.end() }) // the store ends too
			}
		}
		ending.Wait()
	}()
	if err != nil {
		return err
	}
	enc := json.NewEncoder(out)
	if err := enc.Encode(answer{}); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return err
		}
		var err error
		switch {
		case q.Begin:
			s.news.begin()
		case q.Counts:
			err = enc.Encode(answer{Counts: s.counts()})
		case q.Finish > 0:
			for end := now() + q.Finish; s.news.missing() > 0 && now() < end; {
				if err := waiting.Pause(ctx, 100*time.Millisecond); err != nil {
					return err
				}
			}
			a := answer{Counts: s.counts(), Arrivals: s.news.result(), Said: s.said.all()}
			s.news.forget()
			a.Heap = (heap() - before) / float64(len(agents))
			err = errors.Join(profile(o.Heap), enc.Encode(a))
		default:
			s.news.answered(event{q.Addr, q.Gone}, q.Asked, q.Answered, q.Wanted)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// atATime is how many agents are on their way at a time. Each lists what there is, and
// tells all others that there is one host more.
const atATime = 16

// beginAll starts the agents, and returns when each driver has all that concerns it.
func (s *shared) beginAll(ctx context.Context, o orders) ([]*simulated, error) {
	n := o.Sizes.Agents
	if o.First {
		n = 1
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	agents := make([]*simulated, n)
	g, beginning := errgroup.WithContext(ctx)
	g.SetLimit(atATime)
	var ready atomic.Int64
	begun := now()
	for i := range agents {
		g.Go(func() error {
			if beginning.Err() != nil {
				return beginning.Err()
			}
			a, err := s.begin(i, o.Sizes, o.Store, o.Dir)
			if err != nil {
				return err
			}
			agents[i] = a
			for a.drv.has() < o.Sizes.concerning(i) {
				if err := waiting.Pause(beginning, 50*time.Millisecond); err != nil {
					return fmt.Errorf("%s has %d of %d endpoints: %w", hostName(i), a.drv.has(), o.Sizes.concerning(i), err)
				}
			}
			if k := ready.Add(1); k%50 == 0 || int(k) == n {
				fmt.Fprintf(os.Stderr, "  %d of %d agents have what there is, after %.1f s\n", k, n, (now() - begun).Seconds())
			}
			return nil
		})
	}
	return agents, g.Wait()
}

func (s *shared) counts() counts {
	c := counts{Batches: s.batches.Load(), Events: s.events.Load(), Payload: s.payload.Load(), Passes: s.passes.Load()}
	c.Wire, c.Conns = received(storePort)
	if s.relay != "" { // answers to what agents tell netmaster are in it, some bytes a second each
		wire, conns := received(netmasterPort)
		c.Wire, c.Conns = c.Wire+wire, c.Conns+conns
	}
	return c
}

// Where the store and netmaster answer.
const (
	storePort     = 2379
	netmasterPort = 9999
)

// received is what the kernel has received over this process's connections to a port,
// by TCP_INFO.
func received(port int) (bytes int64, conns int) {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, 0
	}
	for _, name := range names {
		link, err := os.Readlink("/proc/self/fd/" + name.Name())
		if err != nil || !strings.HasPrefix(link, "socket:") {
			continue
		}
		var fd int
		if _, err := fmt.Sscan(name.Name(), &fd); err != nil {
			continue
		}
		peer, err := unix.Getpeername(fd)
		if p, ok := peer.(*unix.SockaddrInet4); err != nil || !ok || p.Port != port {
			continue
		}
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			bytes, conns = bytes+int64(info.Bytes_received), conns+1 //nolint:gosec // no such amount
		}
	}
	return bytes, conns
}

// heap is how many bytes of the heap are in use, in two collections: the first one ends
// what pools keep.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// profile writes what is in the heap to a file.
func profile(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("heap").WriteTo(f, 0), f.Close())
}
