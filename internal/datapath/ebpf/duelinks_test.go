package ebpf

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestLastingPortsHaveALink: a port that lasts has a link that judges by itself, a new process
// goes on with it, and it goes with its port; one whose way in somebody else
// filters has none.
func TestLastingPortsHaveALink(t *testing.T) {
	require(t, "tc")
	if !bpfattach.HaveTCX(alien(t, tcNext)) {
		t.Skip("TCX came with Linux 6.6")
	}
	r := newRig(t)
	pic, a, b := r.neighbours(t)
	run(t, "tc", "-n", r.host, "qdisc", "add", "dev", b.IfName, "clsact")
	r.thread.do(func() {
		index, err := ifindex(b.IfName)
		if err == nil {
			err = netlink.FilterAdd(&netlink.BpfFilter{
				FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 7},
				Fd:          alien(t, tcNext).FD(), Name: "alien", DirectAction: true,
			})
		}
		if err != nil {
			t.Error(err)
		}
	})
	drv := r.open(t)
	apply := func() {
		t.Helper()
		if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
	}
	apply()
	known, now := map[string]linkDue{}, time.Now()
	if due := r.drv.dueForLink(known, now); len(due) > 0 {
		t.Errorf("%v are due at once", due)
	}
	if due := r.drv.dueForLink(known, now.Add(linkAfter-time.Millisecond)); len(due) > 0 {
		t.Errorf("%v are due too early", due)
	}
	if due := r.drv.dueForLink(known, now.Add(linkAfter)); len(due) != 2 {
		t.Fatalf("%v are due, want both ports", due)
	}
	r.thread.do(func() {
		if err := r.drv.linkPort(t.Context(), a.IfName, known[a.IfName].index); err != nil {
			t.Error(err)
		}
		if err := r.drv.linkPort(t.Context(), b.IfName, known[b.IfName].index); !errors.Is(err, model.ErrConflict) {
			t.Errorf("with somebody else's filter: %v, want a conflict", err)
		}
		if err := r.drv.linkPort(t.Context(), a.IfName, known[a.IfName].index+1000); err == nil {
			t.Error("an interface that does not exist has got a link")
		}
	})
	pinned := func(ifname string) bool {
		_, err := os.Stat(filepath.Join(r.pins, "links", pinName(ifname, true)))
		return err == nil
	}
	if !pinned(a.IfName) || pinned(b.IfName) {
		t.Fatalf("linked: %v and %v, want the first only", pinned(a.IfName), pinned(b.IfName))
	}
	judges := func(when string) {
		t.Helper()
		// Without its filter, only the link is left.
		r.thread.do(func() {
			f, err := ourFilter.Find(known[a.IfName].index, true)
			if f != nil && err == nil {
				err = netlink.FilterDel(f)
			}
			if err != nil {
				t.Error(err)
			}
		})
		for port, want := range map[uint16]int{80: 1, 81: 0} {
			p := web(a, b, 4000, port)
			p.Port = a.IfName
			if got := r.inject(t, p); len(got.Ports) != want {
				t.Errorf("%s: to port %d: %v, want %d ports", when, port, got, want)
			}
		}
	}
	judges("linked")
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
	judges("without a process")
	drv = r.open(t)
	defer drv.Close()
	apply()
	if !pinned(a.IfName) {
		t.Error("a new process has taken the link off")
	}
	judges("with a new process")
	if due := r.drv.dueForLink(map[string]linkDue{}, time.Now()); len(due) > 0 {
		t.Errorf("%v are due again", due)
	}
	pic.Ports = pic.Ports.Delete(a.IfName)
	apply()
	if pinned(a.IfName) {
		t.Error("the link of a port that is gone is still pinned")
	}
}
