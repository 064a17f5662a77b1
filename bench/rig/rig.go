package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/ebpf"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// MTU is the containers' default.
const MTU = "1450"

// Cleanup removes what a benchmark has built.
type Cleanup struct{ steps []func() error }

// OnClose adds a step.
func (c *Cleanup) OnClose(step func() error) { c.steps = append(c.steps, step) }

// Close runs the steps, the last one first.
func (c *Cleanup) Close() error {
	var errs []error
	for _, step := range slices.Backward(c.steps) {
		errs = append(errs, step())
	}
	c.steps = nil
	return errors.Join(errs...)
}

// Rig is everything that one run builds; Close removes it.
type Rig struct {
	Cleanup
	Lab *testcluster.Lab // its namespaces, and its hosts with switches
	MTU string           // of containers; "" = MTU

	namespaces int // so far
	ebpf       []*Host
}

// New makes a rig with the hosts of a configuration, without a control plane.
func New(ctx context.Context, cfg testcluster.Config) (*Rig, error) {
	cfg.Bare = true
	l, err := testcluster.Up(ctx, cfg)
	if err != nil {
		return nil, err
	}
	r := &Rig{Lab: l}
	r.OnClose(l.Down)
	return r, nil
}

// One makes a rig of one host with a driver (testcluster.DriverEBPF, or DriverOVS in user
// space) and containers of one network with an MTU of 1500.
func One(ctx context.Context, name, driver string, containers int) (h *Host, err error) {
	r, err := New(ctx, testcluster.Config{Name: name, Hosts: 1, Driver: driver, Datapath: "netdev", Embedded: true})
	if err != nil {
		return nil, err
	}
	r.MTU = "1500"
	if h, err = r.Host(ctx, r.Lab.Hosts()[0]); err == nil {
		for i := 0; i < containers && err == nil; i++ {
			_, err = h.Add(ctx, Address(i), 0)
		}
	}
	if err == nil {
		err = r.Ready(ctx, h)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return h, nil
}

// Run runs a command; its error has the command's output.
func Run(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// IP runs lines of iproute2 inside a namespace.
func IP(ctx context.Context, ns *testcluster.Namespace, lines ...string) error {
	for _, line := range lines {
		if err := Run(ctx, append([]string{"ip", "-n", ns.Name}, strings.Fields(line)...)...); err != nil {
			return err
		}
	}
	return nil
}

// Namespace makes a namespace without IPv6, so that it has no packets but the benchmark's.
func (r *Rig) Namespace() (*testcluster.Namespace, error) {
	r.namespaces++
	ns, err := r.Lab.AddNamespace("n" + strconv.Itoa(r.namespaces))
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

// Container makes a namespace with one end of a veth pair, whose other end is in host.
func (r *Rig) Container(ctx context.Context, host *testcluster.Namespace, ifname string, addr netip.Addr) (*testcluster.Namespace, error) {
	ns, err := r.Namespace()
	if err != nil {
		return nil, err
	}
	mtu := cmp.Or(r.MTU, MTU)
	return ns, errors.Join(
		IP(ctx, host, fmt.Sprintf("link add %s mtu %s type veth peer name eth0 mtu %s address %s netns %s", ifname, mtu, mtu, MAC(addr), ns.Name), "link set "+ifname+" up"),
		IP(ctx, ns, "addr add "+addr.String()+"/16 dev eth0", "link set eth0 up"))
}

// Plug makes a container on a bridge.
func (r *Rig) Plug(ctx context.Context, host *testcluster.Namespace, bridge, port string, addr netip.Addr) (*testcluster.Namespace, error) {
	ns, err := r.Container(ctx, host, port, addr)
	if err == nil {
		err = IP(ctx, host, "link set "+port+" master "+bridge)
	}
	return ns, err
}

// Cable joins two namespaces.
func Cable(ctx context.Context, a, b *testcluster.Namespace, name, mtu string, addrs [2]netip.Addr) error {
	if err := IP(ctx, a, fmt.Sprintf("link add %s mtu %s type veth peer name %s mtu %s netns %s", name, mtu, name, mtu, b.Name)); err != nil {
		return err
	}
	for i, ns := range []*testcluster.Namespace{a, b} {
		if err := IP(ctx, ns, "link set "+name+" up", "addr add "+addrs[i].String()+"/24 dev "+name); err != nil {
			return err
		}
	}
	return nil
}

// Address returns the i-th container's address on Network, 10.9.0.0/16.
func Address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 9, byte((i + 1) >> 8), byte(i + 1)})
}

// MAC returns the MAC address of the container with an address.
func MAC(addr netip.Addr) model.MAC {
	b := addr.As4()
	return model.MAC{2, 5, b[0], b[1], b[2], b[3]}
}

// Ready applies the desired states of hosts, and waits until their ports last.
func (r *Rig) Ready(ctx context.Context, hosts ...*Host) error {
	for _, h := range hosts {
		if err := h.Apply(ctx); err != nil {
			return err
		}
	}
	return r.lasting(ctx)
}

// lasting waits until every port of driver ebpf is a lasting one: until its link is
// pinned. A kernel without TCX has no links, and nothing is waited for.
func (r *Rig) lasting(ctx context.Context) error {
	limit := time.Minute
	for _, h := range r.ebpf {
		limit += time.Duration(h.State.Ports.Len()) * 250 * time.Millisecond // the driver takes 100 ms between two
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for _, h := range r.ebpf {
		pinned := func(ifname string) bool {
			_, err := os.Stat(filepath.Join(h.pins, "links", ifname+":in"))
			return err == nil
		}
		for name := range h.State.Ports.All() {
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
