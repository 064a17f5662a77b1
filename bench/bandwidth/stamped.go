package main

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/bench/rig"
)

// What the program uses of the kernel's struct __sk_buff, and answers.
const (
	offTstamp, offWireLen = 152, 160
	actOK, actShot        = 0, 2
	latest                = 18_000_000 // ns that a packet waits at most, as at low rates in a token bucket
)

// stamper is a program that gives each packet the time of its departure at a rate of bytes
// of Ethernet, and drops what would wait too long: fq knows no such bound.
func stamper(mbit float64) (*ebpf.Program, error) {
	next, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	defer func() { _ = next.Close() }() // the program holds it
	perByte := 1e9 / (mbit * 1e6 / 8 * 1514 / 1500)
	return ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.FnKtimeGetNs.Call(),
		asm.LoadMapValue(asm.R8, next.FD(), 0),
		asm.LoadMem(asm.R1, asm.R8, 0, asm.DWord),
		asm.JGE.Reg(asm.R1, asm.R0, "later"),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Add.Imm(asm.R0, latest).WithSymbol("later"),
		asm.JGT.Reg(asm.R1, asm.R0, "drop"),
		asm.StoreMem(asm.R6, offTstamp, asm.R1, asm.DWord),
		asm.LoadMem(asm.R2, asm.R6, offWireLen, asm.Word),
		asm.LoadImm(asm.R3, int64(perByte*(1<<16)), asm.DWord),
		asm.Mul.Reg(asm.R2, asm.R3),
		asm.RSh.Imm(asm.R2, 16),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.StoreMem(asm.R8, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, actOK),
		asm.Return(),
		asm.Mov.Imm(asm.R0, actShot).WithSymbol("drop"),
		asm.Return(),
	}})
}

// stamped has fq in the place of each token bucket, and a stamper before it. undo takes
// both away; the driver does what it does where somebody took its bucket.
func (r host) stamped(mbit float64) (undo func() error, err error) {
	var undos []func() error
	undo = func() error {
		return rig.Within(r.Host(), func() (err error) {
			for _, u := range undos {
				err = errors.Join(err, u())
			}
			return err
		})
	}
	return undo, rig.Within(r.Host(), func() error {
		all, err := netlink.QdiscList(nil)
		if err != nil {
			return err
		}
		for _, q := range all {
			at := q.Attrs()
			if q.Type() != "tbf" || at.Parent != netlink.HANDLE_ROOT {
				continue
			}
			program, err := stamper(mbit)
			if err != nil {
				return fmt.Errorf("load the program that stamps: %w", err)
			}
			defer func() { _ = program.Close() }() // the filter holds it
			clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: at.LinkIndex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
			if err := netlink.QdiscAdd(clsact); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("add clsact: %w", err)
			}
			filter := &netlink.BpfFilter{
				FilterAttrs: netlink.FilterAttrs{LinkIndex: at.LinkIndex, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Priority: 999, Protocol: unix.ETH_P_ALL},
				Fd:          program.FD(), Name: "stamp", DirectAction: true,
			}
			fq := netlink.NewFq(netlink.QdiscAttrs{LinkIndex: at.LinkIndex, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(0xed7, 0)})
			if err := errors.Join(netlink.FilterAdd(filter), netlink.QdiscReplace(fq)); err != nil {
				return fmt.Errorf("stamp, and fq: %w", err)
			}
			undos = append(undos, func() error { return errors.Join(netlink.FilterDel(filter), netlink.QdiscDel(fq)) })
		}
		if len(undos) == 0 {
			return errors.New("no token bucket is there")
		}
		return nil
	})
}
