package testcluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The trunk is a learning switch: it sends a frame to the port at which it saw the
// destination last, on the frame's VLAN, and floods it only if it has seen it at none. Linux
// bridges learn by VLAN only with a VLAN filter, which a kernel may lack; so a program at
// each port of the bridge does it, and the bridge floods. What it has learned does not age.

// stations bounds what the trunk remembers.
const stations = 4096

// stationKey is a VLAN (0 = untagged) and a MAC address, with two bytes that stay 0.
const stationKey = 4 + 6 + 2

func (l *Network) stationsPin() string { return filepath.Join(bpfDir(l.st.Config.Dir), "trunk") }

// stations returns the trunk's table, which it makes if there is none.
func (l *Network) stations() (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(l.stationsPin(), nil)
	if !errors.Is(err, os.ErrNotExist) {
		return m, err
	}
	m, err = ebpf.NewMap(&ebpf.MapSpec{Name: "trunk", Type: ebpf.LRUHash, KeySize: stationKey, ValueSize: 4, MaxEntries: stations})
	if err != nil {
		return nil, fmt.Errorf("make the trunk's table: %w", err)
	}
	if err := m.Pin(l.stationsPin()); err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("pin the trunk's table: %w", err)
	}
	return m, nil
}

// learnAt makes a port of the trunk's bridge one of the learning switch. It runs in the
// fabric's namespace.
func (l *Network) learnAt(port string) error {
	link, err := netlink.LinkByName(port)
	if err != nil {
		return fmt.Errorf("find link %s: %w", port, err)
	}
	if err := netlink.LinkSetLearning(link, false); err != nil {
		return fmt.Errorf("let bridge port %s learn nothing: %w", port, err)
	}
	table, err := l.stations()
	if err != nil {
		return err
	}
	defer func() { _ = table.Close() }() // the program keeps it
	const key, mac, value = -16, -12, -20
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, 20, asm.Word), // __sk_buff.vlan_present
		asm.LoadMem(asm.R3, asm.R6, 24, asm.Word), // __sk_buff.vlan_tci
		asm.And.Imm(asm.R3, 0xfff),
		asm.JNE.Imm(asm.R2, 0, "tagged"),
		asm.Mov.Imm(asm.R3, 0),
		asm.StoreMem(asm.RFP, key, asm.R3, asm.Word).WithSymbol("tagged"),
		asm.StoreImm(asm.RFP, mac+4, 0, asm.Word),
		asm.LoadMem(asm.R7, asm.R6, 40, asm.Word), // __sk_buff.ifindex
		asm.StoreMem(asm.RFP, value, asm.R7, asm.Word),
		// Who sends is here.
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, 6), asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, mac), asm.Mov.Imm(asm.R4, 6),
		asm.FnSkbLoadBytes.Call(),
		asm.LoadMapPtr(asm.R1, table.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, key), asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, value), asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		// Who is meant?
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, mac), asm.Mov.Imm(asm.R4, 6),
		asm.FnSkbLoadBytes.Call(),
		asm.LoadMem(asm.R2, asm.RFP, mac, asm.Byte),
		asm.And.Imm(asm.R2, 1),
		asm.JNE.Imm(asm.R2, 0, "flood"), // a group
		asm.LoadMapPtr(asm.R1, table.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "flood"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.Mov.Imm(asm.R0, 2), // TC_ACT_SHOT
		asm.JEq.Reg(asm.R1, asm.R7, "end"),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Ja.Label("end"),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("flood"), // TC_ACT_OK: by the bridge
		asm.Return().WithSymbol("end"),
	}})
	if err != nil {
		return fmt.Errorf("load the program of %s: %w", port, err)
	}
	defer func() { _ = prog.Close() }() // the filter keeps it
	return filterWith(link.Attrs().Index, prog)
}

// filterWith runs a program for what comes in by a link.
func filterWith(index int, prog *ebpf.Program) error {
	return errors.Join(
		netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}),
		netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
			Fd:          prog.FD(), Name: "lab", DirectAction: true,
		}))
}

// MisleadTrunk has the trunk look for a MAC address of a VLAN at the second host, as a switch
// does that has not heard of a change of its neighbours.
func (l *Network) MisleadTrunk(vlan uint32, mac string) error {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	table, err := l.stations()
	if err != nil {
		return err
	}
	defer func() { _ = table.Close() }() // the programs keep it
	return l.Fabric.Do(func() error {
		link, err := netlink.LinkByName("h2v")
		if err != nil {
			return fmt.Errorf("find link h2v: %w", err)
		}
		key := append(binary.NativeEndian.AppendUint32(nil, vlan), append(hw, 0, 0)...)
		return table.Put(key, uint32(link.Attrs().Index)) //nolint:gosec // an index
	})
}
