package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

const nameEBPF, nameOVS = "driver ebpf", "driver ovs (userspace)"

// twins is how many pairs of containers stand for a path whose round trips are
// judged to the per cent.
const twins = 9

// oneHost compares ways between two containers of one host.
func (b *bench) oneHost(ctx context.Context) error {
	return b.with(ctx, testcluster.Config{Name: "bdp1", Hosts: 1, Driver: testcluster.DriverOVS}, func(r testbed) error {
		var veths, bare, ours [twins]path
		for i := range veths {
			var err error
			if veths[i], err = r.barePair(ctx); err != nil {
				return err
			}
			if bare[i], err = r.redirected(ctx); err != nil {
				return err
			}
		}
		bridge, err := r.bridged(ctx)
		if err != nil {
			return err
		}
		dock, err := r.docker(ctx)
		if err != nil {
			return err
		}
		spaces, vteps, err := r.joined(ctx)
		if err != nil {
			return err
		}
		hosts, err := r.two(ctx, spaces, vteps)
		if err != nil {
			return err
		}
		for i := range ours {
			if ours[i], err = pairOn(ctx, nameEBPF, hosts[0], hosts[0], 2+2*i, setTen); err != nil {
				return err
			}
		}
		sw, err := r.Host(ctx, r.Lab.Hosts()[0])
		if err != nil {
			return err
		}
		sw.Policy(shape(setTen, 10, one))
		theirs, err := pairOn(ctx, nameOVS, sw, sw, 4, setTen)
		if err != nil {
			return err
		}
		if err := r.Ready(ctx, hosts[0], sw); err != nil {
			return err
		}
		paths := []path{veths[0], bridge, dock, bare[0], ours[0], theirs}
		metrics := []metric{stream1, stream8, latency}
		res, err := b.measure(ctx, slices.Concat(paths, veths[1:], bare[1:], ours[1:]), metrics...)
		if err != nil {
			return err
		}
		b.report.paths("Two containers of one host, MTU "+rig.MTU+"; drivers with a policy of ten rules and connection tracking", paths, res, metrics...)
		for _, m := range []metric{stream1, stream8} {
			q := stats.Compare(res.of(nameEBPF, m.name), res.of(veths[0].name, m.name))
			b.report.atLeast("one host, "+m.name+", ebpf to veth", q.Median, 0.95, q.String())
		}
		q := stats.Compare(res.of(nameEBPF, latency.name), res.of(veths[0].name, latency.name))
		b.report.atMost("one host, "+latency.name+", ebpf to veth", q.Median, 1.05, q.String())
		return nil
	})
}

// twoHosts compares ways between containers of two hosts.
func (b *bench) twoHosts(ctx context.Context) error {
	return b.with(ctx, testcluster.Config{Name: "bdp2", Hosts: 2, Driver: testcluster.DriverOVS}, func(r testbed) error {
		kernel, hosts, err := r.besideKernel(ctx)
		if err != nil {
			return err
		}
		ours, err := pairOn(ctx, nameEBPF, hosts[0], hosts[1], 2, setTen)
		if err != nil {
			return err
		}
		var sws [2]*rig.Host
		all := hosts[:]
		for i, lh := range r.Lab.Hosts() {
			if sws[i], err = r.Host(ctx, lh, r.Lab.Hosts()[1-i].Address); err != nil {
				return err
			}
			sws[i].Policy(shape(setTen, 10, one))
			all = append(all, sws[i])
		}
		theirs, err := pairOn(ctx, nameOVS, sws[0], sws[1], 4, setTen)
		if err != nil {
			return err
		}
		if err := r.Ready(ctx, all...); err != nil {
			return err
		}
		paths := []path{kernel, ours, theirs}
		metrics := []metric{stream1, stream8, latency}
		res, err := b.measure(ctx, paths, metrics...)
		if err != nil {
			return err
		}
		b.report.paths("Two containers of two hosts, MTU "+rig.MTU+" in the overlay and "+cableMTU+" between the hosts", paths, res, metrics...)
		for _, m := range []metric{stream1, stream8} {
			q := stats.Compare(res.of(nameEBPF, m.name), res.of(kernel.name, m.name))
			b.report.atLeast("two hosts, "+m.name+", ebpf to VXLAN with a bridge", q.Median, 1.05, q.String())
		}
		q := stats.Compare(res.of(nameEBPF, latency.name), res.of(kernel.name, latency.name))
		b.report.atMost("two hosts, "+latency.name+", ebpf to VXLAN with a bridge", q.Median, 0.8, q.String())
		return nil
	})
}

