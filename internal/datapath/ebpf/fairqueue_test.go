package ebpf

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// Where the kernel has fq_codel, streams of a port with a limit take turns: what one sends
// little of passes what waits of another one, both for what is sent and what is received. A
// kernel without says so, and has a FIFO.
func TestStreamsTakeTurns(t *testing.T) {
	w := newTwoHosts(t, 1600, 1500)
	require(t, "tc")
	if out, err := exec.CommandContext(t.Context(), "tc", "-n", w.hosts[0], "qdisc", "add", "dev", "lo", "root", "fq_codel").CombinedOutput(); err != nil {
		if !strings.Contains(string(out), "kind is unknown") {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skip("this kernel has no fq_codel; make test-kernel runs this on one that has")
	}
	threads := [2]*thread{newThread(t, w.containers[0]), newThread(t, w.containers[1])}
	slow := desired.Limit{Bits: 100_000}
	for _, tc := range []struct {
		name string
		host int
		rate desired.Rate
	}{{"sends", 0, desired.Rate{Send: slow}}, {"receives", 1, desired.Rate{Receive: slow}}} {
		w.rate(t, tc.host, &tc.rate)
		if now := run(t, "tc", "-n", w.hosts[tc.host], "qdisc", "show"); !strings.Contains(now, "fq_codel c027: ") || strings.Contains(now, "fifo") {
			t.Errorf("%s: queues:\n%s", tc.name, now)
		}
		// Of a burst some 8 packets wait, for more than half a second. A machine that stands
		// still for as long between the two streams shows nothing: then once more.
		passed := 0
		for range 10 {
			if passed = w.passes(t, threads); passed > 1 {
				break
			}
		}
		if passed < 2 {
			t.Errorf("%s: another stream's packet passes %d that wait, want some", tc.name, passed)
		}
		w.rate(t, tc.host, nil)
	}
}

// passes sends a burst from the first container to the second, and then one packet of
// another stream. It returns how many of the burst arrive behind that one.
func (w *twoHosts) passes(t *testing.T, threads [2]*thread) (n int) {
	t.Helper()
	var in *net.UDPConn
	var out [2]*net.UDPConn
	var err error
	threads[1].do(func() { in, err = net.ListenUDP("udp4", &net.UDPAddr{}) })
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for i := range out {
		threads[0].do(func() {
			out[i], err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: containerIP4[1].AsSlice(), Port: in.LocalAddr().(*net.UDPAddr).Port})
		})
		if err != nil {
			t.Fatal(err)
		}
		defer out[i].Close()
	}
	for range 40 {
		if _, err := out[0].Write(make([]byte, 1000)); err != nil && !errors.Is(err, unix.ENOBUFS) {
			t.Fatal(err)
		}
	}
	if _, err := out[1].Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	other := false
	for b := make([]byte, 2000); ; {
		if err := in.SetReadDeadline(time.Now().Add(3 * time.Second)); err != nil { // 30 packets' time: nothing waits any more
			t.Fatal(err)
		}
		size, err := in.Read(b)
		switch {
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			t.Fatal(err)
		case err != nil:
			return n
		case size == 1:
			other = true
		case other:
			n++
		}
	}
}
