package cluster

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

//go:embed node.sh
var nodeInit []byte

// PodCIDR is the subnet of the network default-net, which pods get addresses of.
const PodCIDR = "10.1.0.0/16"

const podCIDR6 = "fd00:1::/64" // where there is IPv6

// nodesTimeout bounds the start of a cluster with nodes: half a minute on an idle machine,
// of which containerd's import of images was over five at a load of 45.
const nodesTimeout = 20 * time.Minute

// NodesConfig says what a cluster with nodes is.
type NodesConfig struct {
	Name     string // of the lab
	Dir      string // where the control plane's files are; it must exist
	BinDir   string // Contiv's programs (testcluster.Build)
	Driver   string // as testcluster.Config's
	Nodes    int
	Beside   int      // more hosts, which are no nodes
	Zones    int      // that they are in by turns; 0 = none
	Proxy    bool     // kube-proxy on each node, in mode iptables
	Native   bool     // the pods' network is
	Dual     bool     // nodes, pods and services have addresses of both families
	DNS      bool     // the cluster's DNS, in pods
	Internet bool     // some of its addresses answer, and the cluster's DNS asks there; it needs Dual and DNS
	Gates    string   // the API server's --feature-gates; empty = as they are
	Masters  []string // more of netmaster's arguments
	AgentEnv []string
	Secure   bool     // with TLS and certificates: hosts read the store by netmaster
	Multus   string   // its program, by which kubelets attach pods; it calls contivk8s. Empty = contivk8s alone
	Bare     bool     // no Contiv: nodes get ready when somebody installs a pod network below /opt/cni
	Images   []string // archives that nodes have, beside those of tests
}

// Nodes is a whole cluster: a control plane in the lab's master namespace beside
// netmaster, which follows it, and on each of the lab's hosts netplugin, containerd and a
// kubelet that attaches pods by contivk8s. A node is named as its host.
type Nodes struct {
	Lab     *testcluster.Lab
	Control *Control
	Client  *kubernetes.Clientset
	cfg     NodesConfig
}

