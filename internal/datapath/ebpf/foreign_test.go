package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/model"
)

// alien makes a program that returns ret; each goes to one place.
func alien(t testing.TB, ret int32) *ebpf.Program {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "MIT", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, ret), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	return prog
}

// surround puts somebody else's programs before and after ours on an
// interface, as TCX links, where the kernel has them, and as clsact filters. It
// returns what tells whether they are there.
func (r *rig) surround(t testing.TB, dev string, ret int32) func() []string {
	t.Helper()
	var links []link.Link
	t.Cleanup(func() {
		for _, l := range links {
			l.Close()
		}
	})
	var l netlink.Link
	parents := []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS}
	r.thread.do(func() {
		var err error
		if l, err = netlink.LinkByName(dev); err != nil {
			t.Error(err)
			return
		}
		index := l.Attrs().Index
		for _, in := range []bool{true, false} {
			for _, at := range []link.Anchor{link.Head(), link.Tail()} {
				k, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: alien(t, ret), Attach: attachType(in), Anchor: at})
				if errors.Is(err, ebpf.ErrNotSupported) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				links = append(links, k)
			}
		}
		err = netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}})
		if err != nil && !errors.Is(err, unix.EEXIST) {
			t.Error(err)
		}
		for _, parent := range parents {
			for _, priority := range []uint16{1, 0xfff0} {
				err := netlink.FilterAdd(&netlink.BpfFilter{
					FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: parent, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: priority},
					Fd:          alien(t, ret).FD(), Name: "alien", DirectAction: true,
				})
				if err != nil {
					t.Error(err)
				}
			}
		}
	})
	return func() []string {
		var seen []string
		for _, l := range links {
			seen = append(seen, fmt.Sprint("link on ", bpfattach.LinkedTo(l)))
		}
		r.thread.do(func() {
			for _, parent := range parents {
				filters, err := netlink.FilterList(l, parent)
				if err != nil {
					t.Error(err)
				}
				for _, f := range filters {
					if b, ok := f.(*netlink.BpfFilter); ok && b.Name != ourFilter.Name {
						seen = append(seen, fmt.Sprintf("filter %x %d %x %s %d", parent, b.Priority, b.Handle, b.Name, b.Id))
					}
				}
			}
		})
		return seen
	}
}

// foreign puts somebody else's programs on a port and on the uplink, another
// VXLAN device into the host, and another object beside the pins.
func (r *rig) foreign(t testing.TB) func(testing.TB) {
	t.Helper()
	var dev string
	for name := range r.wires {
		if strings.HasPrefix(name, "cv") {
			dev = name
		}
	}
	beside := filepath.Join(filepath.Dir(r.pins), "alien")
	if err := alien(t, tcNext).Pin(beside); err != nil {
		t.Fatal(err)
	}
	around := []func() []string{r.surround(t, dev, tcNext), r.surround(t, uplinkWire, tcNext)}
	run(t, "ip", "-n", r.host, "link", "add", "alien0", "type", "vxlan", "id", "77", "dstport", "9999", "remote", "192.168.7.9")
	state := func() []string {
		_, err := os.Stat(beside)
		return slices.Concat([]string{run(t, "ip", "-n", r.host, "-d", "link", "show", "alien0"), fmt.Sprint(err)}, around[0](), around[1]())
	}
	before := state()
	if want := 2 + 2*4; len(before) < want {
		t.Fatalf("only %d foreign objects stand, want %d: %v", len(before), want, before)
	}
	return func(t testing.TB) {
		t.Helper()
		if diff := cmp.Diff(before, state()); diff != "" {
			t.Errorf("foreign objects (-before +after):\n%s", diff)
		}
	}
}

