package ebpf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// patience is how long something may take on a busy machine.
const patience = time.Minute

// eventOf waits for a driver's event.
func eventOf(t *testing.T, drv driver.Driver) string {
	t.Helper()
	select {
	case e := <-drv.Events():
		return e.Reason
	case <-time.After(patience):
		t.Fatal("there is no event")
		return ""
	}
}

// driftRig is a host with a VXLAN network, egress, and two containers.
func driftRig(t *testing.T, attach string) (*rig, driver.Driver, desired.Host) {
	t.Helper()
	r := newRig(t)
	r.attach = attach
	pic, _, _ := r.neighbours(t)
	pic.HostNAT = desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16"))
	far := &desired.Remote{
		Network: 1, MAC: model.MAC{2, 5, 0, 0, 0, 3}, IPv4: netip.MustParseAddr("10.9.0.3"), Identity: 300, VTEP: vtep2,
	}
	pic.Remotes = pic.Remotes.Set(desired.RemoteKey{Network: 1, MAC: far.MAC}, far)
	r.networks[1] = 100
	drv := r.open(t)
	t.Cleanup(func() { _ = r.drv.Close() })
	if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	return r, drv, pic
}

// settled takes the events that the driver's own work has caused.
func settled(t *testing.T, drv driver.Driver, pic desired.Host) {
	t.Helper()
	for {
		select {
		case <-drv.Events():
			if _, err := drv.Apply(t.Context(), pic); err != nil {
				t.Fatal(err)
			}
		case <-time.After(300 * time.Millisecond): // nothing more comes of it
			return
		}
	}
}

// TestManualRemovalIsRepaired: a manual removal is reported at once, repaired by the next Apply, and counted;
// the network works again.
func TestManualRemovalIsRepaired(t *testing.T) {
	ways := []string{attachClsact}
	if haveTCXHere(t) {
		ways = append(ways, attachTCX)
	}
	for _, way := range ways {
		t.Run(way, func(t *testing.T) { drift(t, way) })
	}
}

func haveTCXHere(t *testing.T) bool {
	t.Helper()
	require(t)
	return bpfattach.HaveTCX(alien(t, tcNext))
}

func drift(t *testing.T, way string) {
	t.Helper()
	r, drv, pic := driftRig(t, way)
	a, _ := pic.Ports.Get("cvna")
	remote := reference.Packet{
		Port: a.IfName, SrcMAC: a.MAC, DstMAC: model.MAC{2, 5, 0, 0, 0, 3}, Src: a.IPv4, Dst: netip.MustParseAddr("10.9.0.3"),
		Proto: model.ProtoUDP, SrcPort: 5000, DstPort: 5000,
	}
	damage := []struct {
		name, what string
		do         func()
	}{
		{"clsact of a port", driver.DriftProgram, func() { run(t, "tc", "-n", r.host, "qdisc", "del", "dev", a.IfName, "clsact") }},
		{"the filter of a port", driver.DriftProgram, func() { run(t, "tc", "-n", r.host, "filter", "del", "dev", a.IfName, "ingress") }},
		{"the tunnel", driver.DriftDevice, func() { run(t, "ip", "-n", r.host, "link", "del", DefaultDevice) }},
		{"the host's interface", driver.DriftDevice, func() { run(t, "ip", "-n", r.host, "link", "del", desired.HostInterface) }},
		{"all pins", driver.DriftPin, func() {
			if err := os.RemoveAll(r.pins); err != nil {
				t.Error(err)
			}
		}},
		{"one pin", driver.DriftPin, func() {
			if err := os.Remove(filepath.Join(r.pins, "maps", "conns")); err != nil {
				t.Error(err)
			}
		}},
	}
	if way == attachTCX {
		damage = append(damage, struct {
			name, what string
			do         func()
		}{"the tunnel's link by force", driver.DriftProgram, func() {
			l, err := link.LoadPinnedLink(filepath.Join(r.pins, "links", pinName(DefaultDevice, true)), nil)
			if err == nil {
				err = errors.Join(l.(interface{ Detach() error }).Detach(), l.Close())
			}
			if err != nil {
				t.Error(err)
			}
		}})
	}
	if way == attachClsact {
		damage = append(damage, struct {
			name, what string
			do         func()
		}{"clsact of the tunnel", driver.DriftProgram, func() { run(t, "tc", "-n", r.host, "qdisc", "del", "dev", DefaultDevice, "clsact") }})
	}
	for _, x := range damage {
		settled(t, drv, pic)
		before := r.drv.DriftRepairs()
		x.do()
		reason := eventOf(t, drv)
		if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(x.name, err, conformance.Failed(rep))
		}
		if after := r.drv.DriftRepairs(); after[x.what] == before[x.what] {
			t.Errorf("%s (%s): repairs: %v, before: %v", x.name, reason, after, before)
		}
		remote.SrcPort++
		if v := r.inject(t, remote); len(v.VTEPs) != 1 {
			t.Errorf("%s: afterwards a packet to another host came out as %s", x.name, v)
		}
		for name, m := range r.drv.dp.obj.pinned {
			again, err := ebpf.LoadPinnedMap(filepath.Join(r.pins, "maps", name), nil)
			if err != nil {
				t.Errorf("%s: %v", x.name, err)
				continue
			}
			have, err1 := m.Info()
			found, err2 := again.Info()
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			id, _ := have.ID()
			if other, _ := found.ID(); id != other {
				t.Errorf("%s: map %s is pinned as another one", x.name, name)
			}
			_ = again.Close()
		}
	}
}

