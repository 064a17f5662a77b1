package ovs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// A switch in user space does not see marks of packets. So a filter where the host's
// interface sends gives each frame its source: pipeline.HostSocketMAC to what has the mark, the
// interface's own address to all else, whatever was there. It goes with the interface.

const (
	ownFilter = "contiv-own"
	// Its place under clsact; filters of others stay where they are.
	ownPriority = 0xc017
	ownHandle   = 0xc1
	// markOffset is the offset of mark in struct __sk_buff (linux/bpf.h).
	markOffset = 8
	// sourceOffset is the offset of the source in an Ethernet header.
	sourceOffset = 6
)

// ownMark is the filter that marks packets of the host's own sockets. Driver.mu guards it.
type ownMark struct {
	*env
	filterIndex int // the index of the host's interface that shows what its own sockets send; -1 = not known
}

// ensureFilter makes sure of the filter on the host's interface.
func (o *ownMark) ensureFilter(want desired.Host) []driver.Problem {
	if o.cfg.Datapath != "netdev" || want.HostNAT == nil {
		return nil
	}
	err := func() error {
		link, err := netlink.LinkByName(want.HostNAT.Interface)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil // the switch is about to make it, and tells
		}
		if err != nil {
			return err
		}
		have, err := netlink.FilterList(link, netlink.HANDLE_MIN_EGRESS)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
		at := slices.IndexFunc(have, isOurFilter)
		prog, tag, err := loadOwn()
		if err != nil {
			return err
		}
		defer func() { _ = prog.Close() }() // the filter holds it
		if at < 0 || have[at].(*netlink.BpfFilter).Tag != tag {
			if o.filterIndex == link.Attrs().Index {
				o.drift.Add(o.cfg.Log, driver.DriftProgram, want.HostNAT.Interface, 1)
			}
			if err := attachOwn(link.Attrs().Index, prog); err != nil {
				return err
			}
		}
		o.filterIndex = link.Attrs().Index
		return nil
	}()
	if err == nil {
		return nil
	}
	return []driver.Problem{{Object: "sockets of this host", Err: model.Errorf(model.ErrUnavailable,
		"tell what this host's own sockets send by %s from what it forwards (policies are asked about both, kubelet's probes too): %w", want.HostNAT.Interface, err)}}
}

// isOurFilter reports whether a filter is of our name where ours stands. Its program may be
// another one: an earlier version's, or a stranger's.
func isOurFilter(f netlink.Filter) bool {
	b, ok := f.(*netlink.BpfFilter)
	return ok && b.Name == ownFilter && b.Priority == ownPriority && b.Handle == ownHandle
}

// loadOwn loads the filter's program, and tells by which tag, the digest of its
// instructions, the kernel knows it.
func loadOwn() (*ebpf.Program, string, error) {
	_ = rlimit.RemoveMemlock() // loading says what is missing
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "contiv_own", Type: ebpf.SchedCLS, Instructions: ownProgram(), License: "Apache-2.0"})
	if err != nil {
		return nil, "", fmt.Errorf("load a filter: %w", err)
	}
	info, err := prog.Info()
	if err != nil {
		_ = prog.Close()
		return nil, "", fmt.Errorf("look at a filter: %w", err)
	}
	return prog, info.Tag, nil
}

func attachOwn(index int, prog *ebpf.Program) error {
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add qdisc clsact: %w", err)
	}
	if err := netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: ownHandle, Priority: ownPriority, Protocol: unix.ETH_P_ALL,
		},
		Fd: prog.FD(), Name: ownFilter, DirectAction: true,
	}); err != nil {
		return fmt.Errorf("add a filter: %w", err)
	}
	return nil
}

// ownProgram writes the source of a frame by its mark, and lets it on.
func ownProgram() asm.Instructions {
	put := func(mac model.MAC) asm.Instructions {
		return asm.Instructions{
			asm.StoreImm(asm.RFP, -8, int64(int32(binary.NativeEndian.Uint32(mac[:4]))), asm.Word), //nolint:gosec // the same bits
			asm.StoreImm(asm.RFP, -4, int64(binary.NativeEndian.Uint16(mac[4:])), asm.Half),
		}
	}
	mark := uint32(desired.OwnMark)
	out := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R1, markOffset, asm.Word),
	}
	out = append(out, put(desired.RouterMAC)...)
	out = append(out, asm.JNE.Imm32(asm.R7, int32(mark), "write")) //nolint:gosec // the same bits
	out = append(out, put(pipeline.HostSocketMAC)...)
	return append(out,
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("write"),
		asm.Mov.Imm(asm.R2, sourceOffset),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, -8),
		asm.Mov.Imm(asm.R4, int32(len(model.MAC{}))),
		asm.Mov.Imm(asm.R5, 0),
		asm.FnSkbStoreBytes.Call(),
		asm.Mov.Imm(asm.R0, 0), // TC_ACT_OK
		asm.Return(),
	)
}
