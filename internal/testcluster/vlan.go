package testcluster

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
)

// JoinVLAN links a namespace to a VLAN of the hosts' trunk as machine n of it, 200 to 223:
// what its link eth1 sends and gets there has the tag, and no tag here. Two programs see to
// that: a kernel may have no VLAN devices. eth1 has no address.
func (l *Network) JoinVLAN(ns *Namespace, n int, tag uint16) error {
	mtu := l.st.Config.MTU
	if err := l.plugTrunk(ns, n); err != nil {
		return err
	}
	return ns.Do(func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "untagged0", MTU: mtu}, PeerName: "eth1"}); err != nil {
			return fmt.Errorf("add veth eth1: %w", err)
		}
		return errors.Join(
			setUp("trunk0"), setUp("untagged0"), setUp("eth1"), txChecksumOff("eth1"),
			redirect("trunk0", "untagged0", asm.Instructions{
				asm.LoadMem(asm.R2, asm.R6, 20, asm.Word), // __sk_buff.vlan_present
				asm.LoadMem(asm.R3, asm.R6, 24, asm.Word), // __sk_buff.vlan_tci
				asm.And.Imm(asm.R3, 0xfff),
				asm.Mov.Imm(asm.R0, 2), // TC_ACT_SHOT
				asm.JNE.Imm(asm.R2, 0, "tagged"),
				asm.Return(),
				asm.JEq.Imm(asm.R3, int32(tag), "of the VLAN").WithSymbol("tagged"),
				asm.Return(),
				asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("of the VLAN"),
				asm.FnSkbVlanPop.Call(),
			}),
			redirect("untagged0", "trunk0", asm.Instructions{
				asm.Mov.Reg(asm.R1, asm.R6),
				asm.Mov.Imm(asm.R2, 0x0081), // ETH_P_8021Q in network order
				asm.Mov.Imm(asm.R3, int32(tag)),
				asm.FnSkbVlanPush.Call(),
			}),
		)
	})
}

// plugTrunk links a namespace to the hosts' trunk as machine n of it; its link is trunk0.
func (l *Network) plugTrunk(ns *Namespace, n int) error {
	port := fmt.Sprintf("outside%dv", n)
	return l.Fabric.Do(func() error {
		return errors.Join(plug("trunk", port, l.st.Config.MTU, ns, "trunk0"), l.learnAt(port))
	})
}

// JoinLeaf makes a namespace, as machine n of the hosts' trunk, act as a leaf of an ACI
// fabric does with two endpoint groups of one bridge domain and a contract between them:
// frames with the VLAN of one of them go back with the other's. While its link trunk0 is
// down there is no contract.
func (l *Network) JoinLeaf(ns *Namespace, n int, a, b uint16) error {
	if err := l.plugTrunk(ns, n); err != nil {
		return err
	}
	return ns.Do(func() error {
		return errors.Join(setUp("trunk0"), redirect("trunk0", "trunk0", asm.Instructions{
			asm.LoadMem(asm.R2, asm.R6, 20, asm.Word), // __sk_buff.vlan_present
			asm.LoadMem(asm.R3, asm.R6, 24, asm.Word), // __sk_buff.vlan_tci
			asm.And.Imm(asm.R3, 0xfff),
			asm.Mov.Imm(asm.R0, 2), // TC_ACT_SHOT
			asm.JNE.Imm(asm.R2, 0, "tagged"),
			asm.Return(),
			asm.Mov.Imm(asm.R7, int32(b)).WithSymbol("tagged"),
			asm.JEq.Imm(asm.R3, int32(a), "known"),
			asm.Mov.Imm(asm.R7, int32(a)),
			asm.JEq.Imm(asm.R3, int32(b), "known"),
			asm.Return(),
			asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("known"),
			asm.FnSkbVlanPop.Call(),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Imm(asm.R2, 0x0081), // ETH_P_8021Q in network order
			asm.Mov.Reg(asm.R3, asm.R7),
			asm.FnSkbVlanPush.Call(),
		}))
	})
}

// redirect has what comes in by one link of the thread's namespace go out by another, once
// instructions, which find it in R6, have changed it.
func redirect(from, to string, change asm.Instructions) error {
	a, errA := netlink.LinkByName(from)
	b, errB := netlink.LinkByName(to)
	if err := errors.Join(errA, errB); err != nil {
		return fmt.Errorf("find links %s and %s: %w", from, to, err)
	}
	all := append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}, change...)
	all = append(all, asm.Mov.Imm(asm.R1, int32(b.Attrs().Index)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return())
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: all})
	if err != nil {
		return fmt.Errorf("load the program of %s: %w", from, err)
	}
	defer func() { _ = prog.Close() }() // the filter keeps it
	return filterWith(a.Attrs().Index, prog)
}