// garbage leaves entries, a program on an interface, a directory and foreign
// things pinned where ours belong, as an agent of another time would have.
func (r *rig) garbage(t testing.TB) func(testing.TB) {
	t.Helper()
	d := r.drv
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(d.dp.obj.Ports.Put(uint32(99999), port{Net: 1, Encap: 1}))
	must(d.dp.obj.Hosts.Put(domainAddr{Domain: 77, IP: addr{1}}, endpointEntry{Identity: 5}))
	must(d.dp.obj.Stations.Put(stationKey{Net: 77, MAC: model.MAC{2, 1}}, station{Ifindex: 3}))
	must(d.dp.obj.Rules.Put(ruleKey{Instance: 123456, PortBits: anyProtocol}, rule{Weight: [2]uint32{0, actAllow << actionShift}}))
	must(d.dp.obj.Members.Put(memberKey{1, 0, 900}, station{Ifindex: 1}))
	must(d.dp.obj.Sets.Put(uint32(777), policySet{Instance: 123455}))
	r.addWire(t, "cvgarbage", model.MAC{2, 9})
	index := 0
	r.thread.do(func() {
		var err error
		index, err = ifindex("cvgarbage")
		must(err)
		if d.dp.att.way == attachClsact {
			_, err := d.dp.att.attach("cvgarbage", index, true, d.dp.obj.FromContainer)
			must(err)
			must(d.dp.obj.Ports.Put(uint32(index), port{Net: 1, Encap: 1}))
			return
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: d.dp.obj.FromContainer, Attach: attachType(true)})
		must(err)
		must(l.Pin(filepath.Join(r.pins, "links", "cvgarbage:in")))
		must(l.Close())
	})
	must(os.Mkdir(filepath.Join(r.pins, "links", "rubbish"), 0o700))
	return func(t testing.TB) {
		t.Helper()
		for _, name := range []string{"cvgarbage:in", "rubbish"} {
			if _, err := os.Stat(filepath.Join(r.pins, "links", name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still there: %v", name, err)
			}
		}
		r.thread.do(func() {
			filters, err := netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}}, netlink.HANDLE_MIN_INGRESS)
			if err == nil && len(filters) > 0 {
				t.Errorf("cvgarbage still has filters: %v", filters)
			}
		})
	}
}

// TestPolicyHoldsBetweenOtherPrograms: with somebody else's programs before and after
// ours, on either way of attaching, what is allowed passes and what is not does not.
func TestPolicyHoldsBetweenOtherPrograms(t *testing.T) {
	for _, way := range []string{"", attachClsact} {
		t.Run("attach "+way, func(t *testing.T) {
			r := newRig(t)
			r.attach = way
			pic, a, b := r.neighbours(t)
			for _, dev := range []string{a.IfName, b.IfName} {
				r.surround(t, dev, tcNext)
			}
			drv := r.open(t)
			defer drv.Close()
			if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
				t.Fatal(err, conformance.Failed(rep))
			}
			for port, want := range map[uint16]int{80: 1, 81: 0} {
				p := web(a, b, 4000, port)
				p.Port = a.IfName
				if got := r.inject(t, p); len(got.Ports) != want {
					t.Errorf("to port %d: %v, want %d ports", port, got, want)
				}
			}
		})
	}
}

