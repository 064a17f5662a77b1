package main

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// path is a way between two namespaces that is measured.
type path struct {
	name           string
	client, server *testcluster.Namespace
	addr           netip.Addr               // of the server, or of a service that leads to all servers
	each           []netip.Addr             // of servers whose connections begin in turn; none = all to addr
	servers        []*testcluster.Namespace // where more than one may be reached
}

// metric is one kind of traffic; run measures it on each of the paths.
type metric struct {
	name, unit string
	run        func([]path, time.Duration) ([]float64, error)
}

// oneByOne measures one path after the other.
func oneByOne(f func(path, time.Duration) (float64, error)) func([]path, time.Duration) ([]float64, error) {
	return func(paths []path, d time.Duration) (out []float64, err error) {
		for _, p := range paths {
			v, err := f(p, d)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	}
}

const port = 5001

// chunk is what one call reads or writes, as in iperf3.
const chunk = 128 << 10

// batch is how many transactions are timed together. The median of the batches is the cost
// of a transaction while no other process takes the processor.
const batch = 32

var (
	stream1 = metric{"one TCP stream", "Gbit/s", oneByOne(func(p path, d time.Duration) (float64, error) { return streams(p, 1, d) })}
	stream8 = metric{"eight TCP streams", "Gbit/s", oneByOne(func(p path, d time.Duration) (float64, error) { return streams(p, 8, d) })}
	latency = metric{"round trip of 1 byte", "µs", roundTrips}
	connect = metric{"new connections", "1/s", oneByOne(connections)}
)

// onCPU runs fn inside a namespace on a thread of one processor, ahead of what
// else the machine does, and without the signals by which the Go scheduler asks
// threads to make room.
func onCPU(ns *testcluster.Namespace, cpu int, fn func() error) error {
	return ns.Do(func() error {
		var before, want unix.CPUSet
		if err := unix.SchedGetaffinity(0, &before); err != nil {
			return fmt.Errorf("read the thread's processors: %w", err)
		}
		want.Set(cpu % runtime.NumCPU())
		urgent, was := unix.Sigset_t{}, unix.Sigset_t{}
		urgent.Val[0] = 1 << (unix.SIGURG - 1)
		err := errors.Join(unix.SchedSetaffinity(0, &want), unix.Setpriority(unix.PRIO_PROCESS, 0, -15),
			unix.PthreadSigmask(unix.SIG_BLOCK, &urgent, &was))
		if err == nil {
			err = fn()
		}
		return errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &was, nil),
			unix.Setpriority(unix.PRIO_PROCESS, 0, 0), unix.SchedSetaffinity(0, &before))
	})
}

// socket makes a TCP socket whose calls end after some seconds, come what may.
// It uses reno, which sends when it may: the machine's own congestion control may pace
// (bbr), by timers that cost more than what is measured here.
func socket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	return fd, errors.Join(patience(fd), unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno"))
}

func patience(fd int) error {
	limit := unix.Timeval{Sec: 5}
	return errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
}

