//go:build integration

package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// podmanCLI is Debian's Podman 4.3, whose CNI backend calls contivk8s.
const podmanCLI = "/usr/bin/podman"

// podmanGroup is the control group of the containers.
const podmanGroup = "contiv-matrix"

// podmans are a Podman with a store of its own for each host.
type podmans struct{ *bed }

func (*podmans) publishes() bool { return true }
func (*podmans) named() bool     { return true }

// close removes the control groups, which runc leaves, those within first.
func (*podmans) close() (err error) {
	var groups []string
	roots, globErr := filepath.Glob("/sys/fs/cgroup/*/" + podmanGroup)
	for _, root := range roots {
		err = errors.Join(err, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				groups = append(groups, path)
			}
			return err
		}))
	}
	for _, g := range slices.Backward(groups) {
		err = errors.Join(err, os.Remove(g))
	}
	return errors.Join(globErr, err)
}

func dirOf(h *testcluster.Host, parts ...string) string {
	return filepath.Join(append([]string{h.Dir, "podman"}, parts...)...)
}

// prepare makes each host's configuration and its containers' root: busybox alone.
func (p *podmans) prepare(context.Context) error {
	box, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return err
	}
	for _, h := range p.Hosts() {
		bin := dirOf(h, "rootfs", "bin")
		if err := os.MkdirAll(bin, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(bin, "busybox"), box, 0o755); err != nil {
			return err
		}
		if err := os.Symlink("busybox", filepath.Join(bin, "sleep")); err != nil {
			return err
		}
		if err := os.MkdirAll(dirOf(h, "net"), 0o755); err != nil {
			return err
		}
		conf := fmt.Sprintf("[network]\nnetwork_backend = \"cni\"\ncni_plugin_dirs = [%q]\nnetwork_config_dir = %q\n[engine]\ncgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\nevents_logger = \"none\"\n", p.Config().BinDir, dirOf(h, "net"))
		if err := os.WriteFile(dirOf(h, "containers.conf"), []byte(conf), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (p *podmans) podman(ctx context.Context, h *testcluster.Host, args ...string) (string, error) {
	args = append([]string{"CONTAINERS_CONF=" + dirOf(h, "containers.conf"), podmanCLI, "--root", dirOf(h, "root"), "--runroot", dirOf(h, "run"), "--tmpdir", dirOf(h, "tmp"), "--storage-driver", "vfs"}, args...)
	out, err := h.Run(ctx, "env", args...)
	if err != nil {
		err = fmt.Errorf("podman %s: %w: %s", strings.Join(args[2:], " "), err, out)
	}
	return strings.TrimSpace(out), err
}

// attach gives a workload a network of Podman's that says where it belongs.
func (p *podmans) attach(ctx context.Context, w *workload) error {
	plugin := map[string]any{
		"type": "contivk8s", "socket": w.host.CNISocket(), "stateDir": w.host.StateDir(), "tenant": p.tenant, "network": network,
		"capabilities": map[string]bool{"portMappings": true, "ips": true, "mac": true}, "labels": w.labels,
	}
	if w.group != "" {
		plugin["group"] = w.group
	}
	list, err := json.Marshal(map[string]any{"cniVersion": "0.4.0", "name": "net-" + w.name, "plugins": []any{plugin}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(dirOf(w.host, "net", w.name+".conflist"), list, 0o644); err != nil {
		return err
	}
	args := []string{"run", "-d", "--name", w.name, "--network", "net-" + w.name, "--cgroup-parent", podmanGroup, "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"}
	if w.port != 0 {
		args = append(args, "-p", fmt.Sprint(w.port, ":80"))
	}
	if _, err := p.podman(ctx, w.host, append(args, "--rootfs", dirOf(w.host, "rootfs"), "/bin/sleep", "100000")...); err != nil {
		return err
	}
	out, err := p.podman(ctx, w.host, "inspect", "--format", "{{.Id}} {{.State.Pid}} {{range .NetworkSettings.Networks}}{{.IPAddress}} {{.GlobalIPv6Address}} {{end}}", w.name)
	if err != nil {
		return err
	}
	id, out, _ := strings.Cut(out, " ")
	pid, addrs, _ := strings.Cut(out, " ")
	w.id = id
	if w.ns, err = testcluster.NamespaceAt(filepath.Join("/proc", pid, "ns/net")); err != nil {
		return err
	}
	return w.hasAddrs(addrs)
}

func (p *podmans) detach(ctx context.Context, w *workload) error {
	w.ns.Close()
	_, err := p.podman(ctx, w.host, "rm", "-f", "-t", "0", w.name)
	return err
}
