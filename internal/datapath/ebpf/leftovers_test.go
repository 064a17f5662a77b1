package ebpf

import (
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// TestLeftoversRemovesAllOfOurs lets a host change to another driver: what Leftovers finds and
// removes is all of ours, in both ways of attachment, and nothing else; doing it
// twice is fine, and a driver that comes back starts from nothing.
func TestLeftoversRemovesAllOfOurs(t *testing.T) {
	require(t, "ip", "tc")
	for _, way := range []string{attachTCX, attachClsact} {
		t.Run(way, func(t *testing.T) {
			r := newRig(t)
			r.attach = way
			if way == attachTCX && !bpfattach.HaveTCX(alien(t, tcNext)) {
				t.Skip("TCX came with Linux 6.6")
			}
			left := func() (p driver.Predecessor) {
				r.thread.do(func() { p = Leftovers(r.config(t)) })
				return p
			}
			if p := left(); p != nil || InUse(r.pins) {
				t.Errorf("a fresh host has %v, in use %v", p, InUse(r.pins))
			}
			pic, _, _ := r.pair(t)
			pic.HostNAT = desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16"))
			drv := r.open(t)
			rep, err := drv.Apply(t.Context(), pic)
			if err != nil || len(rep.Problems) > 0 {
				t.Fatal(rep.Problems, err)
			}
			if err := drv.Close(); err != nil {
				t.Fatal(err)
			}
			var dev string
			for dev = range pic.Ports.All() {
				break
			}
			around := r.surround(t, dev, tcNext)
			before := around()
			old := left()
			if old == nil || !InUse(r.pins) {
				t.Fatal("the driver left nothing, by its own account")
			}
			step := func(what string, do func() error, links ...string) {
				t.Helper()
				r.thread.do(func() { err = do() })
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
				for _, l := range links {
					var index int
					r.thread.do(func() { index, err = ifindex(l) })
					if err != nil || index != 0 {
						t.Errorf("%s: interface %s has index %d, %v, want none", what, l, index, err)
					}
				}
			}
			for range 2 {
				step("release", func() error { return old.Release(t.Context()) }, DefaultDevice, desired.HostInterface)
			}
			if !InUse(r.pins) {
				t.Error("release removed the pins as well")
			}
			for range 2 {
				step("remove", func() error { return old.Remove(t.Context()) })
			}
			if _, err := os.Stat(r.pins); !os.IsNotExist(err) {
				t.Errorf("the pin directory: %v, want none", err)
			}
			if p := left(); p != nil {
				t.Errorf("%s is still there", p)
			}
			if after := around(); len(after) != len(before) {
				t.Errorf("programs of others: %v, were %v", after, before)
			}
			for name := range pic.Ports.All() {
				foreign := 0
				if name == dev && bpfattach.HaveTCX(alien(t, tcNext)) {
					foreign = 4
				}
				if n := r.programs(t, name); n != foreign {
					t.Errorf("%s has %d programs, want %d of others", name, n, foreign)
				}
			}
			drv = r.open(t)
			if rep, err := drv.Apply(t.Context(), pic); err != nil || len(rep.Problems) > 0 || rep.Changes == 0 {
				t.Errorf("the driver comes back: %+v, %v", rep, err)
			}
			if err := drv.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// programs counts the TCX programs, where the kernel has such, and our filters
// on an interface.
func (r *rig) programs(t *testing.T, name string) (n int) {
	t.Helper()
	tcx := bpfattach.HaveTCX(alien(t, tcNext))
	r.thread.do(func() {
		index, err := ifindex(name)
		if err != nil {
			t.Error(err)
			return
		}
		for _, in := range []bool{true, false} {
			if f, err := ourFilter.Find(index, in); err == nil && f != nil {
				n++
			}
			if !tcx {
				continue
			}
			found, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: attachType(in)})
			if err != nil {
				t.Error(err)
				continue
			}
			n += len(found.Programs)
		}
	})
	return n
}
