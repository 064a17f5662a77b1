package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// rounds of 8 in parallel, of both plugins in turn: what else the machine does
// moves the median of one round of 40 by a third.
const rounds = 5

// verbs are CNI's ADD and DEL of one plugin, for the i-th container.
type verbs struct {
	name     string
	add, del func(ctx context.Context, i int) error
}

// cni measures CNI ADD and DEL of contivk8s and of the stock bridge plugin with
// host-local addresses, in the same run, on the same simulated host.
func (b *bench) cni(ctx context.Context) error {
	l, err := b.lab(ctx, testcluster.Config{Name: "benchcni", Hosts: 1})
	if err != nil {
		return err
	}
	if err := rig.Netctl(ctx, l,
		"tenant create t", "network create -t t -e vxlan -s 10.1.0.0/16 --subnetv6 fd00:1::/64 net", "policy create -t t p",
		"policy rule-add -t t -d in -p 10 -l tcp -P 80 -j allow p 1", "policy rule-add -t t -d in -p 1 -j deny p 2", "group create -t t -p p net g",
	); err != nil {
		return err
	}
	n := b.n(160)
	for i := range n {
		if _, err := l.AddNamespace(fmt.Sprintf("b%d", i)); err != nil {
			return err
		}
	}
	h := l.Hosts()[0]
	bridge, err := stockBridge(l, h)
	if err != nil {
		return err
	}
	spec := func(i int) testcluster.ContainerSpec {
		return testcluster.ContainerSpec{Name: fmt.Sprintf("b%d", i), Host: h.Name, Tenant: "t", Network: "net", Group: "g"}
	}
	ours := verbs{
		"contivk8s, group with policy, IPv4 and IPv6",
		func(ctx context.Context, i int) error { _, err := l.CNIAdd(ctx, spec(i)); return err },
		func(ctx context.Context, i int) error { return l.CNIDel(ctx, spec(i)) },
	}
	b.report.table("ADD and DEL (ms), whole call of libcni with the start of the plugin's process", "plugin", "in parallel", "containers", "rounds",
		"ADD p50", "ADD p99", "DEL p50", "DEL p99", "1.x ADD", "1.x DEL")
	var usage []any
	for _, c := range []struct{ parallel, n, rounds int }{{1, n / 4, 1}, {8, n / 4, rounds}, {8, n, 1}} {
		both := []verbs{bridge, ours}
		var adds, dels [2][]time.Duration
		var spent [2]processor
		for range c.rounds {
			for i, v := range both {
				before := processorTimes(l)
				add, err := latencies(ctx, c.parallel, c.n, v.add)
				if err != nil {
					return fmt.Errorf("%s: ADD: %w", v.name, err)
				}
				spent[i].add(processorTimes(l), before)
				del, err := latencies(ctx, c.parallel, c.n, v.del)
				if err != nil {
					return fmt.Errorf("%s: DEL: %w", v.name, err)
				}
				adds[i], dels[i] = append(adds[i], add...), append(dels[i], del...)
			}
		}
		for i, v := range both {
			old := []string{"", ""}
			if v.name == ours.name && c.parallel == 1 {
				old = []string{"350-480", "130-190"}
			}
			b.report.row(v.name, c.parallel, c.n, c.rounds, ms(percentile(adds[i], .5)), ms(percentile(adds[i], .99)), ms(percentile(dels[i], .5)), ms(percentile(dels[i], .99)), old[0], old[1])
			usage = append(usage, v.name, c.parallel, c.n)
			usage = append(usage, spent[i].each(c.n*c.rounds)...)
		}
	}
	header := append([]string{"plugin", "in parallel", "containers"}, processorColumns...)
	b.report.table("Processor time of one ADD (ms), by who spends it", header...)
	for row := range slices.Chunk(usage, len(header)) {
		b.report.row(row...)
	}
	return nil
}

// latencies runs f n times, some in parallel, and returns how long each took.
func latencies(ctx context.Context, parallel, n int, f func(context.Context, int) error) ([]time.Duration, error) {
	out := make([]time.Duration, n)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range n {
		g.Go(func() error {
			start := time.Now()
			err := f(ctx, i)
			out[i] = time.Since(start)
			return err
		})
	}
	return out, g.Wait()
}

// stockBridge sets up the stock bridge plugin on the host.
func stockBridge(l *testcluster.Lab, h *testcluster.Host) (verbs, error) {
	list, err := rig.StockBridge(h, "10.99.0.0/16", "fd00:99::/64")
	if err != nil {
		return verbs{}, err
	}
	c := libcni.NewCNIConfigWithCacheDir([]string{rig.Stock}, filepath.Join(h.Dir, "stock-cache"), testcluster.NewNSExec(h.NS))
	rt := func(i int) (*libcni.RuntimeConf, error) {
		ns, err := l.Space(fmt.Sprintf("b%d", i))
		if err != nil {
			return nil, err
		}
		return &libcni.RuntimeConf{ContainerID: fmt.Sprintf("stock%d", i), NetNS: ns.Path(), IfName: "eth0"}, nil
	}
	return verbs{
		"stock bridge + host-local, no policy, IPv4 and IPv6",
		func(ctx context.Context, i int) error {
			r, err := rt(i)
			if err == nil {
				_, err = c.AddNetworkList(ctx, list, r)
			}
			return err
		},
		func(ctx context.Context, i int) error {
			r, err := rt(i)
			return errors.Join(err, c.DelNetworkList(ctx, list, r))
		},
	}, nil
}
