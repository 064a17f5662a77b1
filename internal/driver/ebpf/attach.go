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
)

// attacher holds programs to interfaces, in one of two ways.
type attacher struct {
	dir   string // pinned links
	way   string
	links map[string]link.Link // by pin name; TCX only
}

// haveTCX tells whether the kernel has TCX links (6.6).
func haveTCX(prog *ebpf.Program) bool {
	l, err := link.AttachTCX(link.TCXOptions{Interface: 1, Program: prog, Attach: ebpf.AttachTCXIngress})
	if err == nil { // the loopback has index 1 in every namespace
		_ = l.Close()
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

// open takes over the pinned links: each gets the new program in one step.
// Links of interfaces that are gone, and what is no link, go.
func (a *attacher) open(update func(name string) *ebpf.Program) error {
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
		prog := update(e.Name())
		if ifindexOf(l) == 0 || prog == nil || l.Update(prog) != nil {
			if err := errors.Join(l.Unpin(), l.Close()); err != nil {
				return fmt.Errorf("ebpf driver: remove %s: %w", path, err)
			}
			continue
		}
		a.links[e.Name()] = l
	}
	return nil
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
	name := pinName(ifname, ingress)
	if l := a.links[name]; l != nil {
		if ifindexOf(l) == ifindex {
			return false, nil
		}
		delete(a.links, name)
		if err := errors.Join(l.Unpin(), l.Close()); err != nil {
			return false, fmt.Errorf("interface %s: %w", ifname, err)
		}
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: attachType(ingress)})
	if err != nil {
		return false, fmt.Errorf("interface %s: attach: %w", ifname, err)
	}
	if err := l.Pin(filepath.Join(a.dir, name)); err != nil {
		return false, errors.Join(fmt.Errorf("interface %s: pin: %w", ifname, err), l.Close())
	}
	a.links[name] = l
	return true, nil
}

func (a *attacher) filter(ifname string, ifindex int, ingress bool, prog *ebpf.Program) (bool, error) {
	parent := uint32(netlink.HANDLE_MIN_EGRESS)
	if ingress {
		parent = netlink.HANDLE_MIN_INGRESS
	}
	info, err := prog.Info()
	if err != nil {
		return false, fmt.Errorf("interface %s: %w", ifname, err)
	}
	id, _ := info.ID()
	l := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex, Name: ifname}}
	have, err := netlink.FilterList(l, parent)
	if err == nil {
		for _, f := range have {
			if b, ok := f.(*netlink.BpfFilter); ok && b.Priority == filterPriority && b.Handle == filterHandle && b.Id == int(id) {
				return false, nil
			}
		}
	}
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return false, fmt.Errorf("interface %s: clsact: %w", ifname, err)
	}
	if err := netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex, Parent: parent, Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: filterPriority,
		},
		Fd: prog.FD(), Name: "contiv", DirectAction: true,
	}); err != nil {
		return false, fmt.Errorf("interface %s: filter: %w", ifname, err)
	}
	return true, nil
}

// detach takes our program off an interface, whether it still exists or not.
func (a *attacher) detach(ifname string, ifindex int) error {
	var errs []error
	for _, ingress := range []bool{true, false} {
		name := pinName(ifname, ingress)
		if l := a.links[name]; l != nil {
			delete(a.links, name)
			errs = append(errs, l.Unpin(), l.Close())
		}
		if a.way != attachClsact || ifindex == 0 {
			continue
		}
		parent := uint32(netlink.HANDLE_MIN_EGRESS)
		if ingress {
			parent = netlink.HANDLE_MIN_INGRESS
		}
		err := netlink.FilterDel(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex, Parent: parent, Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: filterPriority,
		}})
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
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

// ensureTunnel makes the VXLAN device, which carries every network: the
// program says the VNI and the host of each packet. It is ours by its alias.
func ensureTunnel(name, alias string, udpPort uint16) (index int, made bool, err error) {
	l, err := netlink.LinkByName(name)
	if err == nil {
		v, ok := l.(*netlink.Vxlan)
		if !ok || l.Attrs().Alias != alias {
			return 0, false, model.Errorf(model.ErrConflict, "interface %s exists and is not ours (its alias is %q, not %q)", name, l.Attrs().Alias, alias)
		}
		if v.FlowBased && v.Port == int(udpPort) {
			if l.Attrs().Flags&1 == 0 {
				err = netlink.LinkSetUp(l)
			}
			return l.Attrs().Index, false, err
		}
		if err := netlink.LinkDel(l); err != nil {
			return 0, false, fmt.Errorf("interface %s: replace: %w", name, err)
		}
	} else if !errors.As(err, &netlink.LinkNotFoundError{}) {
		return 0, false, fmt.Errorf("interface %s: %w", name, err)
	}
	v := &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: name}, FlowBased: true, Port: int(udpPort)}
	if err := netlink.LinkAdd(v); err != nil {
		return 0, false, fmt.Errorf("interface %s: create (UDP port %d): %w", name, udpPort, err)
	}
	if l, err = netlink.LinkByName(name); err == nil {
		if err = netlink.LinkSetAlias(l, alias); err == nil {
			err = netlink.LinkSetUp(l)
		}
	}
	if err != nil {
		return 0, false, errors.Join(fmt.Errorf("interface %s: %w", name, err), netlink.LinkDel(v))
	}
	return l.Attrs().Index, true, nil
}
