package main

import (
	"context"
	"net/netip"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

const nameWithin, nameRouted = "within one network", "routed"

// routed compares ways between two networks of a tenant with ways within one network,
// on one host and across two.
func (b *bench) routed(ctx context.Context) error {
	return b.with(ctx, testcluster.Config{Name: "bdp5"}, func(r testbed) error {
		spaces, vteps, err := r.joined(ctx)
		if err != nil {
			return err
		}
		hosts, err := r.two(ctx, spaces, vteps)
		if err != nil {
			return err
		}
		for i, h := range hosts {
			join(h, vteps[1-i])
		}
		var paths [2][]path // of one host, of two
		for i := range twins {
			for far := range paths {
				first := 2 + 8*i + 4*far
				within, err := pairOn(ctx, nameWithin, hosts[0], hosts[far], first, setTen)
				if err != nil {
					return err
				}
				across, err := routedPair(ctx, hosts[0], hosts[far], first+2)
				if err != nil {
					return err
				}
				paths[far] = append(paths[far], within, across)
			}
		}
		if err := r.Ready(ctx, hosts[:]...); err != nil {
			return err
		}
		metrics := []metric{stream1, stream8, latency}
		for far, where := range []string{"one host", "two hosts"} {
			res, err := b.measure(ctx, paths[far], metrics...)
			if err != nil {
				return err
			}
			b.report.paths("driver ebpf, two containers of "+where+": on two networks of a tenant beside on one", paths[far][:2], res, metrics...)
			for _, m := range metrics {
				q := stats.Compare(res.of(nameRouted, m.name), res.of(nameWithin, m.name))
				what := where + ", " + m.name + ", routed to within one network"
				if m.name == latency.name {
					b.report.atMost(what, q.Median, 1.03, q.String())
				} else {
					b.report.atLeast(what, q.Median, 0.97, q.String())
				}
			}
		}
		return nil
	})
}

// join joins the networks of a host by routing.
func join(h *rig.Host, peers ...netip.Addr) {
	for i, id := range []model.NetworkID{rig.Network, rig.Other} {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(9 + i)}), 16)
		h.State.Networks = h.State.Networks.Set(id, &desired.Network{
			ID: id, Encap: model.EncapVXLAN, Tag: uint32(100 + i), VTEPs: peers, Subnet: subnet, Gateway: gatewayOf(subnet.Addr()), Joined: 1,
		})
	}
}

// gatewayOf is the router on the network of an address.
func gatewayOf(addr netip.Addr) netip.Addr {
	return netip.AddrFrom4([4]byte{10, addr.As4()[1], 255, 254})
}

// routedPair makes two containers on two networks, each on a host of its own or
// both on one.
func routedPair(ctx context.Context, a, b *rig.Host, i int) (p path, err error) {
	client, far := rig.Address(i), rig.Address(i+1).As4()
	far[1]++
	server := netip.AddrFrom4(far)
	p = path{name: nameRouted, addr: server}
	if p.client, err = a.Add(ctx, client, setTen); err != nil {
		return p, err
	}
	if p.server, err = b.Add(ctx, server, setTen); err != nil {
		return p, err
	}
	if a != b {
		a.Remote(server, b.State.VTEP)
		b.Remote(client, a.State.VTEP)
	}
	for addr, ns := range map[netip.Addr]*testcluster.Namespace{client: p.client, server: p.server} {
		if err := rig.IP(ctx, ns, "route add default via "+gatewayOf(addr).String()); err != nil {
			return p, err
		}
	}
	return p, nil
}
