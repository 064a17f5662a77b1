package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Ways to attach programs.
const (
	attachTCX    = "tcx"
	attachClsact = "clsact"
)

// Our filters' place under clsact; those of others stay where they are.
const (
	filterPriority = 0xc017
	filterHandle   = 0xc0
	filterName     = "contiv"
)

// attacher holds programs to interfaces, in one of two ways.
type attacher struct {
	dir     string               // pinned links
	way     string               // of all but ports: the tunnel, the uplink, the underlay, the host's side
	links   map[string]link.Link // by pin name; TCX only
	ids     map[*ebpf.Program]ebpf.ProgramID
	wanted  map[string]bool // since begin, interfaces that keep their programs
	repairs repairs
}

// begin resets the state of the last Apply.
func (a *attacher) begin() { a.wanted = map[string]bool{} }

// id is a program's, which the kernel is asked for once: cilium/ebpf has it tell all
// of a program with it, which takes a third of a millisecond.
func (a *attacher) id(prog *ebpf.Program) (ebpf.ProgramID, error) {
	if id, known := a.ids[prog]; known {
		return id, nil
	}
	info, err := prog.Info()
	if err != nil {
		return 0, err
	}
	if a.ids == nil {
		a.ids = map[*ebpf.Program]ebpf.ProgramID{}
	}
	id, _ := info.ID()
	a.ids[prog] = id
	return id, nil
}

// haveTCX reports whether the kernel has TCX links (6.6).
func haveTCX(prog *ebpf.Program) bool {
	l, err := link.AttachTCX(link.TCXOptions{Interface: 1, Program: prog, Attach: ebpf.AttachTCXIngress})
	if err == nil { // the loopback has index 1 in every namespace
		_ = removeLink(l)
	}
	return err == nil
}

func attachType(ingress bool) ebpf.AttachType {
	if ingress {
		return ebpf.AttachTCXIngress
	}
	return ebpf.AttachTCXEgress
}

func pinName(ifname string, ingress bool) string {
	if ingress {
		return ifname + ":in"
	}
	return ifname + ":out"
}

// open takes over the pinned links: each gets the new program in one step. Links of
// interfaces that are gone, and pins that are no links, are removed. update gets the pin's
// name and whether the link carries an uplink's program.
func (a *attacher) open(update func(name string, uplink bool) *ebpf.Program) error {
	a.links = map[string]link.Link{}
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return fmt.Errorf("ebpf driver: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(a.dir, e.Name())
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("ebpf driver: remove %s: %w", path, err)
			}
			continue
		}
		prog := update(e.Name(), programOf(l) == uplinkProgram)
		if ifindexOf(l) == 0 || prog == nil || l.Update(prog) != nil {
			if err := removeLink(l); err != nil {
				return fmt.Errorf("ebpf driver: remove %s: %w", path, err)
			}
			continue
		}
		a.links[e.Name()] = l
	}
	return nil
}

// uplinkProgram is what the kernel calls from_uplink.
const uplinkProgram = "from_uplink"

// programOf is what the kernel calls a link's program; empty = it does not tell.
func programOf(l link.Link) string {
	info, err := l.Info()
	if err != nil {
		return ""
	}
	prog, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		return ""
	}
	about, err := prog.Info()
	if err := errors.Join(err, prog.Close()); err != nil {
		return ""
	}
	return about.Name
}

func ifindexOf(l link.Link) int {
	info, err := l.Info()
	if err != nil || info.TCX() == nil {
		return 0
	}
	return int(info.TCX().Ifindex)
}

// attach makes sure that prog runs on an interface; it returns whether
// something was to be done.
func (a *attacher) attach(ifname string, ifindex int, ingress bool, prog *ebpf.Program) (bool, error) {
	if a.way == attachClsact {
		return a.filter(ifname, ifindex, ingress, prog)
	}
	return a.link(pinName(ifname, ingress), ifname, ifindex, ingress, prog)
}

// attachPort is attach for a port's interface, by a filter on every kernel: a
// TCX link waits for all processors, with the lock of all interfaces held
// (docs/adr/0005). The link that a lasting port has for its way in stays
// (lasting.go); what an earlier version had for egress goes once the
// filter is there.
func (a *attacher) attachPort(ifname string, ifindex int, ingress bool, prog *ebpf.Program) (bool, error) {
	done, err := a.filter(ifname, ifindex, ingress, prog)
	name := pinName(ifname, ingress)
	lasts := ingress && a.linked(name, ifindex)
	if err == nil && !lasts {
		err = a.unlink(name)
	}
	return done, err
}

// linked reports whether there is a link under the name of a pin, on that interface.
func (a *attacher) linked(name string, ifindex int) bool {
	l := a.links[name]
	return l != nil && ifindexOf(l) == ifindex
}

// unlink removes a pinned link, if there is one of that name.
func (a *attacher) unlink(name string) error {
	l := a.links[name]
	if l == nil {
		return nil
	}
	delete(a.links, name)
	return removeLink(l)
}

