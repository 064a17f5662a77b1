package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ebpf"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// mtu of every container, whatever is below it; the cable between two hosts
// has room for a tunnel's headers beside it.
const (
	mtu      = "1450"
	cableMTU = "1550"
)

// rig is everything that one run builds; close takes it away again.
type rig struct {
	lab    *testcluster.Lab // its namespaces, and its two hosts with Open vSwitch
	dir    string
	n      int // namespaces so far
	ebpf   []*host
	closed []func() error
}

func newRig(ctx context.Context, name string, ovsHosts int) (r *rig, err error) {
	r = &rig{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
			r = nil
		}
	}()
	if r.dir, err = os.MkdirTemp("", "contiv-bench-"); err != nil {
		return r, err
	}
	r.onClose(func() error { return os.RemoveAll(r.dir) })
	pins := filepath.Join(r.dir, "bpf")
	if err := os.Mkdir(pins, 0o700); err != nil {
		return r, err
	}
	if err := unix.Mount("bpf", pins, "bpf", 0, ""); err != nil {
		return r, fmt.Errorf("mount a BPF file system at %s: %w", pins, err)
	}
	r.onClose(func() error { return unix.Unmount(pins, 0) })
	if r.lab, err = testcluster.Up(ctx, testcluster.Config{Name: name, Hosts: ovsHosts, Bare: true, Driver: testcluster.DriverOVS}); err != nil {
		return r, err
	}
	r.onClose(r.lab.Down)
	return r, nil
}

func (r *rig) onClose(f func() error) { r.closed = append(r.closed, f) }

// close undoes everything, last things first.
func (r *rig) close() error {
	var errs []error
	for _, f := range slices.Backward(r.closed) {
		errs = append(errs, f())
	}
	r.closed = nil
	return errors.Join(errs...)
}