// pair makes one connection; both ends of it are sockets of this process.
func pair(p path, l *serverSockets) (client, server int, err error) {
	err = p.client.Do(func() error {
		if client, err = socket(); err != nil {
			return err
		}
		for {
			err := unix.Connect(client, &unix.SockaddrInet4{Port: port, Addr: p.addr.As4()})
			if errors.Is(err, unix.EISCONN) { // a signal had come before
				return nil
			}
			if !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	})
	if err == nil {
		ok := false
		if server, ok = l.accept(); !ok {
			err = errors.New("no server has got it")
		}
	}
	if err == nil {
		err = patience(server)
	}
	if err != nil {
		return -1, -1, fmt.Errorf("%s: connect to %s: %w", p.name, p.addr, err)
	}
	return client, server, nil
}

// meter samples the rate of arriving bytes. The median of the samples is the rate while no
// other process takes the processors.
type meter struct {
	start   time.Time
	total   atomic.Int64
	mu      sync.Mutex
	at      time.Duration
	before  int64
	samples series // Gbit/s
}

// interval is how much time one sample is about.
const interval = 4 * time.Millisecond

func (m *meter) add(n int) {
	total, now := m.total.Add(int64(n)), time.Since(m.start)
	if !m.mu.TryLock() {
		return
	}
	if took := now - m.at; took >= interval {
		m.samples = append(m.samples, float64(total-m.before)*8/float64(took.Nanoseconds()))
		m.at, m.before = now, total
	}
	m.mu.Unlock()
}

// streams sends as fast as it can through n connections and returns how fast
// it arrived, in Gbit/s. Senders share one processor, receivers another.
func streams(p path, n int, d time.Duration) (float64, error) {
	l, err := listen(p)
	if err != nil {
		return 0, err
	}
	defer l.close()
	var wg sync.WaitGroup
	errs := make([]error, 2*n)
	var ends []int
	defer func() {
		for _, fd := range ends {
			shut(fd)
		}
	}()
	for range n {
		c, s, err := pair(p, l)
		if err != nil {
			return 0, err
		}
		ends = append(ends, c, s)
	}
	m := meter{start: time.Now()}
	for i := range n {
		c, s := ends[2*i], ends[2*i+1]
		wg.Go(func() {
			errs[2*i] = onCPU(p.client, 0, func() error {
				b := make([]byte, chunk)
				for time.Since(m.start) < d {
					if _, err := raw(unix.SYS_WRITE, c, b); err != nil {
						return err
					}
				}
				return unix.Shutdown(c, unix.SHUT_WR)
			})
		})
		wg.Go(func() {
			errs[2*i+1] = onCPU(p.server, 1, func() error {
				b := make([]byte, chunk)
				for {
					k, err := raw(unix.SYS_READ, s, b)
					if k == 0 || err != nil {
						return err
					}
					m.add(k)
				}
			})
		})
	}
	wg.Wait()
	if len(m.samples) < 5 { // too little came
		m.samples = series{float64(m.total.Load()) * 8 / float64(time.Since(m.start).Nanoseconds())}
	}
	return stats.Median(m.samples), wrap(p, errors.Join(errs...))
}

// echo is a connection whose server sends back what it gets.
type echo struct {
	path
	client, server int
	served         chan error
}

func openEcho(p path) (*echo, error) {
	l, err := listen(p)
	if err != nil {
		return nil, err
	}
	defer l.close()
	e := &echo{path: p, served: make(chan error, 1)}
	if e.client, e.server, err = pair(p, l); err != nil {
		return nil, err
	}
	go func() {
		e.served <- onCPU(p.server, 1, func() error {
			b := make([]byte, 1)
			for {
				if k, err := raw(unix.SYS_READ, e.server, b); k == 0 || err != nil {
					return err
				}
				if _, err := raw(unix.SYS_WRITE, e.server, b); err != nil {
					return err
				}
			}
		})
	}()
	return e, nil
}

// exchange sends one byte to and fro for some time and returns what each batch
// of round trips took. Both ends run on one processor, so that no wake-up of
// another one is in the figure.
func (e *echo) exchange(d time.Duration) (took []time.Duration, err error) {
	return took, onCPU(e.path.client, 1, func() error {
		b := make([]byte, 1)
		for begin := time.Now(); time.Since(begin) < d; {
			start := time.Now()
			for range batch {
				if _, err := raw(unix.SYS_WRITE, e.client, b); err != nil {
					return err
				}
				if _, err := raw(unix.SYS_READ, e.client, b); err != nil {
					return err
				}
			}
			took = append(took, time.Since(start))
		}
		return nil
	})
}

func (e *echo) close() error {
	shut(e.client)
	err := <-e.served
	shut(e.server)
	return wrap(e.path, err)
}

// turns is how many times roundTrips comes to each path.
const turns = 20

// roundTrips returns what a round trip of one byte takes on each path, in
// microseconds. The paths take turns of some milliseconds: a machine whose
// neighbours come and go is half as fast from one tenth of a second to the next.
func roundTrips(paths []path, d time.Duration) (took []float64, err error) {
	var all []*echo
	defer func() {
		for _, e := range all {
			err = errors.Join(err, e.close())
		}
	}()
	for _, p := range paths {
		e, err := openEcho(p)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	batches := make([][]time.Duration, len(all))
	for range turns {
		for i, e := range all {
			more, err := e.exchange(d / turns)
			if err != nil {
				return nil, wrap(e.path, err)
			}
			batches[i] = append(batches[i], more...)
		}
	}
	for _, b := range batches {
		slices.Sort(b)
		took = append(took, float64(b[len(b)/2].Nanoseconds())/1000/batch)
	}
	return took, nil
}

// connections opens connections one after the other, sends a byte to and fro
// on each, and returns how many there were a second. The server closes first:
// TIME-WAIT is then at its end, and the client does not run out of ports.
func connections(p path, d time.Duration) (float64, error) {
	l, err := listen(p)
	if err != nil {
		return 0, err
	}
	served := make(chan error, 1)
	go func() {
		served <- onCPU(p.server, 1, func() error {
			b := make([]byte, 1)
			for {
				s, ok := l.accept()
				if !ok {
					return nil
				}
				_, err := raw(unix.SYS_READ, s, b)
				if err == nil {
					_, err = raw(unix.SYS_WRITE, s, b)
				}
				shut(s)
				if err != nil {
					return err
				}
			}
		})
	}()
	var took []time.Duration
	err = onCPU(p.client, 1, func() error {
		b := make([]byte, 1)
		to := []*unix.RawSockaddrInet4{address(p.addr, port)}
		if p.each != nil {
			to = nil
			for _, a := range p.each {
				to = append(to, address(a, port))
			}
		}
		n := 0
		for begin := time.Now(); time.Since(begin) < d; {
			start := time.Now()
			for range batch {
				if err := oneConnection(to[n%len(to)], b); err != nil {
					return err
				}
				n++
			}
			took = append(took, time.Since(start))
		}
		return nil
	})
	l.wake()
	err = errors.Join(err, <-served)
	l.close()
	if err != nil {
		return 0, wrap(p, err)
	}
	slices.Sort(took)
	return batch / took[len(took)/2].Seconds(), nil
}

func oneConnection(to *unix.RawSockaddrInet4, b []byte) error {
	fd, err := socket()
	if err != nil {
		return err
	}
	defer shut(fd)
	if err := dial(fd, to); err != nil {
		return err
	}
	if _, err := raw(unix.SYS_WRITE, fd, b); err != nil {
		return err
	}
	if _, err := raw(unix.SYS_READ, fd, b); err != nil {
		return err
	}
	_, err = raw(unix.SYS_READ, fd, b) // the end
	return err
}

func wrap(p path, err error) error {
	if err != nil {
		return fmt.Errorf("%s: traffic to %s: %w", p.name, p.addr, err)
	}
	return nil
}

func shut(fd int) { _ = unix.Close(fd) } // nothing of it is needed any more
