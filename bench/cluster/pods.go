package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"golang.org/x/sync/errgroup"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// burst is how many pods start at once, on two hosts.
const burst = 30

// pods measures CNI ADD's own time for pods of a real API server, in bursts, beside the
// stock bridge plugin's on the same hosts, burst by burst in turn.
func (b *bench) pods(ctx context.Context) error {
	b.report.table("CNI ADD's own time (ms): from the start of the plugin's program to its end; bursts of 30 at once on two hosts, in turn", "data plane", "plugin", "pods", "p50", "p99", "most")
	var misses []string
	var usage [][]any
	for _, driver := range b.drivers() {
		m, err := b.podsOn(ctx, driver, &usage)
		if err != nil {
			return fmt.Errorf("%s: %w", driver, err)
		}
		misses = append(misses, m...)
		if err := b.Close(); err != nil {
			return err
		}
	}
	b.report.misses(misses)
	b.report.table("Processor time of one ADD (ms), by who spends it; the bench has the API server's etcd in it", append([]string{"data plane", "plugin"}, processorColumns...)...)
	for _, row := range usage {
		b.report.row(row...)
	}
	return nil
}

func (b *bench) podsOn(ctx context.Context, driver string, usage *[][]any) (misses []string, err error) {
	f, err := b.follow(ctx, "benchpods", driver)
	if err != nil {
		return nil, err
	}
	if err := f.namespace(ctx, "shop"); err != nil {
		return nil, err
	}
	for i := range 10 {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": fmt.Sprint("a", i)}
		if _, err := f.client.NetworkingV1().NetworkPolicies("shop").Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	bursts := b.n(10*burst) / burst
	if b.quick {
		bursts = 2
	}
	var ours, theirs []time.Duration
	var medians [2][]float64
	var spent [2]processor
	for i := range bursts {
		both := []func(context.Context, int) ([]time.Duration, error){f.addPods, f.addStock}
		for j := range both {
			which := (i + j) % 2
			before := processorTimes(f.lab)
			d, err := both[which](ctx, i)
			if err != nil {
				return nil, err
			}
			spent[which].add(processorTimes(f.lab), before)
			medians[which] = append(medians[which], float64(percentile(d, .5)))
			if which == 0 {
				ours = append(ours, d...)
			} else {
				theirs = append(theirs, d...)
			}
		}
	}
	b.detail("ours", ours)
	b.detail("stock", theirs)
	p50, p99 := over(ours, theirs, .5), over(ours, theirs, .99)
	for _, r := range []struct {
		name string
		d    []time.Duration
	}{{stockName, theirs}, {"contivk8s, 10 NetworkPolicies, each pod under one", ours}} {
		b.report.row(driver, r.name, len(r.d), ms(percentile(r.d, .5)), ms(percentile(r.d, .99)), ms(percentile(r.d, 1)))
	}
	b.report.row(driver, "ratio", "", fmt.Sprintf("%.2f (by bursts %s)", p50, stats.Compare(medians[0], medians[1])), fmt.Sprintf("%.2f", p99), "")
	for i, name := range []string{"contivk8s", stockName} {
		*usage = append(*usage, append([]any{driver, name}, spent[i].each(len(ours))...))
	}
	if p50 > 1 {
		misses = append(misses, fmt.Sprintf("%s: p50 is %.2f of the stock plugin's, wanted at most 1.0", driver, p50))
	}
	if p99 > 1.1 {
		misses = append(misses, fmt.Sprintf("%s: p99 is %.2f of the stock plugin's, wanted at most 1.1", driver, p99))
	}
	return misses, nil
}

// over is the ratio of a percentile to another's.
func over(a, b []time.Duration, q float64) float64 {
	return float64(percentile(a, q)) / float64(percentile(b, q))
}

const stockName = "stock bridge + host-local"

// addPods makes the i-th burst of pods, and attaches them all at once.
func (f *followed) addPods(ctx context.Context, i int) ([]time.Duration, error) {
	specs := make([]testcluster.ContainerSpec, burst)
	g, making := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for k := range specs {
		g.Go(func() (err error) {
			name := fmt.Sprintf("p%d", i*burst+k)
			if _, err = f.lab.AddNamespace(name); err == nil {
				specs[k], err = f.pod(making, "shop", name, fmt.Sprint("h", 1+k%2), map[string]string{"app": fmt.Sprint("a", k%10)})
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return f.atOnce(ctx, []string{f.lab.Config().BinDir}, func(k int) (*libcni.NetworkConfigList, *libcni.RuntimeConf, error) {
		h, err := f.lab.Host(specs[k].Host)
		if err != nil {
			return nil, nil, err
		}
		list, err := h.NetworkConfig(specs[k])
		return list, f.runtime(specs[k].Name, specs[k].Args), err
	})
}

// addStock attaches as many namespaces by the stock plugin.
func (f *followed) addStock(ctx context.Context, i int) ([]time.Duration, error) {
	for k := range burst {
		if _, err := f.lab.AddNamespace(fmt.Sprintf("s%d", i*burst+k)); err != nil {
			return nil, err
		}
	}
	return f.atOnce(ctx, []string{rig.Stock}, func(k int) (*libcni.NetworkConfigList, *libcni.RuntimeConf, error) {
		h := f.lab.Hosts()[k%2]
		list, err := rig.StockBridge(h, stockSubnet.String())
		return list, f.runtime(fmt.Sprintf("s%d", i*burst+k), nil), err
	})
}

func (f *followed) runtime(name string, args [][2]string) *libcni.RuntimeConf {
	ns, err := f.lab.Space(name)
	if err != nil {
		return nil
	}
	return &libcni.RuntimeConf{ContainerID: "bench-" + name, NetNS: ns.Path(), IfName: "eth0", Args: args}
}

// atOnce runs ADD for a burst, all at once, each on the host of its turn, and returns
// how long each plugin's program ran.
func (f *followed) atOnce(ctx context.Context, path []string, of func(k int) (*libcni.NetworkConfigList, *libcni.RuntimeConf, error)) ([]time.Duration, error) {
	took := make([]time.Duration, burst)
	var begun sync.WaitGroup
	start := make(chan struct{})
	g, adding := errgroup.WithContext(ctx)
	for k := range took {
		list, conf, err := of(k)
		if err != nil {
			return nil, err
		}
		h := f.lab.Hosts()[k%2]
		e := &clock{Exec: testcluster.NewNSExec(h.NS)}
		c := libcni.NewCNIConfigWithCacheDir(path, filepath.Join(h.Dir, "bench-cache"), e)
		begun.Add(1)
		g.Go(func() error {
			begun.Done()
			<-start
			_, err := c.AddNetworkList(adding, list, conf)
			took[k] = e.took
			return err
		})
	}
	begun.Wait()
	close(start)
	return took, g.Wait()
}

// clock takes the time that plugins' programs run.
type clock struct {
	invoke.Exec
	took time.Duration
}

func (c *clock) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	start := time.Now()
	defer func() { c.took += time.Since(start) }()
	return c.Exec.ExecPlugin(ctx, path, stdin, env)
}