// TestConflictingObjectsAreNamedAndLeftAlone: what somebody else has in our place is named, with what to do,
// and left alone; the rest works, and all of it does when it is gone.
func TestConflictingObjectsAreNamedAndLeftAlone(t *testing.T) {
	r := newRig(t)
	r.attach = attachClsact
	pic, a, b := r.neighbours(t)
	tc := func(args ...string) { t.Helper(); run(t, append([]string{"tc", "-n", r.host}, args...)...) }
	tc("qdisc", "add", "dev", b.IfName, "ingress")
	var squatter *netlink.BpfFilter
	for _, c := range []struct {
		name         string
		begin, end   func()
		port, object string // that is named
		says         []string
	}{
		{
			"filter in our place",
			func() {
				tc("qdisc", "add", "dev", a.IfName, "clsact")
				r.thread.do(func() {
					index, err := ifindex(a.IfName)
					squatter = &netlink.BpfFilter{
						FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: ourFilter.Handle, Protocol: unix.ETH_P_ALL, Priority: ourFilter.Priority},
						Fd:          alien(t, tcNext).FD(), Name: "alien", DirectAction: true,
					}
					if err := errors.Join(err, netlink.FilterAdd(squatter)); err != nil {
						t.Error(err)
					}
				})
			},
			func() {
				r.thread.do(func() {
					if err := netlink.FilterDel(squatter); err != nil {
						t.Error(err)
					}
				})
			},
			a.IfName, "",
			[]string{a.IfName, "bpf filter that is not Contiv's", "tc filter del"},
		},
		{
			"ingress qdisc",
			func() {},
			func() { tc("qdisc", "del", "dev", b.IfName, "ingress") },
			b.IfName, "",
			[]string{b.IfName, "ingress qdisc that is not Contiv's", "tc qdisc del"},
		},
		{
			"VXLAN device on our port",
			func() {
				run(t, "ip", "-n", r.host, "link", "add", "alien1", "type", "vxlan", "external", "dstport", strconv.Itoa(DefaultVXLANPort))
				run(t, "ip", "-n", r.host, "link", "set", "alien1", "up")
			},
			func() { run(t, "ip", "-n", r.host, "link", "del", "alien1") },
			"", "tunnel " + DefaultDevice,
			[]string{"UDP port 4789", "VXLAN device alien1", "--vxlan-port"},
		},
		{
			"device of our name",
			func() {
				run(t, "ip", "-n", r.host, "link", "add", DefaultDevice, "type", "veth", "peer", "name", "alien2")
			},
			func() { run(t, "ip", "-n", r.host, "link", "del", "alien2") },
			"", "tunnel " + DefaultDevice,
			[]string{DefaultDevice, "not Contiv's"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.pins = filepath.Join(filepath.Dir(r.pins), "host"+fmt.Sprint(count.Add(1)))
			c.begin()
			drv := r.open(t)
			rep, err := drv.Apply(t.Context(), pic)
			if err != nil {
				t.Fatal(err)
			}
			said := rep.Ports.Err(c.port)
			for _, p := range rep.Problems {
				if p.Object == c.object {
					said = p.Err
				}
			}
			for _, want := range c.says {
				if said == nil || !errors.Is(said, model.ErrConflict) || !strings.Contains(said.Error(), want) {
					t.Errorf("%v; want a conflict that says %q (%+v)", said, want, rep)
				}
			}
			c.end() // fails if it is not there any more
			if rep, err := drv.Apply(t.Context(), pic); err != nil || rep.Ports.Err(c.port) != nil || len(rep.Problems) > 0 {
				t.Errorf("without it: Apply() = %v, %+v", err, rep)
			}
			if err := drv.Close(); err != nil {
				t.Error(err)
			}
			var gone error
			r.thread.do(func() { gone = Leftovers(r.config(t)).Remove(t.Context()) })
			if gone != nil {
				t.Error(gone)
			}
		})
	}
}

// TestUnmanagedPinsStay puts everything into the pin directory that does not belong
// there: it is taken over, what lies beside stays, and where the directory
// itself cannot be, the error names it.
func TestUnmanagedPinsStay(t *testing.T) {
	r := newRig(t)
	mapOf := func(kind ebpf.MapType, key, value uint32) *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: kind, KeySize: key, ValueSize: value, MaxEntries: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	maps, links := filepath.Join(r.pins, "maps"), filepath.Join(r.pins, "links")
	must(os.MkdirAll(maps, 0o700))
	must(os.MkdirAll(links, 0o700))
	must(mapOf(ebpf.Array, 4, 8).Pin(filepath.Join(maps, "conns"))) // of another type
	must(mapOf(ebpf.Hash, 4, 12).Pin(filepath.Join(maps, "ports"))) // of another layout
	must(alien(t, tcNext).Pin(filepath.Join(maps, "rules")))        // no map
	must(os.MkdirAll(filepath.Join(maps, "hosts", "deep"), 0o700))  // a directory
	must(os.Symlink("/nowhere", filepath.Join(maps, "tags")))
	must(alien(t, tcNext).Pin(filepath.Join(links, "cv1:in"))) // no link
	must(mapOf(ebpf.Array, 4, 8).Pin(filepath.Join(links, "strange")))
	beside := mapOf(ebpf.Array, 4, 8)
	must(beside.Pin(filepath.Join(r.pins, "beside")))
	pic, a, b := r.neighbours(t)
	drv := r.open(t)
	if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	p := web(a, b, 4000, 80)
	p.Port = a.IfName
	if got := r.inject(t, p); len(got.Ports) != 1 {
		t.Errorf("%v, want it to arrive", got)
	}
	must(drv.Close())
	kept, err := ebpf.LoadPinnedMap(filepath.Join(r.pins, "beside"), nil)
	must(err)
	must(kept.Close())

	r.pins = filepath.Join(filepath.Dir(r.pins), "taken")
	must(alien(t, tcNext).Pin(r.pins)) // where the directory should be
	r.thread.do(func() { _, err = open(t.Context(), r.config(t)) })
	if err == nil || !strings.Contains(err.Error(), r.pins) {
		t.Errorf("open() = %v, want an error that names %s", err, r.pins)
	}
}
