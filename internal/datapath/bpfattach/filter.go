package bpfattach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Filter is a place for a program under clsact; filters of others stay where they are.
type Filter struct {
	Priority uint16
	Handle   uint32
	Name     string
}

// Parent is where filters of one direction are.
func Parent(ingress bool) uint32 {
	if ingress {
		return netlink.HANDLE_MIN_INGRESS
	}
	return netlink.HANDLE_MIN_EGRESS
}

// Find finds the filter on an interface, nil when there is none; in its place may also be
// somebody else's, which is an error of kind model.ErrConflict.
func (f Filter) Find(ifindex int, ingress bool) (*netlink.BpfFilter, error) {
	have, err := netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}, Parent(ingress))
	if err != nil {
		return nil, err
	}
	for _, x := range have {
		if x.Attrs().Priority != f.Priority {
			continue
		}
		b, ok := x.(*netlink.BpfFilter)
		if !ok || b.Handle != f.Handle || b.Name != f.Name {
			return nil, model.Errorf(model.ErrConflict, "a %s filter that is not Contiv's has priority %d; delete it (tc filter del)", x.Type(), f.Priority)
		}
		return b, nil
	}
	return nil, nil
}

// Ensure makes sure that a program runs on an interface; it returns whether something was to
// be done. id is the program's.
func (f Filter) Ensure(ifname string, ifindex int, ingress bool, prog *ebpf.Program, id ebpf.ProgramID) (bool, error) {
	have, err := f.Find(ifindex, ingress)
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
	if errors.Is(err, unix.EEXIST) && !ingress && HasIngressQdisc(ifindex) { // it would take our filter, for what comes in
		return false, model.Errorf(model.ErrConflict, "interface %s has an ingress qdisc that is not Contiv's, so no program can be attached to its egress; delete it (tc qdisc del dev %[1]s ingress)", ifname)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return false, fmt.Errorf("interface %s: clsact: %w", ifname, err)
	}
	if err := netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex, Parent: Parent(ingress), Handle: f.Handle, Protocol: unix.ETH_P_ALL, Priority: f.Priority,
		},
		Fd: prog.FD(), Name: f.Name, DirectAction: true,
	}); err != nil {
		return false, fmt.Errorf("interface %s: filter: %w", ifname, err)
	}
	return true, nil
}

// Remove takes the filter off an interface, if it is there.
func (f Filter) Remove(ifindex int, ingress bool) error {
	have, err := f.Find(ifindex, ingress)
	if err != nil || have == nil { // not ours, or the interface is gone
		return nil //nolint:nilerr // see above
	}
	if err := netlink.FilterDel(have); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// HasIngressQdisc reports whether the place of clsact is taken by its predecessor, which
// knows no egress.
func HasIngressQdisc(ifindex int) bool {
	all, err := netlink.QdiscList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}})
	return err == nil && slices.ContainsFunc(all, func(q netlink.Qdisc) bool { return q.Type() == "ingress" })
}