// TestWatchersWaitForNoApply: who reads the kernel's messages waits for no Apply; when some are
// lost, or the subscription breaks, everything is looked at and told.
func TestWatchersWaitForNoApply(t *testing.T) {
	r, drv, pic := driftRig(t, "")
	settled(t, drv, pic)
	const many = 50
	r.drv.mu.Lock() // as an Apply holds it
	for i := range many {
		run(t, "ip", "-n", r.host, "link", "add", fmt.Sprintf("burst%d", i), "type", "veth", "peer", "name", fmt.Sprintf("tsrub%d", i))
	}
	h := r.drv.linkChanges
	waitFor(t, "all interfaces to be heard of", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.links) >= 2*many-2 // the first ones may have been taken before
	})
	r.drv.mu.Unlock()
	settled(t, drv, pic)

	h.mu.Lock() // no reader runs
	if err := h.sock.SetReceiveBufferSize(1, false); err != nil {
		t.Error(err)
	}
	for i := range many {
		run(t, "ip", "-n", r.host, "link", "del", fmt.Sprintf("burst%d", i))
	}
	run(t, "ip", "-n", r.host, "link", "del", DefaultDevice)
	h.mu.Unlock()
	eventOf(t, drv)
	if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	if n := r.drv.DriftRepairs()[driver.DriftDevice]; n != 1 {
		t.Errorf("the tunnel was put back %d times", n)
	}

	settled(t, drv, pic)
	h.mu.Lock()
	old := h.sock
	h.mu.Unlock()
	old.Close()
	if reason := eventOf(t, drv); reason != "messages about interfaces were lost" {
		t.Errorf("a broken subscription tells %q", reason)
	}
	settled(t, drv, pic)
	run(t, "ip", "-n", r.host, "link", "del", DefaultDevice)
	eventOf(t, drv)
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited too long for %s", what)
		case <-tick.C:
		}
	}
}

// TestKernelErrorsChangeNothing: when the kernel does not answer for a moment, tunnel, uplink
// and egress go on as they were.
func TestKernelErrorsChangeNothing(t *testing.T) {
	for _, way := range []string{attachClsact, ""} {
		t.Run("attach "+way, func(t *testing.T) {
			r, drv, pic := driftRig(t, way)
			pic.Networks = pic.Networks.Set(2, &desired.Network{ID: 2, Encap: model.EncapVLAN, Tag: 200})
			if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
				t.Fatal(err, conformance.Failed(rep))
			}
			before := r.drv.dp.settings.get()
			a, _ := pic.Ports.Get("cvna")
			remote := reference.Packet{
				Port: a.IfName, SrcMAC: a.MAC, DstMAC: model.MAC{2, 5, 0, 0, 0, 3}, Src: a.IPv4, Dst: netip.MustParseAddr("10.9.0.3"),
				Proto: model.ProtoUDP, SrcPort: 5000, DstPort: 5000,
			}
			r.drv.mu.Lock()
			r.drv.dp.devices.testFault = func() error { return unix.EINTR }
			r.drv.mu.Unlock()
			rep, err := drv.Apply(t.Context(), pic)
			if err != nil || len(rep.Problems) != 3 {
				t.Errorf("Apply() = %v, %v; want problems of tunnel, uplink and egress", rep.Problems, err)
			}
			after := r.drv.dp.settings.get()
			if after.Epoch = before.Epoch; after != before {
				t.Errorf("settings became %+v, were %+v", after, before)
			}
			if v := r.inject(t, remote); len(v.VTEPs) != 1 {
				t.Errorf("a packet to another host came out as %s", v)
			}
			back := remote
			back.Port, back.VTEP, back.Network = "", vtep2, 1
			back.SrcMAC, back.DstMAC, back.Src, back.Dst = remote.DstMAC, remote.SrcMAC, remote.Dst, remote.Src
			if v := r.inject(t, back); len(v.Ports) != 1 {
				t.Errorf("an answer of another host came out as %s", v)
			}
			// What is really gone is not kept.
			r.thread.do(func() {
				l, err := netlink.LinkByName(DefaultDevice)
				if err == nil {
					err = netlink.LinkDel(l)
				}
				if err != nil {
					t.Error(err)
				}
			})
			if _, err := drv.Apply(t.Context(), pic); err != nil {
				t.Error(err)
			}
			if s := r.drv.dp.settings.get(); s.VXLAN != 0 {
				t.Errorf("a tunnel that is gone stays in use: %+v", s)
			}
			r.drv.mu.Lock()
			r.drv.dp.devices.testFault = nil
			r.drv.mu.Unlock()
			if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
				t.Error(err, conformance.Failed(rep))
			}
		})
	}
}
