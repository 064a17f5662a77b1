//go:build integration

package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/mesos"
	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/internal/testcluster/docker"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// workload is something that is attached to the row's network and serves tcp/80.
type workload struct {
	name, group string
	host        *testcluster.Host
	labels      map[string]string
	port        int    // of the host, published; 0 = none
	id          string // its container's, as CNI's runtime calls it
	uid         string // of its pod

	ns    *testcluster.Namespace
	addrs []netip.Addr
	stop  func()
}

func (w *workload) addr(is6 bool) (netip.Addr, bool) {
	for _, a := range w.addrs {
		if a.Is6() == is6 {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// runtime attaches workloads.
type runtime interface {
	// prepare is called once, when the network is there.
	prepare(ctx context.Context) error
	// attach fills in the workload's namespace and addresses.
	attach(ctx context.Context, w *workload) error
	detach(ctx context.Context, w *workload) error
	// relabel gives an attached workload other labels.
	relabel(ctx context.Context, w *workload, labels map[string]string) error
	// restart ends a host's netplugin as a crash does, and starts it.
	restart(ctx context.Context, h *testcluster.Host) error
	// publishes reports whether a port of the host can be asked for, named whether others
	// find workloads by their names.
	publishes() bool
	named() bool
	close() error
}

func newRuntime(b *bed) runtime {
	switch r := b.row[dimRuntime]; r {
	case Docker, Compose:
		return &engines{bed: b, compose: r == Compose}
	case Swarm:
		return &swarms{engines: engines{bed: b}}
	case Podman:
		return &podmans{b}
	case Pods:
		return &pods{&plugin{spaces: spaces{b}, kind: r}}
	case Process:
		return &processes{spaces{b}}
	case Mesos1x:
		return &mesosSocket{spaces{b}}
	default:
		return &plugin{spaces: spaces{b}, kind: r}
	}
}

// restart is of runtimes of which netplugin has to know nothing.
func (*bed) restart(ctx context.Context, h *testcluster.Host) error { return h.RestartAgent(ctx) }

// spaces are runtimes whose workloads are namespaces of the lab.
type spaces struct{ *bed }

func (spaces) prepare(context.Context) error { return nil }
func (spaces) close() error                  { return nil }

// space makes a workload's namespace.
func (s spaces) space(w *workload) (err error) {
	w.id = "id-" + w.name
	w.ns, err = s.AddNamespace(w.name)
	return err
}

func (s spaces) drop(w *workload, err error) error { return errors.Join(err, s.DropContainer(w.name)) }

// plugin calls contivk8s, as runtimes with CNI do.
type plugin struct {
	spaces
	kind string
}

func (p *plugin) publishes() bool { return p.kind == CNI || p.kind == Nomad }
func (p *plugin) named() bool     { return p.kind == CNI || p.kind == K8s1x }

// call is one call of the plugin: its configuration, CNI_ARGS and namespace.
func (p *plugin) call(ctx context.Context, verb string, w *workload) (*current.Result, error) {
	conf := map[string]any{"cniVersion": "1.0.0", "name": "contiv", "type": "contivk8s", "socket": w.host.CNISocket(), "stateDir": w.host.StateDir()}
	var args []string
	belongs := map[string]string{"tenant": p.tenant, "network": network, "group": w.group}
	switch p.kind {
	case K8s1x:
		conf["cniVersion"], conf["name"] = "0.3.1", "contiv-net"
		args = []string{"IgnoreUnknown=1", "K8S_POD_NAMESPACE=default", "K8S_POD_NAME=" + w.name, "K8S_POD_INFRA_CONTAINER_ID=" + w.id}
	case Pods:
		args = []string{"IgnoreUnknown=1", "K8S_POD_NAMESPACE=" + namespace, "K8S_POD_NAME=" + w.name, "K8S_POD_UID=" + w.uid, "K8S_POD_INFRA_CONTAINER_ID=" + w.id}
	case Nomad:
		args = []string{"IgnoreUnknown=true", "NOMAD_REGION=global", "NOMAD_JOB_ID=" + w.name, "NOMAD_ALLOC_ID=" + w.name}
	case Mesos:
		conf["type"], conf["cniVersion"] = "netcontiv", "0.3.0"
		labels := []map[string]string{}
		for k, v := range map[string]string{"io.contiv.tenant": p.tenant, "io.contiv.network": network, "io.contiv.net-group": w.group} {
			if v != "" {
				labels = append(labels, map[string]string{"key": k, "value": v})
			}
		}
		for k, v := range w.labels {
			labels = append(labels, map[string]string{"key": k, "value": v})
		}
		conf["args"] = map[string]any{"org.apache.mesos": map[string]any{"network_info": map[string]any{"name": "contiv", "labels": map[string]any{"labels": labels}}}}
	default:
		args = []string{"NAME=" + w.name}
	}
	switch p.kind {
	case K8s1x, Nomad:
		for k, v := range belongs {
			if v != "" {
				args = append(args, strings.ToUpper(k)+"="+v)
			}
		}
	case CNI:
		for k, v := range belongs {
			if v != "" {
				conf[k] = v
			}
		}
	}
	if p.kind != Mesos && p.kind != Pods && len(w.labels) > 0 {
		conf["labels"] = w.labels
	}
	if w.port != 0 {
		conf["capabilities"] = map[string]bool{"portMappings": true}
		conf["runtimeConfig"] = map[string]any{"portMappings": []map[string]any{{"hostPort": w.port, "containerPort": 80, "protocol": "tcp", "hostIP": ""}}}
	}
	data, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	bin := p.Config().BinDir
	out, err := testcluster.NewNSExec(w.host.NS).ExecPlugin(ctx, filepath.Join(bin, "contivk8s"), data, (&invoke.Args{
		Command: verb, ContainerID: w.id, NetNS: w.ns.Path(), IfName: "eth0", Path: bin, PluginArgsStr: strings.Join(args, ";"),
	}).AsEnv())
	if err != nil || verb != "ADD" {
		return nil, err
	}
	return resultOf(fmt.Sprint(conf["cniVersion"]), out)
}

func resultOf(version string, out []byte) (*current.Result, error) {
	res, err := create.Create(version, out)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return current.NewResultFromResult(res)
}

func (w *workload) has(res *current.Result) {
	w.addrs = nil
	for _, ip := range res.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		w.addrs = append(w.addrs, a.Unmap())
	}
}

// hasAddrs is has for what an engine says, with spaces between.
func (w *workload) hasAddrs(text string) error {
	w.addrs = nil
	for s := range strings.FieldsSeq(text) {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return err
		}
		w.addrs = append(w.addrs, a)
	}
	return nil
}

func (p *plugin) attach(ctx context.Context, w *workload) error {
	if err := p.space(w); err != nil {
		return err
	}
	res, err := p.call(ctx, "ADD", w)
	if err != nil {
		return err
	}
	w.has(res)
	return nil
}

func (p *plugin) detach(ctx context.Context, w *workload) error {
	_, err := p.call(ctx, "DEL", w)
	return p.drop(w, err)
}

// mesosSocket makes the calls of 1.x's plugin for Mesos.
type mesosSocket struct{ spaces }

func (*mesosSocket) publishes() bool { return false }
func (*mesosSocket) named() bool     { return false }

func (m *mesosSocket) call(ctx context.Context, path string, w *workload) ([]byte, error) {
	labels := map[string]string{"io.contiv.tenant": m.tenant, "io.contiv.network": network}
	if w.group != "" {
		labels["io.contiv.net-group"] = w.group
	}
	maps.Copy(labels, w.labels)
	body, err := json.Marshal(map[string]any{"cni_ifname": "eth0", "cni_netns": w.ns.Path(), "cni_containerid": w.id, "labels": labels})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	socket := filepath.Join(filepath.Dir(w.host.CNISocket()), mesos.SocketFile)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, out)
	}
	return out, err
}

