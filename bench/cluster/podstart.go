package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// stockSubnet has the stock plugin's addresses, of IPv4 as the pods of default-net have them.
var stockSubnet = netip.MustParsePrefix("10.99.0.0/16")

// podStart measures how long pods take to run, from the API server's answer to their
// creation, with real kubelets and containerd on two nodes, by contivk8s and by the stock
// bridge plugin in turn.
func (b *bench) podStart(ctx context.Context) error {
	dir, err := b.tempDir()
	if err != nil {
		return err
	}
	n, err := cluster.StartNodes(ctx, cluster.NodesConfig{Name: "benchstart", Dir: dir, BinDir: b.bin, Driver: testcluster.DriverEBPF, Nodes: 2})
	if err != nil {
		return err
	}
	b.OnClose(n.Close)
	for _, h := range n.Lab.Hosts() {
		for _, p := range []string{"bridge", "host-local"} {
			if err := os.Symlink(filepath.Join(rig.Stock, p), filepath.Join(h.Dir, "plugins", p)); err != nil {
				return err
			}
		}
	}
	rounds, pods := 2, burst
	if b.quick {
		rounds, pods = 1, 4
	}
	var took [2][]time.Duration
	for i := range rounds {
		for _, which := range []int{i % 2, 1 - i%2} {
			for _, h := range n.Lab.Hosts() {
				if err := useStock(h, which == 1); err != nil {
					return err
				}
			}
			// containerd follows its directory: the first pod tells whether it has.
			if err := testcluster.Until(ctx, "containerd to use the other plugin", func(ctx context.Context) error {
				return probePlugin(ctx, n, which == 1)
			}); err != nil {
				return err
			}
			d, err := startPods(ctx, n, pods)
			if err != nil {
				return err
			}
			took[which] = append(took[which], d...)
		}
	}
	b.report.table(fmt.Sprintf("The whole start of pods (ms): from the API server's answer until its watch says that the pod runs; kubelets with containerd on two nodes, driver ebpf; bursts of %d, in turn", pods),
		"plugin", "pods", "p50", "p99", "most")
	for i, name := range []string{"contivk8s", stockName} {
		b.report.row(name, len(took[i]), ms(percentile(took[i], .5)), ms(percentile(took[i], .99)), ms(percentile(took[i], 1)))
	}
	b.report.row("ratio", "", fmt.Sprintf("%.2f", over(took[0], took[1], .5)), fmt.Sprintf("%.2f", over(took[0], took[1], .99)), "")
	return nil
}

// useStock has a node's containerd use the stock plugin, or contivk8s again: the first
// file by name counts.
func useStock(h *testcluster.Host, yes bool) error {
	file := filepath.Join(h.Dir, "net.d", "00-stock.conflist")
	if !yes {
		if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	list, err := rig.StockBridge(h, stockSubnet.String())
	if err != nil {
		return err
	}
	return os.WriteFile(file, list.Bytes, 0o600)
}

// probePlugin returns an error until a pod on each node gets its address as it should.
func probePlugin(ctx context.Context, n *cluster.Nodes, stock bool) error {
	at, err := runPods(ctx, n, 2)
	if err != nil {
		return err
	}
	for _, a := range at {
		if stockSubnet.Contains(a.address) != stock {
			return fmt.Errorf("a pod has %s", a.address)
		}
	}
	return nil
}

func startPods(ctx context.Context, n *cluster.Nodes, count int) (took []time.Duration, err error) {
	at, err := runPods(ctx, n, count)
	for _, a := range at {
		took = append(took, a.took)
	}
	return took, err
}

// started is a pod that ran.
type started struct {
	answered time.Time
	took     time.Duration
	address  netip.Addr
}

// runPods makes pods, on the nodes in turn, waits until all run, and deletes them.
func runPods(ctx context.Context, n *cluster.Nodes, count int) (map[string]started, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	pods := n.Client.CoreV1().Pods("default")
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	running := make(chan map[string]started, 1)
	go func() { running <- awaitRunning(w, count) }()
	answered := make([]time.Time, count)
	g, making := errgroup.WithContext(ctx)
	name := func(i int) string { return fmt.Sprint("start", i) }
	for i := range count {
		g.Go(func() error {
			_, err := pods.Create(making, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name(i)},
				Spec: corev1.PodSpec{
					NodeName: n.Lab.Hosts()[i%2].Name, TerminationGracePeriodSeconds: new(int64), AutomountServiceAccountToken: new(false),
					Containers: []corev1.Container{{Name: "c", Image: cluster.Agnhost, ImagePullPolicy: corev1.PullNever, Args: []string{"pause"}}},
				},
			}, metav1.CreateOptions{})
			answered[i] = time.Now()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := <-running
	if len(out) < count {
		return nil, fmt.Errorf("%d of %d pods run", len(out), count)
	}
	for i := range count {
		s := out[name(i)]
		s.took = s.answered.Sub(answered[i])
		out[name(i)] = s
	}
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return nil, err
	}
	return out, testcluster.Until(ctx, "the pods to be gone", func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return err
	})
}

// awaitRunning returns when so many pods run, with when a watch said so first, or when
// the watch ends.
func awaitRunning(w watch.Interface, count int) map[string]started {
	out := map[string]started{}
	for e := range w.ResultChan() {
		p, ok := e.Object.(*corev1.Pod)
		if !ok || p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			continue
		}
		if _, known := out[p.Name]; known {
			continue
		}
		a, err := netip.ParseAddr(p.Status.PodIP)
		if err != nil {
			continue
		}
		if out[p.Name] = (started{answered: time.Now(), address: a}); len(out) == count {
			return out
		}
	}
	return out
}
