package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// kubernetes compares how hosts serve the services of one API server to pods: netplugin,
// and kube-proxy of the same Kubernetes by iptables and by nftables.
func (b *bench) kubernetes(ctx context.Context) (err error) {
	if os.Getenv(cluster.Program) == "" {
		return cluster.ErrNotBuilt
	}
	dir, remove, err := rig.Programs(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	subnet := netip.PrefixFrom(pod(0), 16).Masked()
	return b.with(ctx, testcluster.Config{
		Name: "bdp9", Hosts: 3, BinDir: dir, Driver: testcluster.DriverEBPF,
		MasterArgs: []string{"--kubeconfig", filepath.Join(dir, "kubeconfig"), "--pod-cidr", subnet.String()},
	}, func(r testbed) error {
		k, err := r.kube(ctx, dir)
		if err != nil {
			return err
		}
		return b.serviceProxies(ctx, k)
	})
}

// serviceProxies compares the service proxies, with few services and with many.
func (b *bench) serviceProxies(ctx context.Context, k *kubeRig) error {
	var standing, late [][]any
	for _, n := range []int{fewServices, b.n(manyClusterServices)} {
		fmt.Fprintf(os.Stderr, "  %d services\n", n)
		rows, err := k.startWithServices(ctx, n)
		if err != nil {
			return err
		}
		standing = append(standing, rows...)
		if err := b.connectionsTo(ctx, k); err != nil {
			return err
		}
		if rows, err = k.oneMore(ctx, min(b.rounds/2, 5)); err != nil {
			return err
		}
		late = append(late, rows...)
	}
	t := b.report.table(fmt.Sprintf("Services that are there, of %d backends each: from the start of the program on a host until all answer; what memory they take then", backendsOfEach),
		"who", "services", "until all answer (s)", "the program's anonymous memory (MB)", "the kernel's: eBPF maps, or what the machine has more since before the rules (MB)")
	for _, r := range standing {
		t.row(r...)
	}
	t = b.report.table("One service more: from the API server's answer to the first connection (ms), the others stopped", "who", "services", "times", "median", "most")
	for _, r := range late {
		t.row(r...)
	}
	return nil
}

// startWithServices stops the service proxies, makes services until there are n, and starts first
// netmaster and then each proxy, one after the other.
func (k *kubeRig) startWithServices(ctx context.Context, n int) (rows [][]any, err error) {
	for _, s := range k.sides {
		if p := s.process(); p.Alive() {
			if err := p.Stop(5 * time.Second); err != nil {
				return nil, err
			}
		}
	}
	if err := k.Lab.Process("netmaster").Stop(5 * time.Second); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := k.create(ctx, n); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "  made after %v\n", time.Since(began))
	kept, err := k.keep(ctx, n)
	if err != nil {
		return nil, err
	}
	rss, err := stats.Anonymous(k.Lab.Process("netmaster").PID)
	if err != nil {
		return nil, err
	}
	rows = append(rows, []any{"netmaster, once in a cluster: its store has them", n, seconds(kept), fmt.Sprintf("%.1f", rss), ""})
	sample := []int{n - 1}
	for i := range 50 {
		sample = append(sample, i*n/50)
	}
	for _, s := range k.sides {
		before := kernelMemory()
		began := time.Now()
		if err := k.start(s); err != nil {
			return nil, err
		}
		last, err := k.answers(ctx, s, sample...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.who(), err)
		}
		fmt.Fprintf(os.Stderr, "  %s: stand after %v\n", s.who(), last.Sub(began))
		s.kernel += kernelMemory() - before // rules of a former start are replaced
		kernel := s.kernel
		if s.mode == "" {
			if kernel, err = mapMemory(s.process().PID); err != nil {
				return nil, err
			}
		}
		rss, err := stats.Anonymous(s.process().PID)
		if err != nil {
			return nil, err
		}
		rows = append(rows, []any{s.who(), n, seconds(last.Sub(began)), fmt.Sprintf("%.1f", rss), fmt.Sprintf("%.1f", kernel)})
	}
	return rows, nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }

// keep starts netmaster, and returns when its store has n services with all backends.
func (k *kubeRig) keep(ctx context.Context, n int) (time.Duration, error) {
	began := time.Now()
	if err := k.Lab.Masters.StartMaster(ctx); err != nil {
		return 0, err
	}
	c, err := k.Lab.Masters.API()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	err = testcluster.Until(ctx, "the store to have all services", func(ctx context.Context) error {
		all, err := c.ClusterServices(ctx)
		full := 0
		for _, s := range all {
			if s.Ready == backendsOfEach {
				full++
			}
		}
		if err == nil && full < n {
			err = fmt.Errorf("%d of %d", full, n)
		}
		return err
	})
	return time.Since(began), err
}

