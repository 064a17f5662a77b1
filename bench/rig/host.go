package rig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ebpf"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// Network has the containers at 10.9.0.0/16.
const Network = model.NetworkID(1)

// Other has the containers at 10.10.0.0/16.
const Other = model.NetworkID(2)

// Identity of every container.
const Identity = model.Identity(300)

// Host is a simulated host with a driver, which is closed with the rig.
type Host struct {
	*Rig
	NS         *testcluster.Namespace
	Driver     driver.Driver
	State      desired.Host             // what Apply applies
	Containers []*testcluster.Namespace // in the order in which they were added

	pins string // of driver ebpf; "" = the other one
}

// Host starts the driver of a host of the lab; peers are the addresses of other hosts.
func (r *Rig) Host(ctx context.Context, lh *testcluster.Host, peers ...netip.Addr) (*Host, error) {
	pins := ""
	if lh.Driver() == testcluster.DriverEBPF {
		pins = lh.PinDir()
	}
	return r.host(lh.NS, pins, lh.Address, peers, func() (driver.Driver, error) { return Open(ctx, r.Lab, lh) })
}

// EBPF makes a host with driver ebpf of a namespace.
func (r *Rig) EBPF(ctx context.Context, ns *testcluster.Namespace, vtep netip.Addr, peers ...netip.Addr) (*Host, error) {
	pins := filepath.Join(r.Lab.Config().Dir, "bpf", ns.Name)
	return r.host(ns, pins, vtep, peers, func() (driver.Driver, error) { return openEBPF(ctx, ns, pins) })
}

func (r *Rig) host(ns *testcluster.Namespace, pins string, vtep netip.Addr, peers []netip.Addr, open func() (driver.Driver, error)) (h *Host, err error) {
	h = &Host{Rig: r, NS: ns, pins: pins, State: desired.Host{Name: model.HostName(ns.Name), VTEP: vtep, ArpMode: model.ArpProxy}}
	h.State.Networks = h.State.Networks.Set(Network, &desired.Network{ID: Network, Encap: model.EncapVXLAN, Tag: 100, VTEPs: peers})
	if h.Driver, err = open(); err != nil {
		return nil, err
	}
	r.OnClose(h.Driver.Close)
	if pins != "" {
		r.ebpf = append(r.ebpf, h)
	}
	return h, nil
}

// Open starts the driver of a host of a lab.
func Open(ctx context.Context, l *testcluster.Lab, h *testcluster.Host) (drv driver.Driver, err error) {
	if h.Driver() == testcluster.DriverEBPF {
		return openEBPF(ctx, h.NS, h.PinDir())
	}
	err = h.NS.Do(func() (err error) {
		drv, err = ovs.New(ctx, ovs.Config{OVSDB: h.DB(), RunDir: h.RunDir(), Datapath: l.Config().Datapath, VTEP: h.Address, Log: slog.New(slog.DiscardHandler)})
		return err
	})
	return drv, err
}

func openEBPF(ctx context.Context, ns *testcluster.Namespace, pins string) (drv driver.Driver, err error) {
	err = ns.Do(func() (err error) {
		drv, err = ebpf.New(ctx, ebpf.Config{PinDir: pins, Log: slog.New(slog.DiscardHandler)})
		return err
	})
	return drv, err
}

func networkOf(addr netip.Addr) model.NetworkID {
	if addr.As4()[1] == 10 {
		return Other
	}
	return Network
}

// Port returns the host's interface of the container with an address.
func Port(addr netip.Addr) string { return fmt.Sprintf("cvb%x", addr.As4()) }

// Add makes a container on the host, under a policy set (0 = none). On Open vSwitch it
// switches off the container's checksum offload, as netplugin does.
func (h *Host) Add(ctx context.Context, addr netip.Addr, set desired.PolicySetID) (*testcluster.Namespace, error) {
	name := Port(addr)
	ns, err := h.Container(ctx, h.NS, name, addr)
	if err == nil && h.pins == "" {
		err = ns.Command(ctx, "ethtool", "-K", "eth0", "tx", "off").Run()
	}
	if err != nil {
		return nil, err
	}
	h.State.Ports = h.State.Ports.Set(name, &desired.Port{IfName: name, Network: networkOf(addr), MAC: MAC(addr), IPv4: addr, Identity: Identity, Policies: set})
	h.Containers = append(h.Containers, ns)
	return ns, nil
}

// Remote adds an endpoint on another host.
func (h *Host) Remote(addr, vtep netip.Addr) {
	k := desired.RemoteKey{Network: networkOf(addr), MAC: MAC(addr)}
	h.State.Remotes = h.State.Remotes.Set(k, &desired.Remote{Network: k.Network, MAC: k.MAC, IPv4: addr, Identity: Identity, VTEP: vtep})
}

// Policy gives the host a policy set.
func (h *Host) Policy(s *desired.PolicySet) { h.State.PolicySets = h.State.PolicySets.Set(s.ID, s) }

// Apply applies the desired state; anything that is not as wanted is an error.
func (h *Host) Apply(ctx context.Context) error {
	h.State.Revision++
	return h.NS.Do(func() error {
		rep, err := h.Driver.Apply(ctx, h.State)
		return errors.Join(err, Failed(rep))
	})
}

// Failed returns an error if a report says that something is not as wanted: a figure of it
// would mean nothing.
func Failed(r driver.Report) error {
	for _, p := range r.Problems {
		return fmt.Errorf("%s: %w", p.Object, p.Err)
	}
	for name, p := range r.Ports.All() {
		if p.Err != nil {
			return fmt.Errorf("port %s: %w", name, p.Err)
		}
	}
	return nil
}