// StartNodes starts a cluster and returns when all nodes are ready for pods. It returns
// ErrNotBuilt as Start does. Nothing remains of it on failure.
func StartNodes(ctx context.Context, cfg NodesConfig) (_ *Nodes, err error) {
	if os.Getenv(Program) == "" {
		return nil, ErrNotBuilt
	}
	if cfg.DNS {
		if err := buildDNS(ctx); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	script := filepath.Join(cfg.Dir, "node.sh")
	if err := write(script, nodeInit); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(cfg.Dir, "netmaster.kubeconfig")
	lc := testcluster.Config{
		Name: cfg.Name, BinDir: cfg.BinDir, Hosts: cfg.Nodes + cfg.Beside, Driver: cfg.Driver, Bare: true, Embedded: true, Secure: cfg.Secure,
		MasterArgs: append([]string{"--kubeconfig", kubeconfig}, cfg.Masters...), AgentEnv: cfg.AgentEnv, HostInit: []string{"/bin/bash", script},
	}
	network := []string{"network", "create", "-e", "vxlan", "-s", PodCIDR, "default-net"}
	if cfg.Native {
		network = append(network, "--native")
	}
	if cfg.Dual {
		network = append(network, "--subnetv6", podCIDR6)
	}
	n := &Nodes{cfg: cfg}
	if n.Lab, err = testcluster.Up(ctx, lc); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if err := n.lead(ctx); err != nil {
		return nil, err
	}
	if n.Control, n.Client, err = beside(ctx, n.Lab, cfg.Dir, cfg.Dual, cfg.Gates); err != nil {
		return nil, err
	}
	if err := n.Control.Schedule(ctx); err != nil {
		return nil, err
	}
	if cfg.Internet {
		if err := n.startInternet(ctx); err != nil {
			return nil, err
		}
	}
	if !cfg.Bare {
		if err := n.startContiv(ctx, network); err != nil {
			return nil, err
		}
	}
	archives, err := writeImages(ctx, cfg.Dir)
	if err != nil {
		return nil, err
	}
	archives = append(archives, cfg.Images...)
	g, each := errgroup.WithContext(ctx)
	for _, h := range n.Lab.Hosts()[:cfg.Nodes] {
		g.Go(func() error { return n.startNode(each, h, archives) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if cfg.Bare {
		return n, nil
	}
	if err := n.AwaitReady(ctx); err != nil || !cfg.DNS {
		return n, err
	}
	return n, n.startDNS(ctx)
}

// AwaitReady returns when all nodes are ready for pods.
func (n *Nodes) AwaitReady(ctx context.Context) error {
	return testcluster.Until(ctx, "all nodes to be ready", n.ready)
}

// startContiv starts netmaster as what the manifest allows it to be, and a netplugin on
// each host, and makes the network of the pods.
func (n *Nodes) startContiv(ctx context.Context, network []string) error {
	root, err := testcluster.Root(ctx, ".")
	if err != nil {
		return err
	}
	if out, err := n.Kubectl(ctx, "apply", "-f", filepath.Join(root, "packaging/kubernetes/netmaster-rbac.yaml")); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if _, err := n.Control.user("netmaster.kubeconfig", "system:serviceaccount:kube-system:contiv-netmaster"); err != nil {
		return err
	}
	if err := n.Lab.Masters.StartMaster(ctx); err != nil {
		return err
	}
	if out, err := n.Lab.Masters.Netctl(ctx, network...); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, h := range n.Lab.Hosts() {
		g.Go(func() error { return h.StartAgent(ctx) })
	}
	return g.Wait()
}

func writeImages(ctx context.Context, dir string) (archives []string, err error) {
	for i, m := range images() {
		file := filepath.Join(dir, fmt.Sprintf("image%d.tar", i))
		if err := m.write(ctx, file); err != nil {
			return nil, err
		}
		archives = append(archives, file)
	}
	return archives, nil
}

// startNode starts containerd with the images, and the kubelet, of a host.
func (n *Nodes) startNode(ctx context.Context, h *testcluster.Host, archives []string) error {
	if err := n.writeNode(h); err != nil {
		return err
	}
	if err := n.StartContainerd(ctx, h); err != nil {
		return err
	}
	for _, a := range archives {
		if out, err := n.ctr(ctx, h, "images", "import", "--no-unpack", a); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	if err := n.StartKubelet(h); err != nil || !n.cfg.Proxy {
		return err
	}
	return n.StartProxy(h, "iptables")
}

// StartProxy starts a host's kube-proxy in one of its modes and does not wait for it.
func (n *Nodes) StartProxy(h *testcluster.Host, mode string) error {
	config, err := n.Control.user(h.Name+"-kube-proxy.kubeconfig", "system:kube-proxy")
	if err != nil {
		return err
	}
	_, err = h.Start("kube-proxy", nil, os.Getenv(Program), "kube-proxy", "--kubeconfig="+config, "--hostname-override="+h.Name, "--proxy-mode="+mode,
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--bind-address="+h.Address.String())
	return err
}

// StartContainerd starts a host's containerd and waits until it answers.
func (n *Nodes) StartContainerd(ctx context.Context, h *testcluster.Host) error {
	var env []string
	if n.cfg.Multus != "" {
		env = PluginEnv(h)
	}
	if _, err := h.Start("containerd", env, "/usr/bin/containerd", "-c", filepath.Join(h.Dir, "containerd.toml")); err != nil {
		return err
	}
	return testcluster.Until(ctx, "containerd of "+h.Name, func(ctx context.Context) error {
		out, err := n.ctr(ctx, h, "version")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// StartKubelet starts a host's kubelet and does not wait for it.
func (n *Nodes) StartKubelet(h *testcluster.Host) error {
	config, err := n.Control.user(h.Name+"-kubelet.kubeconfig", "system:node:"+h.Name, "system:nodes")
	if err != nil {
		return err
	}
	argv := []string{
		os.Getenv(Program), "kubelet", "--config=" + filepath.Join(h.Dir, "kubelet.json"), "--kubeconfig=" + config,
		"--hostname-override=" + h.Name, "--node-ip=" + n.addresses(h), "--v=2",
	}
	if n.cfg.Zones > 0 {
		argv = append(argv, fmt.Sprintf("--node-labels=%s=zone%d", corev1.LabelTopologyZone, slices.Index(n.Lab.Hosts(), h)%n.cfg.Zones))
	}
	_, err = h.Start("kubelet", nil, argv...)
	return err
}

func (n *Nodes) ctr(ctx context.Context, h *testcluster.Host, args ...string) (string, error) {
	return h.Run(ctx, "ctr", append([]string{"--namespace=k8s.io"}, args...)...)
}

// Kubectl runs kubectl as an administrator and returns what it prints.
func (n *Nodes) Kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := n.Lab.Master.Command(ctx, os.Getenv(Program), append([]string{"kubectl", "--kubeconfig=" + n.Control.Kubeconfig}, args...)...).CombinedOutput()
	return string(out), err
}

// ready returns an error until each host is a node that is ready.
func (n *Nodes) ready(ctx context.Context) error {
	list, err := n.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	is := map[string]bool{}
	for _, o := range list.Items {
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && len(o.Spec.Taints) == 0 {
				is[o.Name] = true
			}
		}
	}
	for _, h := range n.Lab.Hosts()[:n.cfg.Nodes] {
		if p := h.Process("kubelet"); !p.Alive() {
			return fmt.Errorf("the kubelet of %s has ended:\n%s", h.Name, p.Tail(15))
		}
		if !is[h.Name] {
			return fmt.Errorf("%s is not ready:\n%s", h.Name, h.Process("kubelet").Tail(5))
		}
	}
	return nil
}

// Close ends the cluster and removes everything of it but the logs in its directory.
func (n *Nodes) Close() error {
	name := n.Lab.Config().Name
	err := n.Lab.Down()
	if n.Control != nil {
		err = errors.Join(err, n.Control.Close())
	}
	return errors.Join(err, removeCgroups(name))
}

// removeCgroups takes away the control groups of a lab's nodes, which are empty once
// their processes have ended.
func removeCgroups(name string) error {
	tops, err := filepath.Glob(filepath.Join("/sys/fs/cgroup/*/contiv-kube", name))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, top := range tops {
		if err := testcluster.Until(ctx, "the processes of "+top+" to be gone", func(context.Context) error { return removeTree(top) }); err != nil {
			return err
		}
		_ = os.Remove(filepath.Dir(top)) // if it is the last lab's
	}
	return nil
}

// removeTree removes a control group and those below it, whose files stay for the kernel.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	return os.Remove(dir)
}

func writeJSON(file string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return write(file, b)
}