// connectionsTo measures connections of pods to services, spread over all that there are.
func (b *bench) connectionsTo(ctx context.Context, k *kubeRig) error {
	direct, err := k.itself()
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := testcluster.Until(wait, "the ports of the host to last", func(ctx context.Context) error {
		ports, err := k.sides[0].host.Ports(ctx)
		if err == nil && len(ports) < len(k.pods) {
			err = fmt.Errorf("%d of %d", len(ports), len(k.pods))
		}
		return err
	}); err != nil {
		return err
	}
	paths := []path{direct}
	byName := map[string]*side{}
	for _, s := range k.sides {
		s.name, s.addr, s.each = fmt.Sprintf("%s, %d services", s.who(), k.services), clusterAddress(k.services/2), nil
		for i := range min(k.services, 100) {
			s.each = append(s.each, clusterAddress(i*k.services/min(k.services, 100)))
		}
		s.asked = 0
		paths = append(paths, s.path)
		byName[s.name] = s
	}
	first := metric{"first packet and its answer, to one after the other", "µs", oneByOne(func(p path, _ time.Duration) (float64, error) {
		return firsts(p, func(i int) int {
			s := byName[p.name]
			if s == nil {
				return i
			}
			s.asked++
			return s.asked * 251 % k.services // a prime: each once before any again
		}, byName[p.name] == nil)
	})}
	metrics := []metric{first, connect, latency}
	res, err := b.measure(ctx, paths, metrics...)
	if err != nil {
		return err
	}
	b.report.paths(fmt.Sprintf("Connections of a pod to %d services of Kubernetes, and to their backends themselves, on one host", k.services), paths, res, metrics...)
	for _, s := range k.sides[1:] {
		q := stats.Compare(res.of(k.sides[0].name, connect.name), res.of(s.name, connect.name))
		b.report.atLeast(k.sides[0].name+", "+connect.name+", to "+s.name, q.Median, 1, q.String())
		q = stats.Compare(res.of(k.sides[0].name, first.name), res.of(s.name, first.name))
		b.report.atMost(k.sides[0].name+", first packet, to "+s.name, q.Median, 1, q.String())
	}
	return nil
}

// firsts returns the median of what it takes until a connection is there (one packet to
// the service, one back), in microseconds, to one service after the other.
func firsts(p path, next func(int) int, direct bool) (float64, error) {
	l, err := listen(p)
	if err != nil {
		return 0, err
	}
	defer l.close()
	var took series
	err = onCPU(p.client, 1, func() error {
		for i := range batch {
			to := clusterAddress(next(i))
			if direct {
				to = p.each[i%len(p.each)]
			}
			fd, err := socket()
			if err != nil {
				return err
			}
			at := address(to, port)
			start := time.Now()
			err = dial(fd, at)
			took = append(took, float64(time.Since(start).Nanoseconds())/1000)
			if s, ok := l.accept(); ok {
				shut(s) // first, so that who asks does not run out of ports
			}
			shut(fd)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return stats.Median(took), wrap(p, err)
}

// oneMore makes some services more for each side, while the others are stopped.
func (k *kubeRig) oneMore(ctx context.Context, times int) (rows [][]any, err error) {
	there := k.services
	for _, s := range k.sides {
		var took series
		for _, other := range k.sides {
			if other != s {
				if err := other.process().Pause(); err != nil {
					return nil, err
				}
			}
		}
		for range times {
			if err := k.create(ctx, k.services+1); err != nil {
				return nil, err
			}
			answered := time.Now()
			first, err := k.answers(ctx, s, k.services-1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.who(), err)
			}
			took = append(took, max(float64(first.Sub(answered).Microseconds())/1000, 0))
		}
		for _, other := range k.sides {
			if other != s {
				if err := other.process().Resume(); err != nil {
					return nil, err
				}
			}
		}
		rows = append(rows, []any{s.who(), there, times, fmt.Sprintf("%.1f", stats.Median(took)), fmt.Sprintf("%.1f", slices.Max(took))})
		// The others catch up before the next is measured.
		for _, other := range k.sides {
			if _, err := k.answers(ctx, other, k.services-1); err != nil {
				return nil, fmt.Errorf("%s: %w", other.who(), err)
			}
		}
	}
	return rows, nil
}

// kernelMemory reads what the kernel's own structures take of the machine, in MB (10^6).
func kernelMemory() (mb float64) {
	for _, field := range []string{"SUnreclaim:", "VmallocUsed:", "Percpu:"} {
		mb += stats.Field("/proc/meminfo", field) * 1024 / 1e6
	}
	return mb
}

// mapMemory adds up what the kernel says of a process's eBPF maps, in MB (10^6).
func mapMemory(pid int) (mb float64, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return 0, err
	}
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // closed since
		}
		if err != nil {
			return 0, err
		}
		var id string
		var bytes float64
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			switch value = strings.TrimSpace(value); name {
			case "map_id":
				id = value
			case "memlock":
				if bytes, err = strconv.ParseFloat(value, 64); err != nil {
					return 0, err
				}
			}
		}
		if id != "" && !seen[id] {
			seen[id] = true
			mb += bytes / 1e6
		}
	}
	return mb, nil
}