// removeLink takes a link's program off its interface, then removes its pin. To
// close it would not do: the program stays, and cannot be attached again, as long
// as anybody has the link open, a child between fork and exec for one.
func removeLink(l link.Link) error {
	var errs []error
	if d, ok := l.(interface{ Detach() error }); ok {
		errs = append(errs, d.Detach())
	}
	return errors.Join(append(errs, l.Unpin(), l.Close())...)
}

// link is attach by TCX, under the name of a pin.
func (a *attacher) link(name, ifname string, ifindex int, ingress bool, prog *ebpf.Program) (bool, error) {
	if a.linked(name, ifindex) {
		return false, nil
	}
	if err := a.unlink(name); err != nil {
		return false, fmt.Errorf("interface %s: %w", ifname, err)
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: attachType(ingress)})
	if err != nil {
		return false, fmt.Errorf("interface %s: attach: %w", ifname, err)
	}
	if err := a.pin(name, ifname, l); err != nil {
		return false, err
	}
	return true, nil
}

// pin pins a link, so that it outlives this process; one that cannot be pinned
// is taken off.
func (a *attacher) pin(name, ifname string, l link.Link) error {
	if err := l.Pin(filepath.Join(a.dir, name)); err != nil {
		return errors.Join(fmt.Errorf("interface %s: pin: %w", ifname, err), removeLink(l))
	}
	a.links[name] = l
	return nil
}

func filterParent(ingress bool) uint32 {
	if ingress {
		return netlink.HANDLE_MIN_INGRESS
	}
	return netlink.HANDLE_MIN_EGRESS
}

// ourFilter finds our filter on an interface, nil when there is none; in our
// place may also be somebody else's.
func ourFilter(ifindex int, ingress bool) (*netlink.BpfFilter, error) {
	have, err := netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}, filterParent(ingress))
	if err != nil {
		return nil, err
	}
	for _, f := range have {
		if f.Attrs().Priority != filterPriority {
			continue
		}
		b, ok := f.(*netlink.BpfFilter)
		if !ok || b.Handle != filterHandle || b.Name != filterName {
			return nil, model.Errorf(model.ErrConflict, "a %s filter that is not Contiv's has priority %d; delete it (tc filter del)", f.Type(), filterPriority)
		}
		return b, nil
	}
	return nil, nil
}

func (a *attacher) filter(ifname string, ifindex int, ingress bool, prog *ebpf.Program) (bool, error) {
	id, err := a.id(prog)
	if err != nil {
		return false, fmt.Errorf("interface %s: %w", ifname, err)
	}
	have, err := ourFilter(ifindex, ingress)
	switch {
	case errors.Is(err, model.ErrConflict):
		return false, fmt.Errorf("interface %s: %w", ifname, err)
	case err == nil && have != nil && have.Id == int(id):
		return false, nil
	}
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	err = netlink.QdiscAdd(qdisc)
	if errors.Is(err, unix.EEXIST) && !ingress && hasIngressQdisc(ifindex) { // it would take our filter, for what comes in
		return false, model.Errorf(model.ErrConflict, "interface %s has an ingress qdisc that is not Contiv's, so no program can be attached to its egress; delete it (tc qdisc del dev %[1]s ingress)", ifname)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return false, fmt.Errorf("interface %s: clsact: %w", ifname, err)
	}
	if err := netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex, Parent: filterParent(ingress), Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: filterPriority,
		},
		Fd: prog.FD(), Name: filterName, DirectAction: true,
	}); err != nil {
		return false, fmt.Errorf("interface %s: filter: %w", ifname, err)
	}
	return true, nil
}

// hasIngressQdisc reports whether the place of clsact is taken by its
// predecessor, which knows no egress.
func hasIngressQdisc(ifindex int) bool {
	all, err := netlink.QdiscList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}})
	return err == nil && slices.ContainsFunc(all, func(q netlink.Qdisc) bool { return q.Type() == "ingress" })
}

// detach takes our program off an interface, whether it still exists or not.
func (a *attacher) detach(ifname string, ifindex int) error {
	var errs []error
	for _, name := range []string{pinName(ifname, true), pinName(ifname, false), underPin(ifname)} {
		errs = append(errs, a.unlink(name))
	}
	for _, ingress := range []bool{true, false} {
		if ifindex == 0 {
			continue
		}
		f, err := ourFilter(ifindex, ingress)
		if err != nil || f == nil { // not ours, or the interface is gone
			continue
		}
		if err := netlink.FilterDel(f); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("interface %s: detach: %w", ifname, err)
	}
	return nil
}

// attached lists the interfaces that pinned links are for.
func (a *attacher) attached() map[string]bool {
	out := map[string]bool{}
	for name := range a.links {
		ifname, _, _ := strings.Cut(name, ":")
		out[ifname] = true
	}
	return out
}

func (a *attacher) close() error {
	var errs []error
	for _, l := range a.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// ifindex returns the index of an interface, 0 when there is none.
func ifindex(name string) (int, error) {
	l, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	return l.Attrs().Index, nil
}