// run runs a command; what it said is in the error.
func run(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// ip runs lines of iproute2 inside a namespace.
func ip(ctx context.Context, ns *testcluster.Namespace, lines ...string) error {
	for _, line := range lines {
		if err := run(ctx, append([]string{"ip", "-n", ns.Name}, strings.Fields(line)...)...); err != nil {
			return err
		}
	}
	return nil
}

// space makes a namespace without IPv6, so that no packet but ours is in it.
func (r *rig) space() (*testcluster.Namespace, error) {
	r.n++
	ns, err := r.lab.AddNamespace("n" + strconv.Itoa(r.n))
	if err != nil {
		return nil, err
	}
	return ns, ns.Do(func() error {
		var errs []error
		for _, which := range []string{"all", "default"} {
			errs = append(errs, os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0o644))
		}
		return errors.Join(errs...)
	})
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

// container makes a namespace with one end of a veth pair, the other end of
// which is in host.
func (r *rig) container(ctx context.Context, host *testcluster.Namespace, ifname string, addr netip.Addr, mac model.MAC) (*testcluster.Namespace, error) {
	ns, err := r.space()
	if err != nil {
		return nil, err
	}
	return ns, errors.Join(
		ip(ctx, host, fmt.Sprintf("link add %s mtu %s type veth peer name eth0 mtu %s address %s netns %s", ifname, mtu, mtu, mac, ns.Name), "link set "+ifname+" up"),
		ip(ctx, ns, "addr add "+addr.String()+"/16 dev eth0", "link set eth0 up"))
}

// cable joins two namespaces.
func cable(ctx context.Context, a, b *testcluster.Namespace, name, mtu string, addrs [2]netip.Addr) error {
	if err := ip(ctx, a, fmt.Sprintf("link add %s mtu %s type veth peer name %s mtu %s netns %s", name, mtu, name, mtu, b.Name)); err != nil {
		return err
	}
	for i, ns := range []*testcluster.Namespace{a, b} {
		if err := ip(ctx, ns, "link set "+name+" up", "addr add "+addrs[i].String()+"/24 dev "+name); err != nil {
			return err
		}
	}
	return nil
}

// host is a simulated host with one of our drivers.
type host struct {
	r   *rig
	ns  *testcluster.Namespace
	drv driver.Driver
	pic desired.Host
}

// network has the containers at 10.9.0.0/16, other has those at 10.10.0.0/16.
const network, other model.NetworkID = 1, 2

func networkOf(addr netip.Addr) model.NetworkID {
	if addr.As4()[1] == 10 {
		return other
	}
	return network
}

// newHost makes the picture of a host without containers; peers are the other hosts.
func newHost(r *rig, ns *testcluster.Namespace, vtep netip.Addr, peers ...netip.Addr) *host {
	h := &host{r: r, ns: ns, pic: desired.Host{Name: model.HostName(ns.Name), VTEP: vtep, ArpMode: model.ArpProxy}}
	h.pic.Networks = h.pic.Networks.Set(network, &desired.Network{ID: network, Encap: model.EncapVXLAN, Tag: 100, VTEPs: peers})
	return h
}

// open starts the driver; it is closed with the rig.
func (h *host) open(make func() (driver.Driver, error)) error {
	err := h.ns.Do(func() (err error) { h.drv, err = make(); return err })
	if err == nil {
		h.r.onClose(h.drv.Close)
	}
	return err
}

func (h *host) openEBPF(ctx context.Context) error {
	h.r.ebpf = append(h.r.ebpf, h)
	return h.open(func() (driver.Driver, error) {
		return ebpf.New(ctx, ebpf.Config{PinDir: h.pins(), Log: slog.New(slog.DiscardHandler)})
	})
}

func (h *host) pins() string { return filepath.Join(h.r.dir, "bpf", h.ns.Name) }

// ready makes the pictures of hosts true, and waits until their ports last.
func (r *rig) ready(ctx context.Context, hosts ...*host) error {
	for _, h := range hosts {
		if err := h.apply(ctx); err != nil {
			return err
		}
	}
	return r.lasting(ctx)
}

// lasting waits until every port of driver ebpf is a lasting one: until its link is
// pinned. A kernel without TCX has no links, and nothing is waited for.
func (r *rig) lasting(ctx context.Context) error {
	limit := time.Minute
	for _, h := range r.ebpf {
		limit += time.Duration(h.pic.Ports.Len()) * 250 * time.Millisecond // the driver takes 100 ms between two
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for _, h := range r.ebpf {
		pinned := func(ifname string) bool {
			_, err := os.Stat(filepath.Join(h.pins(), "links", ifname+":in"))
			return err == nil
		}
		for name := range h.pic.Ports.All() {
			for pinned(ebpf.DefaultDevice) && !pinned(name) {
				select {
				case <-ctx.Done():
					return fmt.Errorf("port %s has no link yet: %w", name, ctx.Err())
				case <-tick.C:
				}
			}
		}
	}
	return nil
}

func (h *host) openOVS(ctx context.Context, lh *testcluster.Host) error {
	return h.open(func() (driver.Driver, error) {
		return ovs.New(ctx, ovs.Config{
			OVSDB: lh.DB(), RunDir: lh.RunDir(), Datapath: h.r.lab.Config().Datapath, VTEP: lh.Address, Log: slog.New(slog.DiscardHandler),
		})
	})
}

// identity of every container here.
const identity = model.Identity(300)

func macOf(addr netip.Addr) model.MAC {
	b := addr.As4()
	return model.MAC{2, 5, b[0], b[1], b[2], b[3]}
}

// add makes a container on the host, under a policy set (0 = none).
func (h *host) add(ctx context.Context, addr netip.Addr, set desired.PolicySetID) (*testcluster.Namespace, error) {
	name := fmt.Sprintf("cvb%x", addr.As4())
	ns, err := h.r.container(ctx, h.ns, name, addr, macOf(addr))
	if err != nil {
		return nil, err
	}
	h.pic.Ports = h.pic.Ports.Set(name, &desired.Port{IfName: name, Network: networkOf(addr), MAC: macOf(addr), IPv4: addr, Identity: identity, Policies: set})
	return ns, nil
}

// remote tells the host of an endpoint on another host.
func (h *host) remote(addr, vtep netip.Addr) {
	k := desired.RemoteKey{Network: networkOf(addr), MAC: macOf(addr)}
	h.pic.Remotes = h.pic.Remotes.Set(k, &desired.Remote{Network: k.Network, MAC: k.MAC, IPv4: addr, Identity: identity, VTEP: vtep})
}

// policy gives the host a policy set.
func (h *host) policy(s *desired.PolicySet) { h.pic.PolicySets = h.pic.PolicySets.Set(s.ID, s) }

// apply makes the picture true; anything that is not as wanted is an error.
func (h *host) apply(ctx context.Context) error {
	h.pic.Revision++
	return h.ns.Do(func() error {
		rep, err := h.drv.Apply(ctx, h.pic)
		if err != nil {
			return err
		}
		for _, p := range rep.Problems {
			return fmt.Errorf("%s: %w", p.Object, p.Err)
		}
		for name, p := range rep.Ports.All() {
			if p.Err != nil {
				return fmt.Errorf("port %s: %w", name, p.Err)
			}
		}
		return nil
	})
}