func (m *mesosSocket) attach(ctx context.Context, w *workload) error {
	if err := m.space(w); err != nil {
		return err
	}
	out, err := m.call(ctx, mesos.PathAdd, w)
	if err != nil {
		return err
	}
	res, err := resultOf(mesos.Version, out)
	if err != nil {
		return err
	}
	w.has(res)
	return nil
}

func (m *mesosSocket) detach(ctx context.Context, w *workload) error {
	_, err := m.call(ctx, mesos.PathDel, w)
	return m.drop(w, err)
}

// processes attaches namespaces with netctl.
type processes struct{ spaces }

func (*processes) publishes() bool { return false }
func (*processes) named() bool     { return true }

func (p *processes) netctl(ctx context.Context, w *workload, args ...string) (string, error) {
	out, err := w.host.Run(ctx, filepath.Join(p.Config().BinDir, "netctl"), append(args, "--socket", w.host.CNISocket())...)
	if err != nil {
		err = fmt.Errorf("netctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return out, err
}

func (p *processes) attach(ctx context.Context, w *workload) error {
	if err := p.space(w); err != nil {
		return err
	}
	return p.attachAs(ctx, w)
}

// attachAs attaches the workload with its present settings, again if it is attached.
func (p *processes) attachAs(ctx context.Context, w *workload) error {
	args := []string{"attach", "--tenant", p.tenant, "--network", network, "--name", w.name, "--netns", w.ns.Path(), "--json"}
	if w.group != "" {
		args = append(args, "--group", w.group)
	}
	for k, v := range w.labels {
		args = append(args, "--label", k+"="+v)
	}
	out, err := p.netctl(ctx, w, args...)
	if err != nil {
		return err
	}
	var res attach.Result
	if err := json.Unmarshal([]byte(out), &res); err != nil {
		return err
	}
	w.addrs = nil
	for _, a := range res.Addresses {
		w.addrs = append(w.addrs, a.Prefix.Addr())
	}
	return nil
}

func (p *processes) detach(ctx context.Context, w *workload) error {
	_, err := p.netctl(ctx, w, "detach", "--netns", w.ns.Path(), "--state-dir", w.host.StateDir())
	return p.drop(w, err)
}

// need says what the machine lacks for a row.
func need(r Row) (lacks []string) {
	switch r[dimRuntime] {
	case Pods:
		if os.Getenv(cluster.Program) == "" {
			lacks = append(lacks, cluster.ErrNotBuilt.Error())
		}
	case Docker, Swarm:
		lacks = docker.Missing()
	case Compose:
		lacks = docker.Missing()
		if _, err := os.Stat(composeCLI); err != nil {
			lacks = append(lacks, composeCLI+" is missing: apt-get install docker-compose")
		}
	}
	if _, err := os.Stat(testcluster.PrometheusProgram); err != nil {
		lacks = append(lacks, testcluster.PrometheusProgram+" is missing: apt-get install prometheus")
	}
	if _, err := os.Stat(podmanCLI); r[dimRuntime] == Podman && err != nil {
		lacks = append(lacks, podmanCLI+" is missing: make test-matrix installs it")
	}
	if strings.HasPrefix(r[dimStore], "consul") && os.Getenv(consulEnv) == "" {
		lacks = append(lacks, consulEnv+" names no Consul: make test-matrix builds one")
	}
	return lacks
}
