package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// How many services and providers there are.
const fewServices, manyServices, fewProviders, manyProviders = 10, 10000, 10, 1000

// nameProvider is the way that a service with few providers is compared with,
// nameProviders the one for many.
const (
	nameProvider  = "driver ebpf, its providers in turn"
	nameProviders = "driver ebpf, its many providers in turn"
)

// services compares connections to a service with those to its providers themselves,
// on one host, by how many of both there are, and with what kube-proxy's rules make
// of the same.
func (b *bench) services(ctx context.Context) error {
	return b.with(ctx, testcluster.Config{Name: "bdp7"}, func(r testbed) error {
		var paths, ours []path
		var bases []string // of each of ours
		var hosts []*rig.Host
		serving := true
		for _, n := range []struct{ services, providers int }{
			{fewServices, fewProviders}, {b.n(manyServices), fewProviders}, {fewServices, b.n(manyProviders)},
		} {
			h, p, err := r.served(ctx, n.services, n.providers)
			if err != nil {
				return err
			}
			if serving = h.Driver.Capabilities().Services; !serving {
				h.State.Services = desired.Map[model.ServiceKey, *desired.Service]{}
			}
			if base := baseOf(n.providers); !slices.ContainsFunc(paths, func(p path) bool { return p.name == base }) {
				// Another client: a service's connection keeps its tuple behind the service
				// for a while after its end, and who asks the provider by it waits.
				client, err := h.Add(ctx, rig.Address(3), setTen)
				if err != nil {
					return err
				}
				var each []netip.Addr
				for i, ns := range p.servers {
					each = append(each, provider(i))
					if err := errors.Join(knows(client, provider(i), rig.MAC(provider(i))), knows(ns, rig.Address(3), rig.MAC(rig.Address(3)))); err != nil {
						return err
					}
				}
				for i, ns := range p.servers[:fewProviders] {
					paths = append(paths, path{name: base, client: client, server: ns, servers: p.servers, addr: provider(i), each: each})
				}
			}
			hosts = append(hosts, h)
			if !serving {
				break
			}
			ours, bases = append(ours, p), append(bases, baseOf(n.providers))
		}
		if err := r.Ready(ctx, hosts...); err != nil {
			return err
		}
		kernels, err := r.kubeProxies(ctx, b.n(manyServices))
		if err != nil {
			return err
		}
		metrics := []metric{connect, latency}
		res, err := b.measure(ctx, slices.Concat(paths, ours, kernels), metrics...)
		if err != nil {
			return err
		}
		title := "Connections to a service, and to its providers themselves, on one host; driver ebpf with a policy of ten rules, kube-proxy's rules with none"
		if !serving {
			title += "; driver ebpf serves none"
		}
		rows := slices.CompactFunc(slices.Clone(paths), func(a, b path) bool { return a.name == b.name })
		b.report.paths(title, slices.Concat(rows, ours, kernels), res, metrics...)
		for i, p := range ours {
			q := stats.Compare(res.of(p.name, connect.name), res.of(bases[i], connect.name))
			b.report.atLeast(p.name+", "+connect.name+", to its providers themselves", q.Median, 0.9, q.String())
			q = stats.Compare(res.of(p.name, latency.name), res.of(bases[i], latency.name))
			b.report.atMost(p.name+", "+latency.name+", to its providers themselves", q.Median, 1.05, q.String())
		}
		if !serving {
			return nil
		}
		return b.unserved(ctx, paths[0])
	})
}

// baseOf returns the name of the way that a service with so many providers is compared with.
func baseOf(providers int) string {
	if providers == fewProviders {
		return nameProvider
	}
	return nameProviders
}

// unserved measures what connections cost to a service without providers.
func (b *bench) unserved(ctx context.Context, p path) error {
	p.name, p.addr = "driver ebpf, a service without providers", virtual(0)
	var shares series
	for range b.rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		took, err := refused(p, b.window)
		if err != nil {
			return err
		}
		shares = append(shares, 10000*took.Seconds())
	}
	found := fmt.Sprintf("%.3f", stats.Median(shares))
	b.report.table("10,000 connections a second to a service without providers", "path", "share of a processor, the client's calls with it").row(p.name, found)
	b.report.atMost(p.name+", 10,000 connections a second: share of a processor", stats.Median(shares), 0.25, found)
	return nil
}

