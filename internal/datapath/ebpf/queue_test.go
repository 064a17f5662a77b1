package ebpf

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// burstOf is how many datagrams burst sends: far more than a limit's bucket and queue
// hold.
const burstOf = 400

// burst is conformance.Burst from the first container to the second.
func (w *twoHosts) burst(t *testing.T, threads [2]*thread, to netip.Addr) (n int, took time.Duration, classes []int) {
	t.Helper()
	in := func(th *thread) func(func() error) error {
		return func(do func() error) (err error) {
			th.do(func() { err = do() })
			return err
		}
	}
	return conformance.Burst(t, burstOf, in(threads[0]), in(threads[1]), to)
}

// outerClasses are the classes of IPv4 packets to the tunnel's port that wait in a packet
// socket.
func outerClasses(t *testing.T, fd int) (classes []int) {
	t.Helper()
	for b := make([]byte, 2000); ; {
		n, err := unix.Read(fd, b)
		if err != nil {
			return classes
		}
		if n > 42 && b[12] == 8 && b[13] == 0 && b[23] == unix.IPPROTO_UDP && b[36] == DefaultVXLANPort>>8 && b[37] == DefaultVXLANPort&0xff && !slices.Contains(classes, int(b[15])) {
			classes = append(classes, int(b[15]))
		}
	}
}

func (w *twoHosts) rate(t *testing.T, i int, r *desired.Rate) (rep driver.Report) {
	t.Helper()
	w.states[i].Bandwidth = desired.Map[string, *desired.Rate]{}
	if r != nil {
		w.states[i].Bandwidth = w.states[i].Bandwidth.Set(containerPort, r)
	}
	w.apply(t, i)
	var err error
	w.threads[i].do(func() { rep, err = w.drivers[i].Apply(context.Background(), w.states[i]) })
	if err != nil || rep.Changes != 0 {
		t.Errorf("the same again: %d changes, %v", rep.Changes, err)
	}
	return rep
}

// traces are devices and queues for ports with a rate that a host has.
func (w *twoHosts) traces(t *testing.T, i int) (out []string) {
	t.Helper()
	for l := range strings.SplitSeq(run(t, "ip", "-n", w.hosts[i], "-o", "link", "show")+run(t, "tc", "-n", w.hosts[i], "qdisc", "show")+run(t, "tc", "-n", w.hosts[i], "filter", "show", "dev", containerPort, "ingress"), "\n") {
		if strings.Contains(l, ": cq") || strings.Contains(l, ": cp") || strings.Contains(l, "tbf") || strings.Contains(l, "to_queue") {
			out = append(out, l)
		}
	}
	return out
}

// A rate limits what an endpoint sends and what it receives, marks what it sends inside
// and outside and leaves ECN; it comes, changes and goes, and netplugin with it, while
// a connection goes on, and leaves nothing behind.
func TestRateLimitsAndMarksAnEndpoint(t *testing.T) {
	w := newTwoHosts(t, 1600, 1500)
	require(t, "tc")
	threads := [2]*thread{newThread(t, w.containers[0]), newThread(t, w.containers[1])}
	var echo sync.WaitGroup
	defer echo.Wait()
	// What goes with a connection whose way is gone by then ends by itself only after minutes.
	ended, end := context.WithCancel(t.Context())
	defer end()
	var ln net.Listener
	var conn net.Conn
	var err error
	threads[1].do(func() { ln, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", ":0") })
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	echo.Go(func() {
		if c, err := ln.Accept(); err == nil {
			defer c.Close()
			defer context.AfterFunc(ended, func() { _ = c.SetDeadline(time.Now()) })()
			for b := make([]byte, 16); ; {
				n, err := c.Read(b)
				if err != nil {
					return
				}
				if _, err := c.Write(b[:n]); err != nil {
					return
				}
			}
		}
	})
	threads[0].do(func() {
		conn, err = net.DialTCP("tcp4", nil, &net.TCPAddr{IP: containerIP4[1].AsSlice(), Port: ln.Addr().(*net.TCPAddr).Port})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	alive := func(when string) {
		t.Helper()
		b := []byte("x")
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := conn.Write(b); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if _, err := conn.Read(b); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	var tap int
	w.threads[1].do(func() { tap, err = packetSocket("u0") })
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(tap)
	if err := unix.SetNonblock(tap, true); err != nil {
		t.Fatal(err)
	}
	const dscp = 46
	small := desired.Limit{Bits: 2_000_000}
	limited := func(when string, class int) {
		t.Helper()
		for _, to := range []netip.Addr{containerIP4[1], containerIP6[1]} {
			outerClasses(t, tap)
			n, took, classes := w.burst(t, threads, to)
			sent := int(took.Seconds() * float64(small.Bits) / 8 / 1000) // while the burst was on its way
			if n == 0 || n > burstOf/4+sent || !slices.Equal(classes, []int{class}) {
				t.Errorf("%s: %d of %d datagrams to %s passed, classes %v, sent in %v, want a few of class %d", when, n, burstOf, to, classes, took, class)
			}
			if outer := outerClasses(t, tap); !slices.Contains(outer, class) || class == 1 && slices.ContainsFunc(outer, func(c int) bool { return c > 3 }) {
				t.Errorf("%s: outer classes %v, want %d", when, outer, class)
			}
		}
		alive(when)
	}
	free := func(when string, class int) {
		t.Helper()
		if n, _, classes := w.burst(t, threads, containerIP4[1]); n < burstOf*3/4 || !slices.Equal(classes, []int{class}) {
			t.Errorf("%s: %d of %d datagrams passed, classes %v", when, n, burstOf, classes)
		}
		alive(when)
	}
	alive("no rate")
	free("no rate", 1)
	w.rate(t, 0, &desired.Rate{DSCP: dscp})
	free("a mark", dscp<<2|1)
	w.rate(t, 0, &desired.Rate{Send: small, DSCP: dscp})
	limited("a limit of what it sends", dscp<<2|1)
	w.restart(t, 0)
	limited("another netplugin", dscp<<2|1)
	w.rate(t, 0, &desired.Rate{Send: desired.Limit{Bits: 10_000_000_000, Burst: 2_000_000}})
	free("a higher one", 1)
	w.rate(t, 0, &desired.Rate{Send: desired.Limit{Bits: model.MaxRate}, Receive: desired.Limit{Bits: model.MaxRate}})
	free("one beyond every link", 1)
	w.rate(t, 0, &desired.Rate{Send: desired.Limit{Bits: 10_000_000_000, Burst: 1}})
	free("a burst below a packet", 1)
	w.rate(t, 0, &desired.Rate{Send: small})
	limited("a lower one without mark", 1)
	w.rate(t, 0, nil)
	free("no rate again", 1)
	if left := w.traces(t, 0); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	w.rate(t, 1, &desired.Rate{Receive: small})
	limited("a limit of what it receives", 1)
	w.rate(t, 1, &desired.Rate{Receive: desired.Limit{Bits: 1_500_000}, Send: small})
	limited("of both", 1)
	w.restart(t, 1)
	limited("another netplugin", 1)
	if err := w.drivers[1].Close(); err != nil {
		t.Fatal(err)
	}
	cfg := w.drivers[1].cfg
	w.threads[1].do(func() { err = Leftovers(cfg).Remove(t.Context()) })
	if left := w.traces(t, 1); err != nil || len(left) > 0 {
		t.Errorf("removed: %v; left: %q", err, left)
	}
	w.threads[1].do(func() { w.drivers[1], err = open(t.Context(), cfg) }) // which the end of the test asks for its counters
	if err != nil {
		t.Fatal(err)
	}
}