// The size of the big hosts.
const manyRemotes, manyRules = 10000, 10000

// scale compares 10,000 rules and 10,000 remote endpoints with ten rules.
func (b *bench) scale(ctx context.Context) error {
	return b.with(ctx, testcluster.Config{Name: "bdp3"}, func(r testbed) error {
		var pairs [2][2]*rig.Host // with little, with much
		for i := range pairs {
			spaces, vteps, err := r.joined(ctx)
			if err != nil {
				return err
			}
			if pairs[i], err = r.two(ctx, spaces, vteps); err != nil {
				return err
			}
		}
		little, much := pairs[0], pairs[1]
		for i, h := range much {
			for k := range b.n(manyRemotes) {
				h.Remote(rig.Address(1000+k), much[1-i].State.VTEP)
			}
			n := b.n(manyRules)
			h.Policy(shape(setNested, n, nested))
			h.Policy(shape(setRanges, n, ranged))
			h.Policy(shape(setMixed, n, mixed))
			h.Policy(shape(setLast, n, one))
		}
		const ten, none = "ten rules", "no policy"
		var same, across []path
		for i, c := range []struct {
			name string
			on   [2]*rig.Host
			set  desired.PolicySetID
		}{
			{ten, little, setTen},
			{none, little, 0},
			{"10,000 nested CIDRs", much, setNested},
			{"10,000 overlapping port ranges", much, setRanges},
			{"10,000 for anybody and groups in turn", much, setMixed},
			{"10,000 groups, the last matches", much, setLast},
		} {
			p, err := pairOn(ctx, c.name, c.on[0], c.on[0], 10+2*i, c.set)
			if err != nil {
				return err
			}
			same = append(same, p)
			if c.set == setTen || c.set == setLast {
				if p, err = pairOn(ctx, c.name, c.on[0], c.on[1], 50+2*i, c.set); err != nil {
					return err
				}
				across = append(across, p)
			}
		}
		if err := r.Ready(ctx, little[0], little[1], much[0], much[1]); err != nil {
			return err
		}
		metrics := []metric{stream1, latency, connect}
		res, err := b.measure(ctx, same, metrics...)
		if err != nil {
			return err
		}
		b.report.paths("driver ebpf, two containers of one host: rules; with 10,000 rules the host has four such policies and 10,000 remote endpoints", same, res, metrics...)
		for _, p := range same[2:] {
			b.judgeWithin5Percent(p, ten, res)
			q := stats.Compare(res.of(p.name, connect.name), res.of(none, connect.name))
			b.report.atLeast(p.name+": new connections, to no policy", q.Median, 0.9, q.String())
		}
		res, err = b.measure(ctx, across, stream1, latency)
		if err != nil {
			return err
		}
		b.report.paths("The same across two hosts", across, res, stream1, latency)
		b.judgeWithin5Percent(across[1], ten, res)
		return nil
	})
}

// judgeWithin5Percent judges whether a path is within 5 % of another.
func (b *bench) judgeWithin5Percent(p path, base string, res results) {
	q := stats.Compare(res.of(p.name, stream1.name), res.of(base, stream1.name))
	b.report.atLeast(fmt.Sprintf("%s: %s, to %s", p.name, stream1.name, base), q.Median, 0.95, q.String())
	q = stats.Compare(res.of(p.name, latency.name), res.of(base, latency.name))
	b.report.atMost(fmt.Sprintf("%s: %s, to %s", p.name, latency.name, base), q.Median, 1.05, q.String())
}
