package ebpf

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/shaping"
)

// On a kernel that cannot hold a limit the host says so, once and not for each port; no
// devices are made, not once a pass either, and marks are kept.
func TestMissingTokenBucketsAreReportedOnce(t *testing.T) {
	r, drv, pic := driftRig(t, "")
	have, k := queues, &conformance.Unbucketed{Kernel: &netlink.Handle{}}
	queues = shaping.New(k, 0xc017)
	defer func() { queues = have }()
	before := ""
	devices := func() string {
		return run(t, "ip", "-n", r.host, "-o", "link", "show")
	}
	for name := range pic.Ports.All() {
		pic.Bandwidth = pic.Bandwidth.Set(name, &desired.Rate{Send: desired.Limit{Bits: 1_000_000}, Receive: desired.Limit{Bits: 1_000_000}, DSCP: 46})
	}
	if pic.Bandwidth.Len() < 2 {
		t.Fatal("one port only")
	}
	for i := range 3 {
		rep, err := drv.Apply(t.Context(), pic)
		if err != nil || len(rep.Problems) != 1 || rep.Problems[0].Object != "bandwidth" || !errors.Is(rep.Problems[0].Err, unix.ENOENT) {
			t.Errorf("%v, problems %v", err, rep.Problems)
		}
		if all := devices(); strings.Contains(all, ": cq") || i > 0 && all != before {
			t.Errorf("interfaces:\n%s\nbefore:\n%s", all, before)
		}
		before = devices()
	}
	if k.Asked != 1 {
		t.Errorf("the kernel was asked %d times", k.Asked)
	}
	for name := range pic.Ports.All() {
		if f := run(t, "tc", "-n", r.host, "filter", "show", "dev", name, "ingress"); !strings.Contains(f, "to_queue") {
			t.Errorf("port %s does not mark:\n%s", name, f)
		}
	}
}

// A queue that somebody takes away is heard of, and put back.
func TestRemovedQueueIsPutBack(t *testing.T) {
	r, drv, pic := driftRig(t, "")
	name := ""
	for name = range pic.Ports.All() {
		break
	}
	pic.Bandwidth = pic.Bandwidth.Set(name, &desired.Rate{Send: desired.Limit{Bits: 1_000_000}, Receive: desired.Limit{Bits: 1_000_000}})
	if rep, err := drv.Apply(t.Context(), pic); err != nil || len(rep.Problems) > 0 {
		t.Fatal(err, rep.Problems)
	}
	near, _ := queueDevices(name)
	for _, device := range []string{near, name} {
		settled(t, drv, pic)
		run(t, "tc", "-n", r.host, "qdisc", "del", "dev", device, "root")
		select {
		case e := <-drv.Events():
			if !strings.Contains(e.Reason, name) {
				t.Errorf("an event: %+v", e)
			}
		case <-time.After(time.Minute):
			t.Fatalf("nobody says that the queue of %s is gone", device)
		}
		if _, err := drv.Apply(t.Context(), pic); err != nil {
			t.Fatal(err)
		}
		if q := run(t, "tc", "-n", r.host, "qdisc", "show", "dev", device); !strings.Contains(q, "tbf") {
			t.Errorf("%s has %s", device, q)
		}
	}
}
