package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// whole measures a whole cluster's host on the ebpf driver: CNI ADD beside the
// stock bridge plugin with host-local, in turn, and what netplugin's memory is
// with 10,000 endpoints on other hosts.
func (b *bench) whole(ctx context.Context) (err error) {
	bin, remove, err := rig.Programs(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	l, err := testcluster.Up(ctx, testcluster.Config{Name: "bdp4", Hosts: 1, Driver: testcluster.DriverEBPF, BinDir: bin})
	if err != nil {
		return err
	}
	return errors.Join(b.onLab(ctx, l), l.Down())
}

func (b *bench) onLab(ctx context.Context, l *testcluster.Lab) error {
	if err := rig.Netctl(ctx, l,
		"tenant create t", "network create -t t -e vxlan -s 10.1.0.0/16 --subnetv6 fd00:1::/64 net", "policy create -t t p",
		"policy rule-add -t t -d in -p 10 -l tcp -P 80 -j allow p 1", "policy rule-add -t t -d in -p 1 -j deny p 2", "group create -t t -p p net g",
	); err != nil {
		return err
	}
	if err := b.add(ctx, l); err != nil {
		return err
	}
	return b.memory(ctx, l)
}

// add runs ADD of both plugins in turn, each for a container of its own.
func (b *bench) add(ctx context.Context, l *testcluster.Lab) error {
	h := l.Hosts()[0]
	list, err := rig.StockBridge(h, "10.99.0.0/16", "fd00:99::/64")
	if err != nil {
		return err
	}
	bridge := libcni.NewCNIConfigWithCacheDir([]string{rig.Stock}, filepath.Join(h.Dir, "stock-cache"), testcluster.NewNSExec(h.NS))
	var theirs, ours series
	for i := range b.n(80) {
		name := "c" + strconv.Itoa(i)
		ns, err := l.AddNamespace(name)
		if err != nil {
			return err
		}
		start := time.Now()
		if _, err := bridge.AddNetworkList(ctx, list, &libcni.RuntimeConf{ContainerID: "stock" + name, NetNS: ns.Path(), IfName: "eth1"}); err != nil {
			return fmt.Errorf("stock bridge: ADD: %w", err)
		}
		theirs = append(theirs, milliseconds(start))
		start = time.Now()
		if _, err := l.CNIAdd(ctx, testcluster.ContainerSpec{Name: name, Host: h.Name, Tenant: "t", Network: "net", Group: "g"}); err != nil {
			return fmt.Errorf("contivk8s: ADD: %w", err)
		}
		ours = append(ours, milliseconds(start))
	}
	q := stats.Compare(ours, theirs)
	t := b.report.table("CNI ADD, one at a time, in turn: the whole call of libcni (ms)", "plugin", "containers", "median", "ratio, 95 % interval")
	t.row("stock bridge + host-local, no policy, IPv4 and IPv6", len(theirs), fmt.Sprintf("%.1f", stats.Median(theirs)), "")
	t.row("contivk8s on driver ebpf, group with policy, IPv4 and IPv6", len(ours), fmt.Sprintf("%.1f", stats.Median(ours)), q)
	b.report.atMost("CNI ADD on ebpf, median, to the stock bridge plugin's", stats.Median(ours)/stats.Median(theirs), 1, fmt.Sprintf("%.1f ms to %.1f ms", stats.Median(ours), stats.Median(theirs)))
	return nil
}

func milliseconds(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }

// memory fills the store with endpoints of other hosts and reads netplugin's
// anonymous resident memory once its data plane holds them all.
func (b *bench) memory(ctx context.Context, l *testcluster.Lab) error {
	c, err := l.Masters.API()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := otherHosts(ctx, l); err != nil {
		return err
	}
	n := b.n(manyRemotes)
	fmt.Fprintf(os.Stderr, "  creating %d endpoints\n", n)
	g, creating := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range n {
		g.Go(func() error {
			_, err := c.CreateEndpoint(creating, api.CreateEndpointRequest{
				TenantName: "t", NetworkName: "net", ServiceName: "g", EndpointID: "r" + strconv.Itoa(i),
				ConfigEP: api.ConfigEP{Host: fmt.Sprintf("other%d", i%others)},
			})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	h := l.Hosts()[0]
	wait, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	if err := testcluster.Until(wait, "the data plane holds every endpoint", func(context.Context) error {
		m, err := ebpf.LoadPinnedMap(filepath.Join(h.PinDir(), "maps", "hosts"), &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			return err
		}
		defer func() { _ = m.Close() }() // only read
		have := 0
		var key, value []byte
		for it := m.Iterate(); it.Next(&key, &value); {
			have++
		}
		if have < n {
			return fmt.Errorf("%d addresses of %d endpoints", have, n)
		}
		return nil
	}); err != nil {
		return err
	}
	anon, err := stats.Anonymous(h.Agent().PID)
	if err != nil {
		return err
	}
	t := b.report.table("netplugin, driver ebpf, real store", "endpoints on other hosts", "RssAnon of its process (MB)")
	t.row(n, fmt.Sprintf("%.1f", anon))
	b.report.atMost("netplugin's anonymous resident memory (MB)", anon, 60, fmt.Sprintf("%.1f", anon))
	return nil
}

// others is how many hosts the endpoints are on.
const others = 100

// otherHosts writes the records of other hosts: copies of h1's, each with another name
// and another address.
func otherHosts(ctx context.Context, l *testcluster.Lab) (err error) {
	c, err := l.Store.Etcd(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	h := l.Hosts()[0]
	found, err := c.Get(ctx, tables.Hosts.Key(model.HostName(h.Name)))
	if err != nil || len(found.Kvs) == 0 {
		return fmt.Errorf("read the record of host %s: %w", h.Name, cmp.Or(err, model.ErrNotFound))
	}
	for i := range others {
		name := fmt.Sprintf("other%d", i)
		record := strings.ReplaceAll(string(found.Kvs[0].Value), strconv.Quote(h.Name), strconv.Quote(name))
		for _, a := range []string{h.Address.String(), h.Control.String()} {
			record = strings.ReplaceAll(record, strconv.Quote(a), strconv.Quote(fmt.Sprintf("198.51.100.%d", i+1)))
		}
		if _, err := c.Put(ctx, tables.Hosts.Key(model.HostName(name)), record); err != nil {
			return err
		}
	}
	return nil
}
