package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// cableMTU has room for a tunnel's headers beside rig.MTU.
const cableMTU = "1550"

// testbed makes the paths that are measured.
type testbed struct{ *rig.Rig }

func pairOf(net byte) [2]netip.Addr {
	return [2]netip.Addr{netip.AddrFrom4([4]byte{10, 8, net, 1}), netip.AddrFrom4([4]byte{10, 8, net, 2})}
}

// barePair is a veth pair between two namespaces and nothing else.
func (r testbed) barePair(ctx context.Context) (path, error) {
	a, err := r.Namespace()
	if err != nil {
		return path{}, err
	}
	b, err := r.Namespace()
	if err != nil {
		return path{}, err
	}
	ends := pairOf(1)
	return path{name: "veth pair", client: a, server: b, addr: ends[1]}, rig.Cable(ctx, a, b, "eth0", rig.MTU, ends)
}

// plain keeps the bridges of a namespace out of iptables, as they are on a machine without
// br_netfilter. Docker's bridge stays in iptables.
func plain(ns *testcluster.Namespace) error {
	return ns.Do(func() error {
		err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("0"), 0o644)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
}

// bridged is a Linux bridge between two containers of one host.
func (r testbed) bridged(ctx context.Context) (path, error) {
	h, err := r.Namespace()
	if err != nil {
		return path{}, err
	}
	if err := errors.Join(plain(h), rig.IP(ctx, h, "link add br0 mtu "+rig.MTU+" type bridge", "link set br0 up")); err != nil {
		return path{}, err
	}
	return r.plugged(ctx, "Linux bridge", h, "br0", pairOf(2))
}

// redirected is two containers of one host with a program that hands their packets
// over and does nothing else: what is left when policy costs nothing.
func (r testbed) redirected(ctx context.Context) (path, error) {
	h, err := r.Namespace()
	if err != nil {
		return path{}, err
	}
	ends := pairOf(5)
	p := path{name: "bpf_redirect_peer alone", addr: ends[1]}
	for i, ns := range []**testcluster.Namespace{&p.client, &p.server} {
		if *ns, err = r.Container(ctx, h, fmt.Sprintf("p%d", i), ends[i]); err != nil {
			return p, err
		}
	}
	return p, h.Do(func() error { return errors.Join(r.redirect("p0", "p1"), r.redirect("p1", "p0")) })
}

// redirect gives what comes from one interface to the peer of another. The program is
// attached as driver ebpf attaches its own to lasting ports.
func (r testbed) redirect(from, to string) error {
	a, errA := netlink.LinkByName(from)
	b, errB := netlink.LinkByName(to)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(b.Attrs().Index)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirectPeer.Call(), asm.Return(),
	}})
	if err != nil {
		return fmt.Errorf("load a program that redirects: %w", err)
	}
	defer func() { _ = prog.Close() }() // the link or the filter keeps it
	l, err := link.AttachTCX(link.TCXOptions{Interface: a.Attrs().Index, Program: prog, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		r.OnClose(l.Close)
	}
	if !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	return errors.Join(
		netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: a.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}),
		netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: a.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
			Fd:          prog.FD(), Name: "redirect", DirectAction: true,
		}))
}

// plugged is two containers on a bridge that is there.
func (r testbed) plugged(ctx context.Context, name string, h *testcluster.Namespace, bridge string, ends [2]netip.Addr) (path, error) {
	p := path{name: name, addr: ends[1]}
	for i, ns := range []**testcluster.Namespace{&p.client, &p.server} {
		var err error
		if *ns, err = r.Plug(ctx, h, bridge, fmt.Sprintf("p%d", i), ends[i]); err != nil {
			return p, err
		}
	}
	return p, nil
}

// vxlan is two containers on bridges of two hosts that the kernel's own VXLAN
// device joins; the hosts have a cable.
func (r testbed) vxlan(ctx context.Context, hosts [2]*testcluster.Namespace, vteps [2]netip.Addr) (path, error) {
	ends := pairOf(3)
	p := path{name: "kernel VXLAN device + bridge", addr: ends[1]}
	for i, ns := range []**testcluster.Namespace{&p.client, &p.server} {
		h := hosts[i]
		err := plain(h)
		if err != nil {
			return p, err
		}
		err = rig.IP(ctx, h, "link add br0 mtu "+rig.MTU+" type bridge", "link set br0 up",
			fmt.Sprintf("link add vx0 mtu %s type vxlan id 77 dstport 8472 remote %s local %s", rig.MTU, vteps[1-i], vteps[i]),
			"link set vx0 master br0 up")
		if err == nil {
			*ns, err = r.Plug(ctx, h, "br0", "p0", ends[i])
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// joined makes two host namespaces with a cable.
func (r testbed) joined(ctx context.Context) (hosts [2]*testcluster.Namespace, vteps [2]netip.Addr, err error) {
	vteps = [2]netip.Addr{netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("192.168.7.2")}
	for i := range hosts {
		if hosts[i], err = r.Namespace(); err != nil {
			return hosts, vteps, err
		}
	}
	return hosts, vteps, rig.Cable(ctx, hosts[0], hosts[1], "u0", cableMTU, vteps)
}

// two makes two hosts with the eBPF driver, on namespaces that have a cable.
func (r testbed) two(ctx context.Context, spaces [2]*testcluster.Namespace, vteps [2]netip.Addr) (hosts [2]*rig.Host, err error) {
	for i := range hosts {
		if hosts[i], err = r.EBPF(ctx, spaces[i], vteps[i], vteps[1-i]); err != nil {
			return hosts, err
		}
		hosts[i].Policy(shape(setTen, 10, one))
	}
	return hosts, nil
}

// besideKernel makes two containers on hosts that the kernel's own VXLAN device joins,
// and on the same cable two hosts with the eBPF driver.
func (r testbed) besideKernel(ctx context.Context) (kernel path, hosts [2]*rig.Host, err error) {
	spaces, vteps, err := r.joined(ctx)
	if err != nil {
		return kernel, hosts, err
	}
	if kernel, err = r.vxlan(ctx, spaces, vteps); err != nil {
		return kernel, hosts, err
	}
	hosts, err = r.two(ctx, spaces, vteps)
	return kernel, hosts, err
}

// pairOn makes two containers, each on a host of its own or both on one.
func pairOn(ctx context.Context, name string, a, b *rig.Host, first int, set desired.PolicySetID) (p path, err error) {
	p = path{name: name, addr: rig.Address(first + 1)}
	if p.client, err = a.Add(ctx, rig.Address(first), set); err != nil {
		return p, err
	}
	if p.server, err = b.Add(ctx, rig.Address(first+1), set); err != nil || a == b {
		return p, err
	}
	a.Remote(rig.Address(first+1), b.State.VTEP)
	b.Remote(rig.Address(first), a.State.VTEP)
	return p, nil
}
