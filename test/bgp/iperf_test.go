//go:build integration

package bgp

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

var (
	streamTime = flag.Duration("stream", 20*time.Second, "how long iperf3 sends in TestHostsWithProvidersAnnounceServices: longer than netplugins take to restart")
	streamRate = flag.String("rate", "4M", "bits per second of its TCP streams, at which only what is lost on the way is sent again; 0 = all that go")
)

// iperf is what iperf3's receiver says of a stream.
type iperf struct {
	Error     string
	Intervals []struct {
		Sum struct {
			Start, Seconds float64
			Bytes          int64
			Lost           int `json:"lost_packets"`
		}
	}
	End struct {
		Sent struct {
			Retransmits int
		} `json:"sum_sent"`
		Received struct {
			Bytes int64
		} `json:"sum_received"`
		Datagrams struct {
			Packets int
			Lost    int `json:"lost_packets"`
		} `json:"sum"`
	}
}

// pause is the longest time without a byte.
func (r *iperf) pause() (longest time.Duration) {
	var now float64
	for _, i := range r.Intervals {
		if now += i.Sum.Seconds; i.Sum.Bytes > 0 {
			now = 0
		}
		longest = max(longest, time.Duration(now*float64(time.Second)))
	}
	return longest
}

// lost says when datagrams were lost, in seconds since the stream began.
func (r *iperf) lost() string {
	var at []string
	for _, i := range r.Intervals {
		if i.Sum.Lost > 0 {
			at = append(at, fmt.Sprintf("%d at %.1f", i.Sum.Lost, i.Sum.Start))
		}
	}
	return strings.Join(at, ", ")
}

// streams sends by iperf3 from the router to each container and back, a TCP stream and
// datagrams each. What it returns waits for their ends, and judges them.
func (h *host) streams(containers map[string]netip.Addr) (end func()) {
	h.Helper()
	type stream struct {
		what string
		udp  bool
		out  []byte
		err  error
	}
	var all []*stream
	var running sync.WaitGroup
	port := 5200
	begin := func(name, way string, from, to *testcluster.Namespace, addr netip.Addr, udp bool, args ...string) {
		port++
		s := &stream{what: fmt.Sprintf("%s, %s: iperf3 %s", name, way, strings.Join(args, " ")), udp: udp}
		p := strconv.Itoa(port)
		server := from.Command(h.Context(), "iperf3", "-s", "-1", "-B", addr.String(), "-p", p)
		if err := server.Start(); err != nil {
			h.Fatal(err)
		}
		h.Cleanup(func() {
			_ = server.Process.Kill() // it may have ended
			_ = server.Wait()         // killed
		})
		until(h.T, "iperf3's server", func() (bool, string) {
			out := run(h.T, "ip", "netns", "exec", from.Name, "ss", "-Hltn", "sport = :"+p)
			return strings.Contains(out, p), out
		})
		args = append([]string{"-c", addr.String(), "-p", p, "-R", "-J", "-i", "0.1"}, args...)
		running.Go(func() { s.out, s.err = to.Command(h.Context(), "iperf3", args...).CombinedOutput() })
		all = append(all, s)
	}
	seconds := strconv.Itoa(int(streamTime.Seconds()))
	for name, addr := range containers {
		space, err := h.Space(name)
		if err != nil {
			h.Fatal(err)
		}
		for _, udp := range []bool{false, true} {
			args := []string{"-t", seconds, "-b", *streamRate, "-l", "8K"}
			if udp {
				args = []string{"-t", seconds, "-u", "-b", "1M", "-l", "1000"}
			}
			begin(name, "in", h.ns, space, netip.MustParseAddr(beyond), udp, args...)
			begin(name, "out", space, h.ns, addr, udp, args...)
		}
	}
	begun := time.Now()
	return func() {
		h.Helper()
		if took := time.Since(begun); took > *streamTime {
			h.Errorf("restarts took %s, longer than iperf3 sent: say -stream", took)
		}
		running.Wait()
		for _, s := range all {
			var r iperf
			if err := errors.Join(s.err, json.Unmarshal(s.out, &r)); err != nil || r.Error != "" {
				h.Errorf("%s: %v %s", s.what, err, r.Error)
				continue
			}
			pause, d := r.pause(), r.End.Datagrams
			if s.udp {
				h.Logf("%s: %d datagrams, %d lost (%s), longest pause %s", s.what, d.Packets, d.Lost, r.lost(), pause)
			} else {
				h.Logf("%s: %d bytes, %d segments sent again, longest pause %s", s.what, r.End.Received.Bytes, r.End.Sent.Retransmits, pause)
			}
			if len(r.Intervals) == 0 || pause >= time.Second || d.Lost > 0 {
				h.Errorf("%s: something was lost, or stood still for a second", s.what)
			}
		}
	}
}

func TestLongestPauseIsMeasured(t *testing.T) {
	var r iperf
	if err := json.Unmarshal([]byte(`{"intervals": [{"sum": {"seconds": 0.5, "bytes": 0}}, {"sum": {"seconds": 0.1, "bytes": 9}}, {"sum": {"seconds": 0.5, "bytes": 0}}, {"sum": {"seconds": 0.25, "bytes": 0}}]}`), &r); err != nil {
		t.Fatal(err)
	}
	if got := r.pause(); got != 750*time.Millisecond {
		t.Errorf("the longest pause is %s, want 750ms", got)
	}
}
