package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
)

// Ways to attach programs.
const (
	attachTCX    = "tcx"
	attachClsact = "clsact"
)

// ourFilter is the programs' place under clsact.
var ourFilter = bpfattach.Filter{Priority: 0xc017, Handle: 0xc0, Name: "contiv"}

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
		if bpfattach.LinkedTo(l) == 0 || prog == nil || l.Update(prog) != nil {
			if err := bpfattach.RemoveLink(l); err != nil {
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
	return l != nil && bpfattach.LinkedTo(l) == ifindex
}

// unlink removes a pinned link, if there is one of that name.
func (a *attacher) unlink(name string) error {
	l := a.links[name]
	if l == nil {
		return nil
	}
	delete(a.links, name)
	return bpfattach.RemoveLink(l)
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
	if err := bpfattach.PinLink(l, filepath.Join(a.dir, name)); err != nil {
		return fmt.Errorf("interface %s: %w", ifname, err)
	}
	a.links[name] = l
	return nil
}

func (a *attacher) filter(ifname string, ifindex int, ingress bool, prog *ebpf.Program) (bool, error) {
	id, err := a.id(prog)
	if err != nil {
		return false, fmt.Errorf("interface %s: %w", ifname, err)
	}
	return ourFilter.Ensure(ifname, ifindex, ingress, prog, id)
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
		errs = append(errs, ourFilter.Remove(ifindex, ingress))
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
