package main

import (
	"context"
	"slices"

	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// The sides of the meshes: their flows are too many for a processor's caches, and
// more than a processor's short ways once had room for.
const tenThousand, hundredThousand = 100, 320

// longWay compares what does not go by the short ways of the eBPF driver, or would not
// if they were few: connections that begin, and many flows.
func (b *bench) longWay(ctx context.Context) error {
	return b.with(ctx, testcluster.Config{Name: "bdp6"}, func(r testbed) error {
		veth, err := r.barePair(ctx)
		if err != nil {
			return err
		}
		bare, err := r.redirected(ctx)
		if err != nil {
			return err
		}
		kernel, hosts, err := r.besideKernel(ctx)
		if err != nil {
			return err
		}
		for _, h := range hosts {
			h.Policy(open(setOpen))
		}
		ours, err := pairOn(ctx, nameEBPF, hosts[0], hosts[0], 2, setOpen)
		if err != nil {
			return err
		}
		across, err := pairOn(ctx, nameEBPF, hosts[0], hosts[1], 4, setOpen)
		if err != nil {
			return err
		}
		if err := r.Ready(ctx, hosts[:]...); err != nil {
			return err
		}
		many := []metric{manyFlows(b.n(tenThousand)), manyFlows(b.n(hundredThousand))}
		metrics := slices.Concat([]metric{connect, latency}, many)
		same := []path{veth, bare, ours}
		res, err := b.measure(ctx, same, metrics...)
		if err != nil {
			return err
		}
		b.report.paths("Two containers of one host: connections that begin, and many flows; a policy of ten rules", same, res, metrics...)
		q := stats.Compare(res.of(nameEBPF, connect.name), res.of(bare.name, connect.name))
		b.report.atLeast("one host, new connections, ebpf to bpf_redirect_peer alone", q.Median, 0.95, q.String())
		for _, m := range many {
			q := stats.Compare(res.of(nameEBPF, m.name), res.of(veth.name, m.name))
			b.report.atMost("one host, "+m.name+", ebpf to veth", q.Median, 1.10, q.String())
		}
		apart := []path{kernel, across}
		if res, err = b.measure(ctx, apart, metrics...); err != nil {
			return err
		}
		b.report.paths("The same across two hosts", apart, res, metrics...)
		q = stats.Compare(res.of(nameEBPF, connect.name), res.of(kernel.name, connect.name))
		b.report.atLeast("two hosts, new connections, ebpf to VXLAN with a bridge", q.Median, 1.1, q.String())
		for _, m := range many {
			q := stats.Compare(res.of(nameEBPF, m.name), res.of(kernel.name, m.name))
			b.report.atMost("two hosts, "+m.name+", ebpf to VXLAN with a bridge", q.Median, 0.85, q.String())
		}
		return nil
	})
}
