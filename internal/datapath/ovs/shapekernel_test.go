package ovs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/datapath/shaping"
)

// On a kernel that cannot hold a limit the host says so, once and not for each port, and
// no devices are made, not once a pass either. On one that can, a queue that somebody
// takes away is heard of, and put back.
func TestQueuesFollowTheKernelsSupport(t *testing.T) {
	ovstest.Require(t, "tc")
	l := newShapedLive(t, 2)
	defer func() { _ = l.drv.Close() }()
	l.drv.mu.Lock()
	queues, k := l.drv.bandwidth.shaper.queues, &conformance.Unbucketed{Kernel: l.cfg.links}
	l.drv.bandwidth.shaper.queues = shaping.New(k, shapeMajor)
	l.drv.mu.Unlock()
	limit := desired.Limit{Bits: 1_000_000}
	for _, b := range l.boxes {
		l.pic.Bandwidth = l.pic.Bandwidth.Set(b.port.IfName, &desired.Rate{Send: limit, Receive: limit})
	}
	before := ""
	for i := range 3 {
		rep := l.apply(t)
		if len(rep.Problems) != 1 || rep.Problems[0].Object != "bandwidth" || !errors.Is(rep.Problems[0].Err, unix.ENOENT) || i > 0 && rep.Changes > 0 {
			t.Errorf("%d changes, problems %v", rep.Changes, rep.Problems)
		}
		all := l.Run("ip", "-n", l.NS, "-o", "link", "show")
		if len(l.traces()) > 0 || i > 0 && all != before {
			t.Errorf("%q; interfaces:\n%s\nbefore:\n%s", l.traces(), all, before)
		}
		before = all
	}
	if k.Asked != 1 {
		t.Errorf("the kernel was asked %d times", k.Asked)
	}
	l.drv.mu.Lock()
	l.drv.bandwidth.shaper.queues = queues
	l.drv.mu.Unlock()
	if rep := l.apply(t); len(rep.Problems) > 0 {
		t.Fatal(rep.Problems)
	}
	name := l.boxes[0].port.IfName
	for _, device := range []string{shaping.DeviceName(nearPrefix, name), name} {
		l.Run("tc", "-n", l.NS, "qdisc", "del", "dev", device, "root")
		for deadline := time.After(time.Minute); !strings.Contains(l.Run("tc", "-n", l.NS, "qdisc", "show", "dev", device), "tbf"); l.apply(t) {
			select {
			case <-l.drv.Events():
			case <-deadline:
				t.Fatalf("nobody says that the queue of %s is gone", device)
			}
		}
	}
}