// refused begins connections one after the other, waits for none, and returns what
// one costs the processor on which the client is, and all that its packet meets.
func refused(p path, d time.Duration) (took time.Duration, err error) {
	return took, onCPU(p.client, 1, func() error {
		to := address(p.addr, port)
		n, begin := 0, time.Now()
		for ; time.Since(begin) < d; n++ {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			err = dial(fd, to)
			shut(fd)
			if !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.ECONNREFUSED) {
				return wrap(p, errors.Join(errors.New("want it refused"), err))
			}
		}
		took = time.Since(begin) / time.Duration(n)
		return nil
	})
}

// provider returns the i-th provider's address, virtual the i-th service's.
func provider(i int) netip.Addr { return rig.Address(10 + i) }
func virtual(i int) netip.Addr  { return rig.Address(100<<8 + i) }

// knows gives a container a permanent neighbour: the kernel has one table of others for
// all namespaces, with room for 1,024, and where 1,000 providers fill it, their
// connections would measure how it is cleared.
func knows(ns *testcluster.Namespace, addr netip.Addr, mac model.MAC) error {
	return ns.Do(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac[:],
		})
	})
}

// served makes a host with services and providers; the path leads to the last
// service, which has all of the providers. Service 0 has none, the others have one.
func (r testbed) served(ctx context.Context, services, providers int) (*rig.Host, path, error) {
	p := path{name: fmt.Sprintf("driver ebpf, one of %d services, %d providers", services, providers), addr: virtual(services)}
	spaces, vteps, err := r.joined(ctx)
	if err != nil {
		return nil, p, err
	}
	h, err := r.EBPF(ctx, spaces[0], vteps[0])
	if err != nil {
		return nil, p, err
	}
	subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9}), 16)
	h.State.Networks = h.State.Networks.Set(rig.Network, &desired.Network{ID: rig.Network, Encap: model.EncapVXLAN, Tag: 100, Subnet: subnet})
	h.Policy(shape(setTen, 10, one))
	if p.client, err = h.Add(ctx, rig.Address(2), setTen); err != nil {
		return nil, p, err
	}
	all := desired.Map[model.EndpointKey, *desired.Backend]{}
	one := func(i int) (model.EndpointKey, *desired.Backend) {
		key := model.EndpointKey{Network: model.NetworkKey{Tenant: "bench", Name: "net"}, ID: model.EndpointID(fmt.Sprintf("p%d", i))}
		return key, &desired.Backend{Network: rig.Network, IPv4: provider(i), Identity: rig.Identity, Local: true}
	}
	for i := range providers {
		ns, err := h.Add(ctx, provider(i), setTen)
		if err != nil {
			return nil, p, err
		}
		if err := knows(ns, rig.Address(2), rig.MAC(rig.Address(2))); err != nil {
			return nil, p, err
		}
		p.servers = append(p.servers, ns)
		k, v := one(i)
		all = all.Set(k, v)
	}
	p.server = p.servers[0]
	if err := knows(p.client, p.addr, desired.RouterMAC); err != nil {
		return nil, p, err
	}
	for i := range services + 1 {
		s := &desired.Service{
			Key: model.ServiceKey{Tenant: "bench", Name: fmt.Sprintf("s%d", i)}, Network: rig.Network, IPv4: virtual(i),
			Ports: []desired.ServicePort{{Protocol: model.ProtoTCP, Port: port, Backend: port}},
		}
		switch i {
		case 0:
		case services:
			s.Backends = all
		default:
			k, v := one(i % providers)
			s.Backends = s.Backends.Set(k, v)
		}
		h.State.Services = h.State.Services.Set(s.Key, s)
	}
	return h, p, nil
}
