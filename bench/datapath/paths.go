package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// overlay returns the i-th container's address on the overlay, 10.9.0.0/16.
func overlay(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}) }

func pairOf(net byte) [2]netip.Addr {
	return [2]netip.Addr{netip.AddrFrom4([4]byte{10, 8, net, 1}), netip.AddrFrom4([4]byte{10, 8, net, 2})}
}

// barePair is a veth pair between two namespaces and nothing else.
func (r *rig) barePair(ctx context.Context) (path, error) {
	a, err := r.space()
	if err != nil {
		return path{}, err
	}
	b, err := r.space()
	if err != nil {
		return path{}, err
	}
	ends := pairOf(1)
	return path{name: "veth pair", client: a, server: b, addr: ends[1]}, cable(ctx, a, b, "eth0", mtu, ends)
}

// bridged is a Linux bridge between two containers of one host.
func (r *rig) bridged(ctx context.Context) (path, error) {
	h, err := r.space()
	if err != nil {
		return path{}, err
	}
	if err := errors.Join(plain(h), ip(ctx, h, "link add br0 mtu "+mtu+" type bridge", "link set br0 up")); err != nil {
		return path{}, err
	}
	return r.plugged(ctx, "Linux bridge", h, "br0", pairOf(2))
}

// redirected is two containers of one host with a program that hands their packets
// over and does nothing else: what is left when policy costs nothing.
func (r *rig) redirected(ctx context.Context) (path, error) {
	h, err := r.space()
	if err != nil {
		return path{}, err
	}
	ends := pairOf(5)
	p := path{name: "bpf_redirect_peer alone", addr: ends[1]}
	for i, ns := range []**testcluster.Namespace{&p.client, &p.server} {
		if *ns, err = r.container(ctx, h, fmt.Sprintf("p%d", i), ends[i], macOf(ends[i])); err != nil {
			return p, err
		}
	}
	return p, h.Do(func() error { return errors.Join(r.handOver("p0", "p1"), r.handOver("p1", "p0")) })
}

// handOver gives what comes from one interface to the peer of another. The program is
// attached as driver ebpf attaches its own to lasting ports.
func (r *rig) handOver(from, to string) error {
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
		r.onClose(l.Close)
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
func (r *rig) plugged(ctx context.Context, name string, h *testcluster.Namespace, bridge string, ends [2]netip.Addr) (path, error) {
	p := path{name: name, addr: ends[1]}
	for i, ns := range []**testcluster.Namespace{&p.client, &p.server} {
		var err error
		port := fmt.Sprintf("p%d", i)
		if *ns, err = r.container(ctx, h, port, ends[i], macOf(ends[i])); err != nil {
			return p, err
		}
		if err := ip(ctx, h, "link set "+port+" master "+bridge); err != nil {
			return p, err
		}
	}
	return p, nil
}

// vxlan is two containers on bridges of two hosts that the kernel's own VXLAN
// device joins; the hosts have a cable.
func (r *rig) vxlan(ctx context.Context, hosts [2]*testcluster.Namespace, vteps [2]netip.Addr) (path, error) {
	ends := pairOf(3)
	p := path{name: "kernel VXLAN device + bridge", addr: ends[1]}
	for i, ns := range []**testcluster.Namespace{&p.client, &p.server} {
		h := hosts[i]
		err := plain(h)
		if err != nil {
			return p, err
		}
		err = ip(ctx, h, "link add br0 mtu "+mtu+" type bridge", "link set br0 up",
			fmt.Sprintf("link add vx0 mtu %s type vxlan id 77 dstport 8472 remote %s local %s", mtu, vteps[1-i], vteps[i]),
			"link set vx0 master br0 up")
		if err == nil {
			*ns, err = r.container(ctx, h, "p0", ends[i], macOf(ends[i]))
		}
		if err == nil {
			err = ip(ctx, h, "link set p0 master br0")
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// joined makes two host namespaces with a cable.
func (r *rig) joined(ctx context.Context) (hosts [2]*testcluster.Namespace, vteps [2]netip.Addr, err error) {
	vteps = [2]netip.Addr{netip.MustParseAddr("192.168.7.1"), netip.MustParseAddr("192.168.7.2")}
	for i := range hosts {
		if hosts[i], err = r.space(); err != nil {
			return hosts, vteps, err
		}
	}
	return hosts, vteps, cable(ctx, hosts[0], hosts[1], "u0", cableMTU, vteps)
}

// two makes two hosts with the eBPF driver, on namespaces that have a cable.
func (r *rig) two(ctx context.Context, spaces [2]*testcluster.Namespace, vteps [2]netip.Addr) (hosts [2]*host, err error) {
	for i := range hosts {
		hosts[i] = newHost(r, spaces[i], vteps[i], vteps[1-i])
		hosts[i].policy(shape(setTen, 10, one))
		if err := hosts[i].openEBPF(ctx); err != nil {
			return hosts, err
		}
	}
	return hosts, nil
}

// besideKernel makes two containers on hosts that the kernel's own VXLAN device joins,
// and on the same cable two hosts with the eBPF driver.
func (r *rig) besideKernel(ctx context.Context) (kernel path, hosts [2]*host, err error) {
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
func pairOn(ctx context.Context, name string, a, b *host, first int, set desired.PolicySetID) (p path, err error) {
	p = path{name: name, addr: overlay(first + 1)}
	if p.client, err = a.add(ctx, overlay(first), set); err != nil {
		return p, err
	}
	if p.server, err = b.add(ctx, overlay(first+1), set); err != nil || a == b {
		return p, err
	}
	a.remote(overlay(first+1), b.pic.VTEP)
	b.remote(overlay(first), a.pic.VTEP)
	return p, nil
}
